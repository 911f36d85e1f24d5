//! Configuration of the plugin `ovs`.

mod flat_file;

use core::time::Duration;

use vfleet_api::{MacAddr, PciAddress};

use super::fields::{parse_mac, read_device};
use super::log::{LogSettings, read_log};
use super::network::NetworkConfig;
use super::sriov::read_mtu;
use super::trunk::read_trunk;
use crate::cni::facts::OvsSocket;
use crate::cni::protocol::json::{KeyFault, Section};
use crate::cni::protocol::{CniArgs, CniError, ErrorCode};
use crate::cni::step::OvsVlans;
use crate::prelude::*;

pub use flat_file::{OvsFlatFile, flat_file_paths};

/// Bridge of ports that OVN configures.
const OVN_BRIDGE: &str = "br-int";
/// Highest VLAN that the database of Open vSwitch accepts. 0 is for frames with a priority and no VLAN.
const MAX_VLAN: u16 = 4095;
/// Highest number of an OpenFlow port that can be requested.
const MAX_OFPORT: u32 = 65279;
/// Number of times that the Go plugin reads the state of the link.
const RETRIES: u32 = 5;
/// Time between them in milliseconds.
const INTERVAL: u32 = 600;
/// Highest values of both.
const MAX_RETRIES: u32 = 1000;
const MAX_INTERVAL: u32 = 60_000;

/// Configuration of the plugin `ovs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OvsConfig {
    /// PCI address of a VF, `deviceID`; `None` for a veth pair.
    pub device: Option<PciAddress>,
    /// Bridge; `None` for the bridge that has an uplink of the VF's card.
    pub bridge: Option<String>,
    /// VLANs of the port: `trunk`, else `vlan`.
    pub vlans: OvsVlans,
    /// MTU of both ends.
    pub mtu: Option<u32>,
    /// MAC in the pod: `runtimeConfig.mac`, else `MAC` of `CNI_ARGS`, else `args.cni.mac`.
    pub mac: Option<MacAddr>,
    /// Logical port of OVN: `OvnPort` of `CNI_ARGS`, else `args.cni.ovnPort`.
    pub ovn_port: Option<String>,
    /// Requested number of the OpenFlow port.
    pub ofport_request: Option<u32>,
    /// Type of the interface in Open vSwitch.
    pub interface_type: Option<String>,
    /// Database of Open vSwitch.
    pub socket: OvsSocket,
    /// Limit for the link of the port to come up before addresses are used.
    pub link_limit: Duration,
    /// Device-info file, which says whether the device is a vDPA one.
    pub device_info: Option<String>,
    /// Log.
    pub log: LogSettings,
}

impl OvsConfig {
    /// Parses the keys of the plugin. Those that are not set are taken from `file`.
    pub fn parse(
        network: &NetworkConfig,
        args: &CniArgs,
        file: Option<&OvsFlatFile>,
    ) -> Result<Self, CniError> {
        let root = &network.root();
        let keys = OvsKeys { root, file };
        let device = root.text("deviceID")?.map(|_| read_device(root)).transpose()?;
        let pod = pod_args(root)?;
        let ovn_port = match &args.ovn_port {
            Some(port) => Some(port.clone()),
            None => pod.as_ref().map(|pod| pod.text("ovnPort")).transpose()?.flatten().map(ToOwned::to_owned),
        };
        let bridge = keys.text("bridge")?.or_else(|| ovn_port.as_ref().map(|_| OVN_BRIDGE.to_owned()));
        if bridge.is_none() && device.is_none() {
            return Err(CniError::invalid_config("bridge", "is missing").with_details(
                "name a bridge of Open vSwitch, or request a device of its uplink, by which it is found",
            ));
        }
        let runtime = root.section("runtimeConfig")?;
        let device_info = runtime.as_ref().map(|runtime| runtime.text("CNIDeviceInfoFile")).transpose()?;
        Ok(Self {
            device,
            bridge,
            vlans: keys.vlans()?,
            mtu: keys.first(read_mtu)?,
            mac: read_mac(runtime.as_ref(), args, pod.as_ref())?,
            ovn_port,
            ofport_request: keys.positive("ofport_request", MAX_OFPORT)?,
            interface_type: keys.text("interface_type")?,
            socket: keys.socket()?,
            link_limit: keys.link_limit()?,
            device_info: device_info.flatten().map(ToOwned::to_owned),
            log: read_log(root)?,
        })
    }
}

/// Reads the database of a network whose other keys do not matter.
pub fn read_ovs_socket(network: &NetworkConfig, file: Option<&OvsFlatFile>) -> Result<OvsSocket, CniError> {
    Ok(OvsKeys { root: &network.root(), file }.socket()?)
}

/// Reads the bridge of a network whose other keys do not matter.
pub(super) fn read_bridge(
    root: &Section<'_>,
    file: Option<&OvsFlatFile>,
) -> Result<Option<String>, CniError> {
    Ok(OvsKeys { root, file }.text("bridge")?)
}

/// Keys of the network, and those of a file for keys that the network leaves empty.
#[derive(Clone, Copy)]
struct OvsKeys<'a> {
    root: &'a Section<'a>,
    file: Option<&'a OvsFlatFile>,
}

impl OvsKeys<'_> {
    /// Reads a value from the network, else from the file.
    fn first<T>(
        &self,
        read: impl Fn(&Section<'_>) -> Result<Option<T>, KeyFault>,
    ) -> Result<Option<T>, KeyFault> {
        match (read(self.root)?, self.file) {
            (None, Some(file)) => file.read(read),
            (value, _) => Ok(value),
        }
    }

    fn text(&self, key: &str) -> Result<Option<String>, KeyFault> {
        self.first(|section| Ok(section.text(key)?.map(ToOwned::to_owned)))
    }

    /// Reads a number of which 0 is the same as none.
    fn positive(&self, key: &str, highest: u32) -> Result<Option<u32>, KeyFault> {
        self.first(|section| Ok(section.integer(key, 0..=highest)?.filter(|number| *number > 0)))
    }

    /// Reads `trunk`, else `vlan`. Without both the port is a trunk of all VLANs. An explicit VLAN 0 is one.
    fn vlans(&self) -> Result<OvsVlans, KeyFault> {
        let vlan = self.first(|section| section.integer("vlan", 0..=MAX_VLAN))?;
        let trunk = self.first(|section| read_trunk(section, 0..=MAX_VLAN))?;
        Ok(match (trunk, vlan) {
            (Some(trunk), _) => OvsVlans::Trunk(trunk),
            (None, Some(vlan)) => OvsVlans::Access(vlan),
            (None, None) => OvsVlans::default(),
        })
    }

    fn socket(&self) -> Result<OvsSocket, KeyFault> {
        let read = |section: &Section<'_>| section.text("socket_file")?.map(parse_socket).transpose();
        Ok(self.first(read)?.unwrap_or_default())
    }

    /// Returns the limit: the intervals of all attempts of the Go plugin.
    fn link_limit(&self) -> Result<Duration, KeyFault> {
        let retries = self.positive("link_state_check_retries", MAX_RETRIES)?.unwrap_or(RETRIES);
        let interval = self.positive("link_state_check_interval", MAX_INTERVAL)?.unwrap_or(INTERVAL);
        Ok(Duration::from_millis(u64::from(interval)) * retries)
    }
}

fn parse_socket(text: &str) -> Result<OvsSocket, KeyFault> {
    let fault = |problem: String| KeyFault::new("socket_file", problem);
    if text.starts_with("ssl:") {
        return Err(fault(format!("{text:?} is not supported: use unix:PATH or tcp:HOST:PORT")));
    }
    text.parse().map_err(|error: vfleet_api::ParseError| fault(error.to_string()))
}

/// Returns the arguments of the pod, `args.cni`, whose keys match regardless of case.
fn pod_args<'a>(root: &Section<'a>) -> Result<Option<Section<'a>>, KeyFault> {
    root.section("args")?.map_or(Ok(None), |args| args.section("cni"))
}

/// Reads the MAC from the first source that has one.
fn read_mac(
    runtime: Option<&Section<'_>>,
    args: &CniArgs,
    pod: Option<&Section<'_>>,
) -> Result<Option<MacAddr>, CniError> {
    let read = |section: Option<&Section<'_>>, key: &str| {
        let text = section.map(|section| section.text("mac")).transpose()?.flatten();
        text.map(|text| parse_mac(text).map_err(|fault| CniError::invalid_config(key, fault))).transpose()
    };
    if let Some(mac) = read(runtime, "runtimeConfig.mac")? {
        return Ok(Some(mac));
    }
    if let Some(text) = &args.mac {
        let error = |fault| CniError::new(ErrorCode::InvalidEnvironment, format!("CNI_ARGS: MAC: {fault}"));
        return parse_mac(text).map(Some).map_err(error);
    }
    read(pod, "args.cni.mac")
}

#[cfg(test)]
mod tests;
