//! Configuration of the plugin `rdma`.

use vfleet_api::PciAddress;

use super::fields::read_device;
use super::log::{LogLevel, LogSettings, read_log};
use super::network::NetworkConfig;
use crate::cni::protocol::{CniArgs, CniError};

/// Configuration of the plugin `rdma`, which follows another plugin in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaConfig {
    /// PCI address of the device, `deviceID`.
    pub device: PciAddress,
    /// Log; `args.cni.debug` sets the level.
    pub log: LogSettings,
}

impl RdmaConfig {
    /// Parses the keys of the plugin.
    pub fn parse(network: &NetworkConfig, _args: &CniArgs) -> Result<Self, CniError> {
        if network.previous.is_none() {
            return Err(CniError::invalid_config("prevResult", "is missing")
                .with_details("the plugin rdma follows another one, such as sriov, in a list of plugins"));
        }
        let root = network.root();
        let device = read_device(&root)?;
        let mut log = read_log(&root)?;
        let args = root.section("args")?.map(|args| args.section("cni")).transpose()?.flatten();
        if args.map(|args| args.flag("debug")).transpose()?.flatten() == Some(true) {
            log.level = LogLevel::Debug;
        }
        Ok(Self { device, log })
    }
}

#[cfg(test)]
mod tests;
