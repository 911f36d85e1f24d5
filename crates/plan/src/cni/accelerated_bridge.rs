//! Decisions of the plugin `accelerated-bridge`.

mod add;
mod bridge;
mod check;
mod device_info;
mod release;
mod uplink;

pub use add::plan_add;
pub(super) use check::check;
pub(super) use release::{plan_device_release, plan_uplink_release};

use vfleet_api::PciAddress;

use super::config::AcceleratedBridgeConfig;
use super::facts::SwitchQuery;
use super::journal::{AcceleratedBridgeChanges, Plugin};

impl AcceleratedBridgeConfig {
    /// Returns the facts that an ADD needs.
    pub fn switch_query(&self) -> SwitchQuery {
        SwitchQuery {
            device: Some(self.device),
            with_linux_bridges: true,
            peers_of: self.sets_uplink_vlans.then_some(Plugin::AcceleratedBridge),
            device_info: self.device_info.clone(),
            ..SwitchQuery::default()
        }
    }
}

impl AcceleratedBridgeChanges {
    /// Returns the facts that a CHECK or a release needs.
    pub fn switch_query(&self, device: Option<PciAddress>) -> SwitchQuery {
        SwitchQuery {
            device,
            with_linux_bridges: true,
            interfaces: self.uplink.iter().map(|uplink| uplink.name.clone()).collect(),
            peers_of: self.uplink.as_ref().map(|_| Plugin::AcceleratedBridge),
            ..SwitchQuery::default()
        }
    }
}
