//! What can be wrong with a network.

use thiserror::Error;

use crate::admission::NameFault;
use crate::prelude::*;

/// Why no NAD can be made of a network. Each says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetworkFault {
    /// Only networks beside the operator may reach into other namespaces.
    #[error(
        "networkNamespace may only be set on networks in {operator_namespace}, the operator's namespace; remove it, or \
         create the network there"
    )]
    NamespaceNotAllowed {
        /// The operator's namespace.
        operator_namespace: String,
    },
    /// It says of no resource that VFs are taken from it.
    #[error("name the resource that VFs are taken from: resourceName of a policy")]
    NoResource,
    /// No resource can be called so.
    #[error(transparent)]
    ResourceName(NameFault),
    /// A priority on frames that carry no tag. The CNI plugin refuses it.
    #[error("vlanQoS needs a VLAN: set vlan, or vlanQoS to 0")]
    QosWithoutVlan,
    /// A protocol for tags where there are none. The CNI plugin refuses it.
    #[error("vlanProto 802.1ad needs a VLAN: set vlan, or remove vlanProto")]
    ProtocolWithoutVlan,
    /// A VLAN that the bridge cannot have. The CNI plugin refuses it.
    #[error("a Linux bridge has no VLAN {id} here: give one from {lowest} to {highest}")]
    VlanBeyond {
        /// The one that is wanted.
        id: i64,
        /// The first that is possible.
        lowest: i64,
        /// The last that is possible.
        highest: i64,
    },
    /// A trunk that carries nothing. The CNI plugin refuses it.
    #[error("the trunk names no VLAN: give id, or minID and maxID")]
    EmptyTrunk,
    /// A capability is neither on nor off. Whoever reads the configuration refuses it.
    #[error("capability {name} must be true or false")]
    Capability {
        /// What it is called.
        name: String,
    },
    /// A plugin that nobody could start.
    #[error("plugin {number} of metaPlugins has no type: set type to the name of its program")]
    PluginWithoutType {
        /// Which one, from 1.
        number: usize,
    },
    /// A text is not the JSON that it should be.
    #[error("{field} must be {wanted}, but at line {line}, column {column}: {problem}")]
    Json {
        /// The field, as the API calls it.
        field: &'static str,
        /// What it should be, with an example.
        wanted: &'static str,
        /// What is wrong.
        problem: String,
        /// Where, from 1.
        line: usize,
        /// Where in that line, from 1.
        column: usize,
    },
    /// It would not fit into one object of the API.
    #[error(
        "its configuration would be longer than {limit} bytes; shorten ipam, capabilities or metaPlugins"
    )]
    TooLong {
        /// The most that is possible.
        limit: usize,
    },
    /// Another version of the API wrote it.
    #[error("it cannot be read: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
}

impl NetworkFault {
    /// Why, in one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NamespaceNotAllowed { .. } => "NamespaceNotAllowed",
            Self::NoResource | Self::ResourceName(_) => "InvalidResourceName",
            Self::QosWithoutVlan | Self::ProtocolWithoutVlan => "NoVlan",
            Self::VlanBeyond { .. } => "InvalidVlan",
            Self::EmptyTrunk => "EmptyTrunk",
            Self::Capability { .. } => "InvalidCapability",
            Self::PluginWithoutType { .. } => "NoPluginType",
            Self::Json { .. } => "InvalidJson",
            Self::TooLong { .. } => "TooLong",
            Self::Unreadable { .. } => "Unreadable",
        }
    }
}
