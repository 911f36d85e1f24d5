//! Enumerations in the specs of networks.

use serde::{Deserialize, Serialize};

/// VLAN protocol, in upper or lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum VlanProto {
    #[serde(rename = "802.1q")]
    Ieee8021qLower,
    #[serde(rename = "802.1Q")]
    Ieee8021Q,
    #[serde(rename = "802.1ad")]
    Ieee8021adLower,
    #[serde(rename = "802.1AD")]
    Ieee8021AD,
}

impl VlanProto {
    /// Returns the value as written in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ieee8021qLower => "802.1q",
            Self::Ieee8021Q => "802.1Q",
            Self::Ieee8021adLower => "802.1ad",
            Self::Ieee8021AD => "802.1AD",
        }
    }
}

/// Switch: `on` or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnOff {
    On,
    Off,
}

impl OnOff {
    /// Returns the value as written in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Link state of a VF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VfLinkState {
    Auto,
    Enable,
    Disable,
}

impl VfLinkState {
    /// Returns the value as written in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

/// Log level of a CNI plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CniLogLevel {
    Panic,
    Error,
    Warning,
    Info,
    Debug,
    #[serde(rename = "")]
    Unset,
}

impl CniLogLevel {
    /// Returns the value as written in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Unset => "",
        }
    }
}
