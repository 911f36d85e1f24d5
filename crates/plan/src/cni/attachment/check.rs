//! CHECK: the attachment as ADD left it.

use core::fmt::Display;
use core::net::IpAddr;

use crate::cni::facts::{
    AttachmentFacts, DeviceFacts, InterfaceFacts, NamespaceFacts, SwitchFacts, VfSettings,
};
use crate::cni::journal::{AttachmentKey, DeviceChanges, Journal, Phase};
use crate::cni::protocol::result::{CniResult, ResultInterface};
use crate::cni::protocol::{CniError, ErrorCode};
use crate::cni::{accelerated_bridge, infiniband, mirror, ovs, rdma, sriov};
use crate::prelude::*;

use super::holder::{describe_holder, find_next_holder};
use super::interface::find_in_pod;
use super::pod::{PodNamespace, open_pod};

/// Attachment that is checked.
#[derive(Clone, Copy, Debug)]
pub(in crate::cni) struct CheckedAttachment<'a> {
    /// Its journal.
    pub(in crate::cni) journal: &'a Journal,
    /// Result of the previous ADD, which other plugins may have changed.
    pub(in crate::cni) previous: &'a CniResult,
    /// Facts.
    pub(in crate::cni) facts: &'a AttachmentFacts,
    /// Namespace of the pod.
    pub(in crate::cni) pod: PodNamespace<'a>,
}

/// Compares an attachment with its journal and with the result of the previous ADD. A fact that cannot be read is a
/// difference, too.
pub fn plan_check(
    journal: Option<&Journal>,
    key: &AttachmentKey,
    previous: Option<&CniResult>,
    facts: &AttachmentFacts,
) -> Result<(), CniError> {
    let Some(previous) = previous else {
        return Err(CniError::invalid_config("prevResult", "missing, but CHECK compares with it"));
    };
    let Some(journal) = journal else {
        let subject = format!("attachment of interface {}", key.interface);
        return Err(difference(subject, "a journal", "none"));
    };
    expect("attachment", Phase::Attached.as_str(), Some(journal.phase.as_str()))?;
    if facts.device.as_ref().is_some_and(|device| !device.exists) {
        return Err(difference(key.subject(), "an existing device", "none"));
    }
    if let Some(holder) = find_next_holder(facts, journal) {
        return Err(difference(key.subject(), "no other holder", describe_holder(holder)));
    }
    let pod = match &facts.namespace {
        NamespaceFacts::Gone | NamespaceFacts::Unknown { .. } => {
            open_pod(facts).map_err(|error| CniError { code: ErrorCode::CheckFailed, ..error })?
        }
        NamespaceFacts::NotGiven | NamespaceFacts::Present { .. } => open_pod(facts)?,
    };
    if !pod.namespace.id.is_same(&journal.namespace.id) {
        let subject = format!("namespace {}", pod.namespace.path);
        return Err(difference(subject, "the namespace of ADD", "another one"));
    }
    let checked = CheckedAttachment { journal, previous, facts, pod };
    match &journal.changes {
        DeviceChanges::Sriov(changes) => sriov::check(changes, checked),
        DeviceChanges::Infiniband(changes) => infiniband::check(changes, checked),
        DeviceChanges::Rdma(changes) => rdma::check(changes, checked),
        DeviceChanges::Ovs(changes) => ovs::check(changes, checked),
        DeviceChanges::AcceleratedBridge(changes) => accelerated_bridge::check(changes, checked),
        DeviceChanges::Mirror(changes) => mirror::check(changes, checked.require_switch()?),
    }
}

impl CheckedAttachment<'_> {
    /// Returns the interface in the pod: that of the device, or, without one, the one with the name.
    pub(in crate::cni) fn find_interface(&self) -> Option<&InterfaceFacts> {
        let name = &self.journal.key.interface;
        match &self.facts.device {
            Some(device) => find_in_pod(device, self.pod, name),
            None => self.pod.links.iter().find(|link| link.name == *name),
        }
    }

    /// Returns the device.
    pub(in crate::cni) fn require_device(&self) -> Result<&DeviceFacts, CniError> {
        self.facts.device.as_ref().ok_or_else(|| difference("attachment", "a device", "none"))
    }

    /// Returns the facts of the switch side.
    pub(in crate::cni) fn require_switch(&self) -> Result<&SwitchFacts, CniError> {
        self.facts.switch.as_ref().ok_or_else(|| difference("switch", "facts", "none"))
    }

    /// Checks that the pod has the RDMA device.
    pub(in crate::cni) fn check_rdma(&self, rdma: &str) -> Result<(), CniError> {
        if self.pod.rdma.iter().any(|name| name == rdma) {
            return Ok(());
        }
        let found = if self.pod.rdma.is_empty() { "none".to_owned() } else { self.pod.rdma.join(", ") };
        Err(difference("RDMA devices of the pod", rdma, found))
    }

    /// Compares the interface in the pod with the result.
    pub(in crate::cni) fn check_interface(&self) -> Result<(), CniError> {
        let name = &self.journal.key.interface;
        let device = self.facts.device.as_ref().map(|device| device.address);
        let Some(link) = self.find_interface() else {
            let expected =
                device.map_or_else(|| "an interface".to_owned(), |device| format!("device {device}"));
            return Err(difference(format!("interface {name}"), format!("{expected} in the pod"), "none"));
        };
        if let Some(device) = device {
            expect(&format!("name of device {device}"), name, Some(&link.name))?;
        }
        expect(&format!("state of {name}"), "up", Some(if link.is_up { "up" } else { "down" }))?;
        let index = self.previous.interfaces.iter().position(|interface| is_in_pod(interface, name));
        if index.is_none() && !self.previous.interfaces.is_empty() {
            return Err(difference("prevResult", format!("interface {name}"), "none"));
        }
        if let Some(reported) = index.and_then(|index| self.previous.interfaces.get(index)) {
            if let Some(mac) = &reported.mac {
                expect(&format!("MAC of {name}"), mac.to_lowercase(), Some(format_address(&link.address)))?;
            }
            // A plugin such as tuning changes the MTU and does not report it. One that ADD did not change belongs to others.
            if let Some(mtu) = reported.mtu.filter(|mtu| self.original_mtu() != Some(*mtu)) {
                expect(&format!("MTU of {name}"), mtu, Some(link.mtu))?;
            }
        }
        for ip in &self.previous.ips {
            let is_own = ip.interface.is_none() || ip.interface == index;
            let address = ip.address.to_string();
            if is_own && !is_link_local(ip.address.address) && !link.ips.contains(&address) {
                let found = if link.ips.is_empty() { "none".to_owned() } else { link.ips.join(", ") };
                return Err(difference(format!("IP addresses of {name}"), address, found));
            }
        }
        Ok(())
    }

    /// Returns the MTU that the interface had before ADD.
    fn original_mtu(&self) -> Option<u32> {
        match &self.journal.changes {
            DeviceChanges::Sriov(changes) => changes.interface.as_ref()?.mtu,
            DeviceChanges::Infiniband(_) | DeviceChanges::Rdma(_) => None,
        }
    }

    /// Compares settings that ADD changed with those that the PF stores.
    pub(in crate::cni) fn check_settings(&self, expected: &VfSettings) -> Result<(), CniError> {
        let device = self.require_device()?;
        let found = device.pf.as_ref().and_then(|pf| pf.settings).unwrap_or_default();
        let found: BTreeMap<_, _> = found.fields().into_iter().collect();
        for (key, expected) in expected.fields() {
            expect(&format!("{key} of device {}", device.address), &expected, found.get(key))?;
        }
        Ok(())
    }
}

/// Compares a value. `None` is a value that cannot be read.
pub(in crate::cni) fn expect<T: PartialEq + Display>(
    subject: &str,
    expected: T,
    found: Option<T>,
) -> Result<(), CniError> {
    match found {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(difference(subject, expected, found)),
        None => Err(difference(subject, expected, "a value that cannot be read")),
    }
}

/// Returns the error of a difference.
fn difference(subject: impl Display, expected: impl Display, found: impl Display) -> CniError {
    CniError::new(ErrorCode::CheckFailed, format!("{subject}: expected {expected}, found {found}"))
}

fn is_in_pod(interface: &ResultInterface, name: &str) -> bool {
    interface.name == name && interface.sandbox.as_deref().is_some_and(|sandbox| !sandbox.is_empty())
}

/// Returns a hardware address as results contain it.
fn format_address(address: &[u8]) -> String {
    address.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Returns whether facts leave the address out.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
