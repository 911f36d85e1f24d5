//! Faults of networks.

use thiserror::Error;

use crate::admission::NameFault;
use crate::prelude::*;

/// Reason why no NAD can be created for a network. The message contains the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetworkFault {
    /// Only networks in the namespace of the operator may set networkNamespace.
    #[error(
        "networkNamespace may only be set on networks in {operator_namespace}, the operator's namespace: remove it, or \
         create the network there"
    )]
    NamespaceNotAllowed {
        /// Namespace of the operator.
        operator_namespace: String,
    },
    /// resourceName is empty.
    #[error("resourceName is empty: set it to the resourceName of a policy")]
    NoResource,
    /// resourceName is not a valid resource name.
    #[error(transparent)]
    ResourceName(NameFault),
    /// vlanQoS without vlan, which the CNI plugin rejects.
    #[error("vlanQoS needs a VLAN: set vlan, or vlanQoS to 0")]
    QosWithoutVlan,
    /// vlanProto without vlan, which the CNI plugin rejects.
    #[error("vlanProto 802.1ad needs a VLAN: set vlan, or remove vlanProto")]
    ProtocolWithoutVlan,
    /// VLAN that a Linux bridge does not support. The CNI plugin rejects it.
    #[error("a Linux bridge has no VLAN {id} here: use a VLAN from {lowest} to {highest}")]
    VlanOutOfRange {
        /// Requested VLAN.
        id: i64,
        /// Lowest supported VLAN.
        lowest: i64,
        /// Highest supported VLAN.
        highest: i64,
    },
    /// Trunk without VLANs, which the CNI plugin rejects.
    #[error("the trunk names no VLAN: set id, or minID and maxID")]
    EmptyTrunk,
    /// Capability with a value that is no boolean, which readers of the configuration reject.
    #[error("capability {name} must be true or false")]
    Capability {
        /// Name of the capability.
        name: String,
    },
    /// Chained plugin without a type, which the runtime cannot start.
    #[error("plugin {number} of metaPlugins has no type: set type to the name of its program")]
    PluginWithoutType {
        /// Position in metaPlugins, from 1.
        number: usize,
    },
    /// Field with invalid JSON.
    #[error("{field} must be {expected}, but at line {line}, column {column}: {problem}")]
    Json {
        /// Name of the field in the API.
        field: &'static str,
        /// Expected format, with an example.
        expected: &'static str,
        /// Error of the parser.
        problem: String,
        /// Line of the error, from 1.
        line: usize,
        /// Column of the error, from 1.
        column: usize,
    },
    /// Configuration that does not fit into one API object.
    #[error(
        "the configuration would be longer than {limit} bytes: shorten ipam, capabilities or metaPlugins"
    )]
    TooLong {
        /// Maximum length in bytes.
        limit: usize,
    },
    /// Network that this version cannot read.
    #[error("the network cannot be read: {problem}")]
    Unreadable {
        /// Error of the parser.
        problem: String,
    },
}

impl NetworkFault {
    /// Returns the reason for conditions, Events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NamespaceNotAllowed { .. } => "NamespaceNotAllowed",
            Self::NoResource | Self::ResourceName(_) => "InvalidResourceName",
            Self::QosWithoutVlan | Self::ProtocolWithoutVlan => "NoVlan",
            Self::VlanOutOfRange { .. } => "InvalidVlan",
            Self::EmptyTrunk => "EmptyTrunk",
            Self::Capability { .. } => "InvalidCapability",
            Self::PluginWithoutType { .. } => "NoPluginType",
            Self::Json { .. } => "InvalidJson",
            Self::TooLong { .. } => "TooLong",
            Self::Unreadable { .. } => "Unreadable",
        }
    }
}
