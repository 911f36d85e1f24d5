//! Interfaces of a test bed that are ports of software bridges, as attachments of pods use them.

use std::collections::BTreeSet;

use vfleet_api::MacAddr;
use vfleet_plan::cni::facts::BridgeVlan;

use super::testbed::CaseError;

/// Interface in the namespace of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPort {
    /// MAC; `None` if the machine is a model that has none for it.
    pub mac: Option<MacAddr>,
    pub mtu: u32,
    pub up: bool,
    /// Name of the bridge or bond that it is a member of.
    pub master: Option<String>,
    /// VLANs as a port of a Linux bridge.
    pub vlans: Vec<BridgeVlan>,
}

/// VLANs of a port of Open vSwitch: columns vlan_mode, tag and trunks.
pub type ObservedOvsVlans = (Option<String>, Option<u16>, BTreeSet<u16>);

/// Mirror of Open vSwitch: names of ports in the columns select_src_port, select_dst_port and output_port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedMirror {
    pub sources: BTreeSet<String>,
    pub destinations: BTreeSet<String>,
    pub output: Option<String>,
}

/// Independent reader of ports, which never uses the facts of a host.
pub trait PortObserver {
    /// Reads the interface with this name.
    fn host_port(&self, name: &str) -> Result<Option<ObservedPort>, CaseError>;
    /// Reads the VLANs of a port of Open vSwitch.
    fn ovs_vlans(&self, port: &str) -> Result<ObservedOvsVlans, CaseError>;
    /// Reads the mirror of Open vSwitch with this name.
    fn ovs_mirror(&self, name: &str) -> Result<Option<ObservedMirror>, CaseError>;
}
