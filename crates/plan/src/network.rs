//! NetworkAttachmentDefinitions (NADs) of networks: the objects that pods name and Multus reads.

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
    NadFacts, NetworkDecision, NetworkEnvironment, NetworkFacts, NetworkStep, OwnerReferenceFacts,
    TargetNamespace, decide, last_nad_namespace, reasons,
};
pub use fault::NetworkFault;
pub(crate) use vlans::{find_bad_ranges, is_vlan_unused};

const GROUP: &str = "sriovnetwork.openshift.io";

/// Kind of a network.
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
    /// Returns the name of the kind in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sriov => "SriovNetwork",
            Self::InfiniBand => "SriovIBNetwork",
            Self::Ovs => "OVSNetwork",
            Self::Bridge => "BridgeNetwork",
        }
    }
}

/// Identity of a network. Displayed as in the owner annotation of its NAD.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkId {
    /// Kind of the network.
    pub kind: NetworkKind,
    /// Namespace of the network.
    pub namespace: String,
    /// Name of the network and of its NAD.
    pub name: String,
}

impl fmt::Display for NetworkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{GROUP}/{}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// Spec of a network of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkSpec {
    /// Spec of a SriovNetwork.
    Sriov(SriovNetworkSpec),
    /// Spec of a SriovIBNetwork.
    InfiniBand(SriovIBNetworkSpec),
    /// Spec of an OVSNetwork.
    Ovs(OVSNetworkSpec),
    /// Spec of a BridgeNetwork.
    Bridge(BridgeNetworkSpec),
}

/// Fields that all kinds have. Blank strings count as absent.
struct CommonFields<'a> {
    network_namespace: Option<&'a str>,
    resource_name: &'a str,
    capabilities: Option<&'a str>,
    ipam: Option<&'a str>,
    meta_plugins: Option<&'a str>,
}

/// Reads the common fields: the four kinds have them under the same names, but share no type.
macro_rules! common {
    ($spec:expr) => {
        CommonFields {
            network_namespace: non_blank($spec.network_namespace.as_deref()),
            resource_name: &$spec.resource_name,
            capabilities: non_blank($spec.capabilities.as_deref()),
            ipam: non_blank($spec.ipam.as_deref()),
            meta_plugins: non_blank($spec.meta_plugins.as_deref()),
        }
    };
}

impl NetworkSpec {
    /// Returns the name of the resource, without its prefix.
    pub fn resource_name(&self) -> &str {
        self.common().resource_name
    }

    fn common(&self) -> CommonFields<'_> {
        match self {
            Self::Sriov(spec) => common!(spec),
            Self::InfiniBand(spec) => common!(spec),
            Self::Ovs(spec) => common!(spec),
            Self::Bridge(spec) => common!(spec),
        }
    }
}

fn non_blank(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.trim().is_empty())
}

/// Returns the desired namespace of the NAD of a network. Only networks in the namespace of the operator may choose it:
/// otherwise users could write into namespaces of others. `spec` is `None` for an unreadable network.
pub fn target_namespace<'a>(
    id: &'a NetworkId,
    spec: Option<&'a NetworkSpec>,
    operator_namespace: &str,
) -> &'a str {
    let chosen = spec.and_then(|spec| spec.common().network_namespace);
    chosen.filter(|_| id.namespace == operator_namespace).unwrap_or(&id.namespace)
}

/// Desired state of a NAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredNad {
    /// Namespace of the NAD.
    pub namespace: String,
    /// Name of the NAD.
    pub name: String,
    /// Annotation [`vfleet_api::keys::NAD_RESOURCE`].
    pub resource: String,
    /// Annotation [`vfleet_api::keys::NAD_OWNER`].
    pub owner: String,
    /// Exact `spec.config`.
    pub config: String,
    /// The NAD has an owner reference to its network, so that it is deleted with it. Not possible across namespaces.
    pub owner_reference: bool,
}

/// Returns the desired NAD of the network `id`, or all faults of the network. `resource_prefix` is the prefix of
/// resource names, such as `openshift.io`.
pub fn plan_nad(
    id: &NetworkId,
    spec: &NetworkSpec,
    resource_prefix: &str,
    operator_namespace: &str,
) -> Result<DesiredNad, Vec<NetworkFault>> {
    let config = check_and_render(id, spec, operator_namespace)
        .map_err(|faults| faults.into_iter().map(|(_, fault)| fault).collect::<Vec<_>>())?;
    let namespace = target_namespace(id, Some(spec), operator_namespace);
    Ok(DesiredNad {
        namespace: namespace.to_owned(),
        name: id.name.clone(),
        resource: format!("{resource_prefix}/{}", spec.resource_name()),
        owner: id.to_string(),
        config,
        owner_reference: namespace == id.namespace,
    })
}

/// Returns the faults of the network `id`, each with its field.
pub fn find_faults(
    id: &NetworkId,
    spec: &NetworkSpec,
    operator_namespace: &str,
) -> Vec<(String, NetworkFault)> {
    check_and_render(id, spec, operator_namespace).err().unwrap_or_default()
}

fn check_and_render(
    id: &NetworkId,
    spec: &NetworkSpec,
    operator_namespace: &str,
) -> Result<String, Vec<(String, NetworkFault)>> {
    let common = spec.common();
    let faults = check::find_faults(id, spec, &common, operator_namespace);
    if !faults.is_empty() {
        return Err(faults);
    }
    config::render(&id.name, spec, &common).map_err(|fault| vec![("spec".to_owned(), fault)])
}
