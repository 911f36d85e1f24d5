//! Settings of a VF that its PF stores.

use serde::{Deserialize, Serialize};
use vfleet_api::{Guid, MacAddr};

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
