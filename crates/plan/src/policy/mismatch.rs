//! Reasons why a policy does not select a node or a PF.

use core::fmt;

use crate::prelude::*;

/// Reason why a policy does not select a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeMismatch {
    /// The policy is named `default`: a leftover of old installations.
    Ignored,
    /// The node lacks a label of nodeSelector.
    Label {
        /// Key of the label.
        key: String,
        /// Value in nodeSelector.
        expected: String,
        /// Value on the node, if it has the label.
        found: Option<String>,
    },
}

impl fmt::Display for NodeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignored => {
                f.write_str("policies named default are ignored: create the policy under another name")
            }
            Self::Label { key, expected, found: Some(found) } => {
                write!(f, "nodeSelector needs label {key}={expected}, but the node has {key}={found}")
            }
            Self::Label { key, expected, found: None } => {
                write!(f, "nodeSelector needs label {key}={expected}, but the node has no label {key}")
            }
        }
    }
}

/// Reason why a policy does not select a PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PfMismatch {
    /// nicSelector is empty.
    EmptySelector,
    /// `vendor` differs.
    Vendor {
        /// Vendor ID in nicSelector.
        expected: String,
        /// Vendor ID of the PF.
        found: Option<String>,
    },
    /// `deviceID` differs.
    DeviceId {
        /// Device ID in nicSelector.
        expected: String,
        /// Device ID of the PF.
        found: Option<String>,
    },
    /// `rootDevices` does not contain the PCI address.
    RootDevices {
        /// PCI addresses in nicSelector.
        expected: Vec<String>,
        /// PCI address of the PF.
        found: String,
    },
    /// `pfNames` contains no name of the PF.
    PfNames {
        /// Names in nicSelector, with VF ranges.
        expected: Vec<String>,
        /// Names of the PF.
        found: Vec<String>,
    },
    /// `netFilter` differs.
    NetFilter {
        /// Network in nicSelector.
        expected: String,
        /// Network of the PF.
        found: Option<String>,
    },
    /// numVfs is 0.
    NoVfs,
}

impl fmt::Display for PfMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptySelector => f.write_str("nicSelector is empty and selects no PF"),
            Self::Vendor { expected, found } => write_field(f, "vendor", expected, found.as_deref()),
            Self::DeviceId { expected, found } => write_field(f, "deviceID", expected, found.as_deref()),
            Self::RootDevices { expected, found } => {
                write_field(f, "rootDevices", &expected.join(", "), Some(found))
            }
            Self::PfNames { expected, found } => {
                let names = Some(found.join(", ")).filter(|names| !names.is_empty());
                write_field(f, "pfNames", &expected.join(", "), names.as_deref())
            }
            Self::NetFilter { expected, found } => write_field(f, "netFilter", expected, found.as_deref()),
            Self::NoVfs => f.write_str("numVfs is 0: the policy requests no VFs"),
        }
    }
}

fn write_field(f: &mut fmt::Formatter<'_>, name: &str, expected: &str, found: Option<&str>) -> fmt::Result {
    write!(f, "nicSelector.{name} is {expected}, but the PF has ")?;
    f.write_str(found.unwrap_or("none"))
}
