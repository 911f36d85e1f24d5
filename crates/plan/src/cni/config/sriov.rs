//! Configuration of the plugin `sriov`.

use vfleet_api::{MacAddr, PciAddress};

use super::fields::{parse_mac, read_device, read_link_state, read_switch};
use super::log::{LogSettings, read_log};
use super::network::NetworkConfig;
use super::vlan::read_vlan;
use crate::cni::facts::VfSettings;
use crate::cni::protocol::json::{KeyFault, Section};
use crate::cni::protocol::{CniArgs, CniError, ErrorCode};
use crate::prelude::*;

/// Lowest MTU of an interface with IPv4.
const MIN_MTU: u32 = 68;
/// Highest MTU that the kernel allows for any interface.
const MAX_MTU: u32 = 65535;

/// Configuration of the plugin `sriov`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SriovConfig {
    /// PCI address of the VF, `deviceID`.
    pub device: PciAddress,
    /// Settings to change, the administrative MAC included. Only what is configured is set.
    pub settings: VfSettings,
    /// Presence of `min_tx_rate` and of `max_tx_rate`. The kernel sets both at once: the other one has to be read.
    pub has_rate: (bool, bool),
    /// MAC: `runtimeConfig.mac`, else `MAC` of `CNI_ARGS`, else `mac`.
    pub mac: Option<MacAddr>,
    /// MTU of the interface; the Go plugin has no such key.
    pub mtu: Option<u32>,
    /// Log.
    pub log: LogSettings,
}

impl SriovConfig {
    /// Returns the configuration of a VF that gets only a MAC and an MTU.
    pub(in crate::cni) fn of_mac_and_mtu(device: PciAddress, mac: Option<MacAddr>, mtu: Option<u32>) -> Self {
        Self {
            device,
            settings: VfSettings { mac, ..VfSettings::default() },
            has_rate: (false, false),
            mac,
            mtu,
            log: LogSettings::default(),
        }
    }

    /// Parses the keys of the plugin.
    pub fn parse(network: &NetworkConfig, args: &CniArgs) -> Result<Self, CniError> {
        let root = network.root();
        let device = read_device(&root)?;
        let vlan = read_vlan(&root)?;
        let mac = read_mac(&root, args)?;
        let min_tx_rate = root.integer("min_tx_rate", 0..=u32::MAX)?;
        let max_tx_rate = root.integer("max_tx_rate", 0..=u32::MAX)?;
        check_rates(min_tx_rate, max_tx_rate)?;
        let settings = VfSettings {
            mac,
            vlan,
            spoof_check: read_switch(&root, "spoofchk")?,
            trust: read_switch(&root, "trust")?,
            min_tx_rate,
            max_tx_rate,
            link_state: read_link_state(&root)?,
            node_guid: None,
            port_guid: None,
        };
        Ok(Self {
            device,
            settings,
            has_rate: (min_tx_rate.is_some(), max_tx_rate.is_some()),
            mac,
            mtu: read_mtu(&root)?,
            log: read_log(&root)?,
        })
    }
}

/// Reads the MAC from the first source that has one.
pub(super) fn read_mac(root: &Section<'_>, args: &CniArgs) -> Result<Option<MacAddr>, CniError> {
    let runtime = root.section("runtimeConfig")?;
    let by_runtime = runtime.as_ref().map(|section| section.text("mac")).transpose()?.flatten();
    let by_network = root.text("mac")?;
    if let Some(text) = by_runtime {
        return parse_mac(text)
            .map(Some)
            .map_err(|fault| CniError::invalid_config("runtimeConfig.mac", fault));
    }
    if let Some(text) = &args.mac {
        let error = |fault| CniError::new(ErrorCode::InvalidEnvironment, format!("CNI_ARGS: MAC: {fault}"));
        return parse_mac(text).map(Some).map_err(error);
    }
    by_network.map(|text| parse_mac(text).map_err(|fault| CniError::invalid_config("mac", fault))).transpose()
}

/// Checks that the minimum rate is not above the maximum rate, of which 0 is no limit.
fn check_rates(min: Option<u32>, max: Option<u32>) -> Result<(), KeyFault> {
    match (min, max) {
        (Some(min), Some(max)) if max > 0 && min > max => {
            Err(KeyFault::new("min_tx_rate", format!("{min} is higher than max_tx_rate {max}")))
        }
        _ => Ok(()),
    }
}

/// Reads the MTU; 0 is the same as none.
pub(super) fn read_mtu(root: &Section<'_>) -> Result<Option<u32>, KeyFault> {
    match root.integer("mtu", 0..=MAX_MTU)? {
        None | Some(0) => Ok(None),
        Some(mtu) if mtu < MIN_MTU => {
            Err(KeyFault::new("mtu", format!("{mtu} is not in the range {MIN_MTU} to {MAX_MTU}")))
        }
        Some(mtu) => Ok(Some(mtu)),
    }
}

#[cfg(test)]
mod tests;
