//! Settings of a VF that its PF stores.

use core::fmt;

use serde::{Deserialize, Serialize};
use vfleet_api::{Guid, MacAddr};

use crate::prelude::*;

/// Settings of a VF. As a fact, `None` means that the driver does not report the setting; as a change, that the setting
/// stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VfSettings {
    /// Administrative MAC; zero if none was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VfVlan>,
    /// Spoof checking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spoof_check: Option<bool>,
    /// Trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<bool>,
    /// Minimum rate in Mbit/s; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tx_rate: Option<u32>,
    /// Maximum rate in Mbit/s; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tx_rate: Option<u32>,
    /// Link state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<LinkState>,
    /// Node GUID, on InfiniBand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_guid: Option<Guid>,
    /// Port GUID, on InfiniBand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_guid: Option<Guid>,
}

impl VfSettings {
    /// Returns whether no setting is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the settings that differ from `current`. Rates are kept together, since the kernel sets both in one request.
    #[must_use]
    pub fn differing_from(&self, current: &Self) -> Self {
        let has_other_rate = self.min_tx_rate.is_some_and(|rate| current.min_tx_rate != Some(rate))
            || self.max_tx_rate.is_some_and(|rate| current.max_tx_rate != Some(rate));
        Self {
            mac: differing(self.mac, current.mac),
            vlan: differing(self.vlan, current.vlan),
            spoof_check: differing(self.spoof_check, current.spoof_check),
            trust: differing(self.trust, current.trust),
            min_tx_rate: self.min_tx_rate.filter(|_| has_other_rate),
            max_tx_rate: self.max_tx_rate.filter(|_| has_other_rate),
            link_state: differing(self.link_state, current.link_state),
            node_guid: differing(self.node_guid, current.node_guid),
            port_guid: differing(self.port_guid, current.port_guid),
        }
    }
}

impl VfSettings {
    /// Returns the settings that are given, by the keys of network configurations.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let on_off = |on: bool| if on { "on" } else { "off" };
        let fields = [
            ("vlan", self.vlan.map(|vlan| vlan.to_string())),
            ("mac", self.mac.map(|mac| mac.to_string())),
            ("min_tx_rate", self.min_tx_rate.map(|rate| rate.to_string())),
            ("max_tx_rate", self.max_tx_rate.map(|rate| rate.to_string())),
            ("spoofchk", self.spoof_check.map(|on| on_off(on).to_owned())),
            ("trust", self.trust.map(|on| on_off(on).to_owned())),
            ("link_state", self.link_state.map(|state| state.to_string())),
            ("node GUID", self.node_guid.map(|guid| guid.to_string())),
            ("port GUID", self.port_guid.map(|guid| guid.to_string())),
        ];
        fields.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

impl fmt::Display for VfSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.fields().into_iter().enumerate() {
            write!(f, "{}{key} {value}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for VfVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} qos {} proto {}", self.id, self.qos, self.protocol)
    }
}

impl fmt::Display for VlanProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ieee8021q => "802.1q",
            Self::Ieee8021ad => "802.1ad",
        })
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Enable => "enable",
            Self::Disable => "disable",
        })
    }
}

fn differing<T: PartialEq + Copy>(requested: Option<T>, current: Option<T>) -> Option<T> {
    if requested == current { None } else { requested }
}

/// VLAN of a VF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VfVlan {
    /// VLAN ID; 0 for none.
    pub id: u16,
    /// Priority.
    pub qos: u8,
    /// Protocol of the tag.
    pub protocol: VlanProtocol,
}

/// Protocol of a VLAN tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VlanProtocol {
    /// 802.1Q.
    #[default]
    #[serde(rename = "802.1q")]
    Ieee8021q,
    /// 802.1ad.
    #[serde(rename = "802.1ad")]
    Ieee8021ad,
}

impl VlanProtocol {
    /// Returns the EtherType.
    pub const fn ether_type(self) -> u16 {
        match self {
            Self::Ieee8021q => 0x8100,
            Self::Ieee8021ad => 0x88a8,
        }
    }
}

/// Link state that the PF forces on a VF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// The state of the PF's link.
    Auto,
    /// Always up.
    Enable,
    /// Always down.
    Disable,
}
