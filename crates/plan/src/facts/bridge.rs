use serde::{Deserialize, Serialize};
use vfleet_api::PciAddress;
use vfleet_api::bridge::BridgeVlanProtocol;

use crate::prelude::*;

/// Software bridges of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BridgeFacts {
    /// Open vSwitch.
    pub ovs: OvsFacts,
    /// Linux bridges, by name.
    pub linux: Vec<LinuxBridgeFacts>,
}

impl BridgeFacts {
    /// Returns the Linux bridge with this name.
    pub fn linux_bridge(&self, name: &str) -> Option<&LinuxBridgeFacts> {
        self.linux.iter().find(|bridge| bridge.name == name)
    }
}

/// Facts of Open vSwitch.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum OvsFacts {
    /// Open vSwitch was not asked, since bridges are not managed and no record mentions one.
    #[default]
    NotRead,
    /// Open vSwitch is not installed or not running: nobody listens on its socket.
    NotRunning { socket: String },
    /// Open vSwitch cannot be read now.
    Unreadable { error: String, reason: &'static str },
    /// Content of its database.
    Database(OvsDatabase),
}

impl OvsFacts {
    /// Returns the content of the database, if it could be read.
    pub const fn database(&self) -> Option<&OvsDatabase> {
        match self {
            Self::Database(database) => Some(database),
            Self::NotRead | Self::NotRunning { .. } | Self::Unreadable { .. } => None,
        }
    }
}

/// Content of the Open vSwitch database, as far as vfleet uses it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OvsDatabase {
    /// `other_config:hw-offload` is `true`.
    pub has_offload: bool,
    /// ovs-vswitchd did not apply the latest change within its deadline (`cur_cfg` is behind `next_cfg`).
    pub is_behind: bool,
    /// Bridges, by name.
    pub bridges: Vec<OvsBridgeFacts>,
}

impl OvsDatabase {
    /// Returns the bridge with this name.
    pub fn bridge(&self, name: &str) -> Option<&OvsBridgeFacts> {
        self.bridges.iter().find(|bridge| bridge.name == name)
    }

    /// Returns the bridge and port that contain the interface with this name.
    pub fn port_of(&self, interface: &str) -> Option<(&OvsBridgeFacts, &OvsPortFacts)> {
        let with_ports = |bridge| core::iter::repeat(bridge).zip(bridge_ports(bridge));
        let mut ports = self.bridges.iter().flat_map(with_ports);
        ports.find(|(_, port)| port.interfaces.iter().any(|member| member.name == interface))
    }
}

fn bridge_ports(bridge: &OvsBridgeFacts) -> core::slice::Iter<'_, OvsPortFacts> {
    bridge.ports.iter()
}

/// Row of the OVSDB table Bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsBridgeFacts {
    /// UUID of the row.
    pub uuid: String,
    /// Name.
    pub name: String,
    /// Datapath type; empty for `system`.
    pub datapath_type: String,
    /// `secure` or `standalone`.
    pub fail_mode: Option<String>,
    /// Column external_ids.
    pub external_ids: BTreeMap<String, String>,
    /// Column other_config.
    pub other_config: BTreeMap<String, String>,
    /// ovs-vswitchd did not create the bridge, although it applied the latest change: it has no such datapath, or it was
    /// not started since the last start of ovsdb-server.
    pub lacks_datapath: bool,
    /// Ports, by name.
    pub ports: Vec<OvsPortFacts>,
}

/// Row of the OVSDB table Port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsPortFacts {
    /// UUID of the row.
    pub uuid: String,
    /// Name.
    pub name: String,
    /// Column external_ids.
    pub external_ids: BTreeMap<String, String>,
    /// Interfaces, by name. A port with several of them is a bond.
    pub interfaces: Vec<OvsInterfaceFacts>,
}

/// Row of the OVSDB table Interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsInterfaceFacts {
    /// UUID of the row.
    pub uuid: String,
    /// Name.
    pub name: String,
    /// Type; empty for `system`.
    pub type_: String,
    /// Column options.
    pub options: BTreeMap<String, String>,
    /// Column external_ids.
    pub external_ids: BTreeMap<String, String>,
    /// Column other_config.
    pub other_config: BTreeMap<String, String>,
    /// Requested MTU.
    pub mtu_request: Option<i64>,
    /// Error that ovs-vswitchd reports for the interface.
    pub error: Option<String>,
}

/// Facts of a Linux bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxBridgeFacts {
    /// Name.
    pub name: String,
    /// Alias (`ip link set dev NAME alias TEXT`).
    pub alias: Option<String>,
    /// Device group. [`LinuxBridgeFacts::NEW_GROUP`] marks a bridge that vfleet created and did not give an alias yet.
    pub group: u32,
    /// VLAN filtering is enabled.
    pub vlan_filtering: bool,
    /// VLAN protocol; `None` for one that the API does not know.
    pub vlan_protocol: Option<BridgeVlanProtocol>,
    /// MTU.
    pub mtu: u32,
    /// The bridge is administratively up.
    pub admin_up: bool,
    /// The kernel gives the bridge addresses and routes from IPv6 router advertisements.
    pub accepts_ra: bool,
    /// Ports, by name.
    pub ports: Vec<LinuxPortFacts>,
}

impl LinuxBridgeFacts {
    /// Device group that a new bridge has until it has its alias. The kernel sets the group when it creates the bridge,
    /// the alias only afterwards.
    pub const NEW_GROUP: u32 = 0x7666_6c74;

    /// Start of the aliases of our bridges.
    pub const ALIAS_PREFIX: &str = "vfleet bridge of ";

    /// Returns the alias that marks the bridge of a PF as ours.
    pub fn alias_of(pf: PciAddress) -> String {
        format!("{}{pf}", Self::ALIAS_PREFIX)
    }

    /// Returns the PF whose bridge this is, if vfleet created it.
    pub fn marked_uplink(&self) -> Option<PciAddress> {
        self.alias.as_deref()?.strip_prefix(Self::ALIAS_PREFIX)?.parse().ok()
    }
}

/// Facts of a port of a Linux bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinuxPortFacts {
    /// Name of the interface.
    pub name: String,
    /// Settings, with names and values of bridge(8): `learning` is `on`. Settings that the kernel does not report are
    /// absent.
    pub settings: BTreeMap<String, String>,
}

/// Kind of a software bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BridgeKind {
    /// Open vSwitch bridge.
    Ovs,
    /// Linux bridge.
    Linux,
}

impl BridgeKind {
    /// Returns the text for messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ovs => "Open vSwitch bridge",
            Self::Linux => "Linux bridge",
        }
    }
}

/// Software bridge of a PF, in its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedBridge {
    /// Kind of the bridge.
    pub kind: BridgeKind,
    /// Name of the bridge.
    pub name: String,
    /// Names of the port settings that vfleet changed on the uplink of a Linux bridge.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub port_settings: BTreeSet<String>,
}
