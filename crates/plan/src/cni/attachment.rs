//! Frame of all plugins: plans for ADD, DEL, CHECK and GC.
//!
//! Everything is validated before anything is changed. A release is planned from the journal and fresh facts only, so that
//! it continues from wherever an ADD or an earlier release ended.

mod addresses;
mod check;
mod garbage;
mod holder;
mod interface;
mod pod;
mod rdma_device;
mod release;
mod status;

use serde_json::Value;

use super::facts::DevicePart;
use super::journal::{AttachmentKey, DeviceChanges, JOURNAL_VERSION, Journal, Phase, PodIdentity};
use super::protocol::CniError;
use super::protocol::result::ResultInterface;
use super::step::CniStep;
use crate::prelude::*;

pub use addresses::{plan_addresses, plan_addressing};
pub use check::plan_check;
pub(super) use check::{CheckedAttachment, expect};
pub use garbage::{is_abandoned, plan_gc};
pub use holder::describe_holder;
pub(super) use holder::refuse_holders;
pub(super) use interface::{
    InterfaceOrigin, find_clashing_alt_names, find_in_pod, require_device, require_interface,
    require_settings, return_interface,
};
pub(super) use pod::{PodNamespace, open_pod};
pub(super) use rdma_device::{require_rdma, return_rdma};
pub(super) use release::{ReleasedVf, find_vf};
pub use release::{plan_release, plan_release_without_facts};
pub use status::{plan_ovs_status, plan_status};

/// Remedy of everything that needs RDMA devices in single namespaces.
pub(super) const EXCLUSIVE_MODE_REMEDY: &str = "set rdmaMode: exclusive in the SriovNetworkPoolConfig of the node, or run `rdma system set netns exclusive`";

/// Attachment that is added, apart from the configuration of its plugin.
#[derive(Clone, Debug)]
pub struct AddContext<'a> {
    /// Attachment.
    pub key: AttachmentKey,
    /// Name of the network.
    pub network: &'a str,
    /// Current boot.
    pub boot_id: &'a str,
    /// Search path of delegated plugins.
    pub cni_path: &'a str,
    /// Network configuration, as the runtime gave it.
    pub config: &'a Value,
    /// Pod, if the runtime named it.
    pub pod: Option<PodIdentity>,
}

impl AddContext<'_> {
    /// Returns the journal of the attachment before its first step.
    pub(super) fn journal(self, pod: &PodNamespace<'_>, changes: DeviceChanges) -> Journal {
        Journal {
            version: JOURNAL_VERSION,
            key: self.key,
            network: self.network.to_owned(),
            namespace: pod.namespace.clone(),
            boot_id: self.boot_id.to_owned(),
            phase: Phase::Attaching,
            pod: self.pod,
            config: self.config.clone(),
            cni_path: self.cni_path.to_owned(),
            changes,
            result: None,
        }
    }
}

/// Plan of an ADD.
#[derive(Clone, Debug, PartialEq)]
pub struct AddPlan {
    /// Journal to write before the first step.
    pub journal: Journal,
    /// Steps up to the addresses.
    pub steps: Vec<CniStep>,
    /// Interfaces of the result, of which the last is the one in the pod; none if the plugin passes the result of the
    /// previous one on.
    pub interfaces: Vec<ResultInterface>,
    /// The addresses of the IPAM plugin are added to the interface in the pod. Otherwise they are only reported.
    pub configures_addresses: bool,
    /// Steps between the IPAM plugin and the addresses.
    pub before_addresses: Vec<CniStep>,
    /// The interface in the pod gets the MAC of its first address.
    pub mac_follows_address: bool,
    /// Steps after everything else, whose failure is only logged.
    pub last: Vec<CniStep>,
    /// Facts that administrators should know.
    pub notes: Vec<String>,
}

impl AddPlan {
    /// Returns a plan without anything after its steps.
    pub(super) const fn new(
        journal: Journal,
        steps: Vec<CniStep>,
        interfaces: Vec<ResultInterface>,
        configures_addresses: bool,
    ) -> Self {
        Self {
            journal,
            steps,
            interfaces,
            configures_addresses,
            before_addresses: Vec::new(),
            mac_follows_address: false,
            last: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Plan of a release: of a DEL, of the undo of an ADD, or of a sweep. Files (the journal, those of the Go plugin) are not
/// part of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReleasePlan {
    /// Steps.
    pub steps: Vec<CniStep>,
    /// Reason why a part of the release has to wait for another program. The steps are executed nevertheless.
    pub postponed: Option<CniError>,
    /// Parts of the device that are neither in the pod nor on the host: the kernel has not returned them yet.
    pub waits_for: BTreeSet<DevicePart>,
    /// Reasons why something is left as it is.
    pub notes: Vec<String>,
}
