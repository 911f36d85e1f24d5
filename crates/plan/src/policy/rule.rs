//! Why a policy does not select a node, or a PF.

use core::fmt;

use crate::prelude::*;

/// Why a policy does not select a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeRule {
    /// It has the name of a left-over of old installations.
    Ignored,
    /// A label of its nodeSelector is not the node's.
    Label {
        /// The label's key.
        key: String,
        /// The value that the policy wants.
        wanted: String,
        /// The node's value, if it has the label at all.
        found: Option<String>,
    },
}

impl fmt::Display for NodeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignored => f.write_str("a policy named default selects nothing: give it another name"),
            Self::Label { key, wanted, found: Some(found) } => {
                write!(f, "nodeSelector wants label {key}={wanted}, the node has {key}={found}")
            }
            Self::Label { key, wanted, found: None } => {
                write!(f, "nodeSelector wants label {key}={wanted}, the node has no such label")
            }
        }
    }
}

/// Why a policy does not select a PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PfRule {
    /// Nothing is given in its nicSelector.
    EmptySelector,
    /// Another vendor is meant.
    Vendor {
        /// The vendor's id that is meant.
        wanted: String,
        /// The card's.
        found: Option<String>,
    },
    /// Another kind of card is meant.
    DeviceId {
        /// The device id that is meant.
        wanted: String,
        /// The card's.
        found: Option<String>,
    },
    /// Other PCI addresses are meant.
    RootDevices {
        /// The addresses that are meant.
        wanted: Vec<String>,
        /// The card's.
        found: String,
    },
    /// Other names are meant.
    PfNames {
        /// The names that are meant, with their ranges.
        wanted: Vec<String>,
        /// The PF's names.
        found: Vec<String>,
    },
    /// Another network is meant.
    NetFilter {
        /// The network that is meant.
        wanted: String,
        /// The card's.
        found: Option<String>,
    },
    /// No VFs are asked for.
    NoVfs,
}

impl fmt::Display for PfRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptySelector => f.write_str("nicSelector is empty, and so selects no PF"),
            Self::Vendor { wanted, found } => field(f, "vendor", wanted, found.as_deref()),
            Self::DeviceId { wanted, found } => field(f, "deviceID", wanted, found.as_deref()),
            Self::RootDevices { wanted, found } => field(f, "rootDevices", &wanted.join(", "), Some(found)),
            Self::PfNames { wanted, found } => {
                let names = Some(found.join(", ")).filter(|names| !names.is_empty());
                field(f, "pfNames", &wanted.join(", "), names.as_deref())
            }
            Self::NetFilter { wanted, found } => field(f, "netFilter", wanted, found.as_deref()),
            Self::NoVfs => f.write_str("numVfs is 0: the policy asks for no VFs"),
        }
    }
}

fn field(f: &mut fmt::Formatter<'_>, name: &str, wanted: &str, found: Option<&str>) -> fmt::Result {
    write!(f, "nicSelector.{name} wants {wanted}, ")?;
    match found {
        Some(found) => write!(f, "this PF has {found}"),
        None => f.write_str("this PF has none"),
    }
}
