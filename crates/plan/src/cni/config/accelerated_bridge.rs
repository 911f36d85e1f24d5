//! Configuration of the plugin `accelerated-bridge`.

use vfleet_api::{MacAddr, PciAddress};

use super::fields::read_device;
use super::log::{LogLevel, LogSettings, read_log};
use super::network::NetworkConfig;
use super::sriov::{read_mac, read_mtu};
use super::trunk::read_trunk;
use crate::cni::protocol::json::Section;
use crate::cni::protocol::{CniArgs, CniError};
use crate::prelude::*;

/// Highest VLAN of a Linux bridge.
const MAX_VLAN: u16 = 4094;

/// Configuration of the plugin `accelerated-bridge`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceleratedBridgeConfig {
    /// PCI address of the VF, `deviceID`.
    pub device: PciAddress,
    /// Linux bridge.
    pub bridge: BridgeChoice,
    /// VLAN of frames without a tag; 0 for none.
    pub vlan: u16,
    /// VLANs of frames with a tag.
    pub trunk: BTreeSet<u16>,
    /// The VLANs are added to the uplink of the bridge as well.
    pub sets_uplink_vlans: bool,
    /// MAC in the pod: `runtimeConfig.mac`, else `MAC` of `CNI_ARGS`, else `mac`.
    pub mac: Option<MacAddr>,
    /// MTU of the VF and of its representor.
    pub mtu: Option<u32>,
    /// Device-info file, in which the representor is noted.
    pub device_info: Option<String>,
    /// Log; `debug` sets the level.
    pub log: LogSettings,
}

/// Linux bridge of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgeChoice {
    /// The bridge that has an uplink of the VF's card.
    Found,
    /// The same, which must be one of these.
    FoundAmong(Vec<String>),
    /// This one, whatever its uplink is.
    Named(String),
}

impl AcceleratedBridgeConfig {
    /// Parses the keys of the plugin.
    pub fn parse(network: &NetworkConfig, args: &CniArgs) -> Result<Self, CniError> {
        let root = network.root();
        let runtime = root.section("runtimeConfig")?;
        let device_info = runtime.map(|runtime| runtime.text("CNIDeviceInfoFile")).transpose()?.flatten();
        let mut log = read_log(&root)?;
        if root.flag("debug")? == Some(true) {
            log.level = LogLevel::Debug;
        }
        Ok(Self {
            device: read_device(&root)?,
            bridge: read_bridge(&root)?,
            vlan: root.integer("vlan", 0..=MAX_VLAN)?.unwrap_or(0),
            trunk: read_trunk(&root, 1..=MAX_VLAN)?.unwrap_or_default(),
            sets_uplink_vlans: root.flag("setUplinkVlan")?.unwrap_or_default(),
            mac: read_mac(&root, args)?,
            mtu: read_mtu(&root)?,
            device_info: device_info.map(ToOwned::to_owned),
            log,
        })
    }
}

/// Reads one name, or several separated by commas. Without one the Go plugin takes `cni0`, which is the bridge of another
/// plugin and has no uplink.
fn read_bridge(root: &Section<'_>) -> Result<BridgeChoice, CniError> {
    let Some(text) = root.text("bridge")? else { return Ok(BridgeChoice::Found) };
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(CniError::invalid_config("bridge", format!("{text:?} has an empty name"))
            .with_details("separate names by single commas, or leave bridge out to find the bridge"));
    }
    match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok(BridgeChoice::Named(name)),
        Err(names) => Ok(BridgeChoice::FoundAmong(names)),
    }
}

#[cfg(test)]
mod tests;
