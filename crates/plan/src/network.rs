//! What a network becomes: a NetworkAttachmentDefinition (NAD), the object that pods name and Multus reads.

mod check;
mod config;
mod decide;
mod fault;
mod json;
mod vlans;

use core::fmt;

use vfleet_api::network::{BridgeNetworkSpec, OVSNetworkSpec, SriovIBNetworkSpec, SriovNetworkSpec};

use crate::prelude::*;

pub(crate) use check::has_ipam_without_type;
pub use decide::{
    Decision, NadFacts, NamespaceFacts, NetworkFacts, NetworkStep, OwnerFacts, Surroundings, decide, reasons,
    remembered_namespace,
};
pub use fault::NetworkFault;
pub(crate) use vlans::{bad_ranges, is_vlan_unused};

const GROUP: &str = "sriovnetwork.openshift.io";

/// The kinds of networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkKind {
    /// SriovNetwork
    Sriov,
    /// SriovIBNetwork
    InfiniBand,
    /// OVSNetwork
    Ovs,
    /// BridgeNetwork
    Bridge,
}

impl NetworkKind {
    /// As the API calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sriov => "SriovNetwork",
            Self::InfiniBand => "SriovIBNetwork",
            Self::Ovs => "OVSNetwork",
            Self::Bridge => "BridgeNetwork",
        }
    }
}

/// Which network. Shown as the NAD's owner annotation has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkId {
    /// Its kind.
    pub kind: NetworkKind,
    /// The namespace that it is in.
    pub namespace: String,
    /// Its name, and that of its NAD.
    pub name: String,
}

impl fmt::Display for NetworkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{GROUP}/{}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// What a network wants.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkSpec {
    /// Of a SriovNetwork.
    Sriov(SriovNetworkSpec),
    /// Of a SriovIBNetwork.
    InfiniBand(SriovIBNetworkSpec),
    /// Of an OVSNetwork.
    Ovs(OVSNetworkSpec),
    /// Of a BridgeNetwork.
    Bridge(BridgeNetworkSpec),
}

/// What all kinds have. Texts that are blank count as not given.
struct Common<'a> {
    network_namespace: Option<&'a str>,
    resource_name: &'a str,
    capabilities: Option<&'a str>,
    ipam: Option<&'a str>,
    meta_plugins: Option<&'a str>,
}

/// The four kinds have these fields under the same names, but no type in common.
macro_rules! common {
    ($spec:expr) => {
        Common {
            network_namespace: given($spec.network_namespace.as_deref()),
            resource_name: &$spec.resource_name,
            capabilities: given($spec.capabilities.as_deref()),
            ipam: given($spec.ipam.as_deref()),
            meta_plugins: given($spec.meta_plugins.as_deref()),
        }
    };
}

impl NetworkSpec {
    /// The name of the resource that VFs are taken from, without its prefix.
    pub fn resource_name(&self) -> &str {
        self.common().resource_name
    }

    fn common(&self) -> Common<'_> {
        match self {
            Self::Sriov(spec) => common!(spec),
            Self::InfiniBand(spec) => common!(spec),
            Self::Ovs(spec) => common!(spec),
            Self::Bridge(spec) => common!(spec),
        }
    }
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.trim().is_empty())
}

/// The namespace that the NAD of a network is to be in. Only a network beside the operator may choose it: others could
/// reach into namespaces that are not their user's. Nothing is known of what an unreadable network wants.
pub fn target_namespace<'a>(
    id: &'a NetworkId,
    spec: Option<&'a NetworkSpec>,
    operator_namespace: &str,
) -> &'a str {
    let chosen = spec.and_then(|spec| spec.common().network_namespace);
    chosen.filter(|_| id.namespace == operator_namespace).unwrap_or(&id.namespace)
}

/// A NAD as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nad {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The annotation [`vfleet_api::keys::NAD_RESOURCE`].
    pub resource: String,
    /// The annotation [`vfleet_api::keys::NAD_OWNER`].
    pub owner: String,
    /// Its `spec.config`, to the byte.
    pub config: String,
    /// Whether it goes with its network by itself: an owner reference, which cannot point to another namespace.
    pub owner_reference: bool,
}

/// The NAD of the network `id`, or all that is wrong with it. `resource_prefix` stands before the names of resources, as
/// in `openshift.io`.
pub fn plan_nad(
    id: &NetworkId,
    spec: &NetworkSpec,
    resource_prefix: &str,
    operator_namespace: &str,
) -> Result<Nad, Vec<NetworkFault>> {
    let config = checked_config(id, spec, operator_namespace)
        .map_err(|faults| faults.into_iter().map(|(_, fault)| fault).collect::<Vec<_>>())?;
    let namespace = target_namespace(id, Some(spec), operator_namespace);
    Ok(Nad {
        namespace: namespace.to_owned(),
        name: id.name.clone(),
        resource: format!("{resource_prefix}/{}", spec.resource_name()),
        owner: id.to_string(),
        config,
        owner_reference: namespace == id.namespace,
    })
}

/// All that is wrong with the network `id`, each with its field.
pub fn faults(id: &NetworkId, spec: &NetworkSpec, operator_namespace: &str) -> Vec<(String, NetworkFault)> {
    checked_config(id, spec, operator_namespace).err().unwrap_or_default()
}

fn checked_config(
    id: &NetworkId,
    spec: &NetworkSpec,
    operator_namespace: &str,
) -> Result<String, Vec<(String, NetworkFault)>> {
    let common = spec.common();
    let faults = check::faults(id, spec, &common, operator_namespace);
    if !faults.is_empty() {
        return Err(faults);
    }
    config::render(&id.name, spec, &common).map_err(|fault| vec![("spec".to_owned(), fault)])
}
