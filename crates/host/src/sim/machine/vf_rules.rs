//! Rules of drivers for the settings of VFs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Rules of the driver of a PF for the settings of its VFs. By default it supports everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VfRules {
    /// Settings that the driver refuses.
    pub refuses: BTreeSet<VfSetting>,
    /// A VF that is bound takes the administrative MAC over at once, as with ice and i40e. Else at the next bind.
    pub takes_mac_at_once: bool,
    /// A VF cannot change its MAC itself after the PF has set one, unless it is trusted.
    pub keeps_admin_mac: bool,
    /// Rates cannot be above the speed of the PF's link, which is 0 while it is down.
    pub rates_need_link: bool,
}

/// Setting of a VF that a driver may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VfSetting {
    /// Administrative MAC.
    Mac,
    /// VLAN.
    Vlan,
    /// Protocol 802.1ad of the VLAN.
    Ieee8021ad,
    /// Minimum rate.
    MinTxRate,
    /// Maximum rate.
    MaxTxRate,
    /// Spoof checking.
    SpoofCheck,
    /// Trust.
    Trust,
    /// Link state.
    LinkState,
}

impl VfRules {
    /// Returns the rules of a driver.
    pub(in crate::sim) fn of_driver(driver: Option<&str>) -> Self {
        if driver != Some("igb") {
            return Self::default();
        }
        Self {
            refuses: [VfSetting::Ieee8021ad, VfSetting::MinTxRate, VfSetting::LinkState].into(),
            takes_mac_at_once: false,
            keeps_admin_mac: true,
            rates_need_link: true,
        }
    }
}
