//! Desired state of a software bridge, with every value of the node state validated.

use vfleet_api::bridge::{
    BridgeVlanProtocol, LinuxBridgeConfigExt, OvsBridgeConfig, OvsConfigExt, OvsInterfaceConfig,
};
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use super::{BridgeFault, BridgePf, linux};
use crate::bridge_port;
use crate::facts::{BridgeKind, RecordedBridge};
use crate::mtu::{MAX_MTU, read_mtu};
use crate::prelude::*;

/// Maximum length of an interface name.
const MAX_NAME: usize = 15;

/// Desired software bridge of a PF.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredBridge {
    pub(super) name: String,
    pub(super) settings: DesiredSettings,
}

/// Settings of a desired bridge.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a node has few bridges")]
pub(super) enum DesiredSettings {
    Ovs(OvsSettings),
    Linux(LinuxSettings),
}

/// Settings of an Open vSwitch bridge.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OvsSettings {
    pub(super) bridge: OvsBridgeConfig,
    pub(super) interface: OvsInterfaceConfig,
    /// Bridge of the node state, for the file of the Go daemon.
    pub(super) spec: OvsConfigExt,
}

/// Settings of a Linux bridge.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinuxSettings {
    pub(super) vlan_filtering: bool,
    pub(super) vlan_protocol: BridgeVlanProtocol,
    /// Settings of the uplink, with names and values of bridge(8).
    pub(super) port: BTreeMap<String, String>,
}

impl DesiredBridge {
    /// Returns the kind of the bridge.
    pub(super) const fn kind(&self) -> BridgeKind {
        match self.settings {
            DesiredSettings::Ovs(_) => BridgeKind::Ovs,
            DesiredSettings::Linux(_) => BridgeKind::Linux,
        }
    }

    /// Returns whether the record is of this bridge.
    pub(super) fn is_recorded(&self, recorded: &RecordedBridge) -> bool {
        recorded.kind == self.kind() && recorded.name == self.name
    }

    /// Returns the record of the bridge when all steps are done.
    pub(super) fn finished_record(&self, pf: &BridgePf<'_>) -> RecordedBridge {
        let port_settings = match &self.settings {
            DesiredSettings::Ovs(_) => BTreeSet::new(),
            DesiredSettings::Linux(settings) => {
                let mut names = linux::postponed_settings(&self.name, settings, pf);
                names.extend(settings.port.keys().cloned());
                names
            }
        };
        RecordedBridge { kind: self.kind(), name: self.name.clone(), port_settings }
    }

    /// Returns the record of the bridge while steps are executed: port settings that are given up are reset by them.
    pub(super) fn begun_record(&self, pf: &BridgePf<'_>) -> RecordedBridge {
        let mut begun = self.finished_record(pf);
        if let Some(recorded) = pf.recorded().filter(|recorded| recorded.kind == begun.kind) {
            begun.port_settings.extend(recorded.port_settings.iter().cloned());
        }
        begun
    }
}

/// Returns the desired bridge of each PF of the spec.
pub(crate) fn read_desired_bridges(
    spec: &SriovNetworkNodeStateSpec,
) -> BTreeMap<PciAddress, Result<DesiredBridge, BridgeFault>> {
    let mut all = BTreeMap::new();
    let Some(bridges) = &spec.bridges else { return all };
    for bridge in bridges.ovs.iter().flatten() {
        let uplinks = bridge.uplinks.as_deref().unwrap_or_default();
        for pf in uplinks.iter().filter_map(|uplink| uplink.pci_address.value().ok()) {
            all.insert(*pf, check_name(&bridge.name, uplinks.len()).and_then(|()| read_ovs(bridge)));
        }
    }
    for bridge in bridges.linux.iter().flatten() {
        let uplinks = bridge.uplinks.as_deref().unwrap_or_default();
        for pf in uplinks.iter().filter_map(|uplink| uplink.pci_address.value().ok()) {
            all.insert(*pf, check_name(&bridge.name, uplinks.len()).and_then(|()| read_linux(bridge)));
        }
    }
    all
}

fn check_name(name: &str, uplinks: usize) -> Result<(), BridgeFault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_valid =
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain) && name != "." && name != "..";
    match uplinks {
        _ if !is_valid => Err(BridgeFault::InvalidName { bridge: name.to_owned() }),
        1 => Ok(()),
        count => Err(BridgeFault::UplinkCount { bridge: name.to_owned(), count }),
    }
}

fn read_ovs(bridge: &OvsConfigExt) -> Result<DesiredBridge, BridgeFault> {
    let mut uplinks = bridge.uplinks.iter().flatten();
    let interface = uplinks.next().and_then(|uplink| uplink.interface.clone()).unwrap_or_default();
    let to_fault =
        |requested| BridgeFault::MtuRequest { bridge: bridge.name.clone(), requested, max: MAX_MTU };
    let mtu_request = read_mtu(interface.mtu_request).map_err(to_fault)?.map(i64::from);
    let interface = OvsInterfaceConfig { mtu_request, ..interface };
    let spec = OvsConfigExt { conditions: None, ..bridge.clone() };
    let settings = OvsSettings { bridge: bridge.bridge.clone().unwrap_or_default(), interface, spec };
    Ok(DesiredBridge { name: bridge.name.clone(), settings: DesiredSettings::Ovs(settings) })
}

fn read_linux(bridge: &LinuxBridgeConfigExt) -> Result<DesiredBridge, BridgeFault> {
    let mut uplinks = bridge.uplinks.iter().flatten();
    let port = uplinks.next().and_then(|uplink| uplink.uplink.clone()).unwrap_or_default();
    let to_fault = |fault| BridgeFault::PortSetting { bridge: bridge.name.clone(), fault };
    if let Some((_, fault)) = bridge_port::find_faults(&port).next() {
        return Err(to_fault(fault));
    }
    let mut normalized = BTreeMap::new();
    for (name, value) in port {
        let value = bridge_port::normalize(&name, &value).map_err(to_fault)?;
        normalized.insert(name, value);
    }
    let settings = bridge.bridge.clone().unwrap_or_default();
    let settings = LinuxSettings {
        vlan_filtering: settings.vlan_filtering.unwrap_or(false),
        vlan_protocol: settings.vlan_protocol.unwrap_or(BridgeVlanProtocol::Ieee8021Q),
        port: normalized,
    };
    Ok(DesiredBridge { name: bridge.name.clone(), settings: DesiredSettings::Linux(settings) })
}
