//! Software bridges of a test bed: who changes them without the host, and who reads them without it.

use std::collections::BTreeSet;

use vfleet_api::PciAddress;
use vfleet_plan::{LinuxBridgeFacts, Master, OvsDatabase};

use super::testbed::{CaseError, CaseResult};

/// Independent reader of software bridges, which never uses the facts of a host.
pub trait BridgeObserver {
    /// Reads all Linux bridges, sorted by name.
    fn linux_bridges(&self) -> Result<Vec<LinuxBridgeFacts>, CaseError>;
    /// Reads the VLANs of a PF as a port of a Linux bridge.
    fn port_vlans(&self, pf: PciAddress) -> Result<BTreeSet<u16>, CaseError>;
    /// Reads the interface that a PF is a port or member of.
    fn master(&self, pf: PciAddress) -> Result<Option<Master>, CaseError>;
    /// Reads the database of Open vSwitch, which must be running. It is behind if ovs-vswitchd did not apply the latest
    /// change.
    fn ovs(&self) -> Result<OvsDatabase, CaseError>;
    /// Reads an entry of `other_config` of the table `Open_vSwitch`.
    fn ovs_config(&self, key: &str) -> Result<Option<String>, CaseError>;

    /// Reads the Linux bridge with this name.
    fn linux_bridge(&self, name: &str) -> Result<Option<LinuxBridgeFacts>, CaseError> {
        Ok(self.linux_bridges()?.into_iter().find(|bridge| bridge.name == name))
    }
}

/// Administrator of Linux bridges. Also stands for CNI plugins and the network management of the node.
pub trait LinuxBridgeAdministrator {
    /// Creates a bridge without an alias.
    fn add_bridge(&self, name: &str) -> CaseResult;
    fn remove_bridge(&self, name: &str) -> CaseResult;
    fn set_bridge_alias(&self, name: &str, alias: &str) -> CaseResult;
    fn set_bridge_group(&self, name: &str, group: u32) -> CaseResult;
    fn set_bridge_up(&self, name: &str, up: bool) -> CaseResult;
    /// Sets whether the kernel gives a bridge addresses from IPv6 router advertisements.
    fn set_accept_ra(&self, name: &str, on: bool) -> CaseResult;
    fn add_port(&self, bridge: &str, pf: PciAddress) -> CaseResult;
    /// Removes a PF from its Linux bridge.
    fn remove_port(&self, bridge: &str, pf: PciAddress) -> CaseResult;
    fn set_port_setting(&self, bridge: &str, pf: PciAddress, setting: &str, value: &str) -> CaseResult;
    fn add_port_vlan(&self, bridge: &str, pf: PciAddress, vlan: u16) -> CaseResult;
    /// Creates a bond with a PF as its member.
    fn add_bond(&self, name: &str, pf: PciAddress) -> CaseResult;
}

/// Table of the database of Open vSwitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OvsTable {
    Bridge,
    Port,
    Interface,
}

/// Administrator of Open vSwitch, who changes its database and stops its daemons. Open vSwitch is not running when a
/// case starts, and its database is empty.
pub trait OvsAdministrator {
    /// Starts the daemons that do not run.
    fn start_ovs(&self) -> CaseResult;
    fn stop_ovs(&self) -> CaseResult;
    /// Stops ovs-vswitchd, and lets ovsdb-server run.
    fn stop_ovs_switch(&self) -> CaseResult;
    /// Restarts ovsdb-server, and with it ovs-vswitchd.
    fn restart_ovs(&self) -> CaseResult;
    /// Replaces the database by an empty one while the daemons are stopped, and starts them.
    fn empty_ovs_database(&self) -> CaseResult;
    fn add_ovs_bridge(&self, name: &str) -> CaseResult;
    fn remove_ovs_bridge(&self, name: &str) -> CaseResult;
    /// Adds a PF to a bridge.
    fn add_ovs_port(&self, bridge: &str, pf: PciAddress) -> CaseResult;
    /// Adds a port with an interface that Open vSwitch creates.
    fn add_internal_ovs_port(&self, bridge: &str, name: &str) -> CaseResult;
    /// Removes the port with this name.
    fn remove_ovs_port(&self, name: &str) -> CaseResult;
    /// Sets an entry of a map of the row with this name.
    fn set_ovs_entry(&self, table: OvsTable, row: &str, column: &str, key: &str, value: &str) -> CaseResult;
    /// Sets the number of transmitted packets of an interface, as ovs-vswitchd does every few seconds.
    fn set_ovs_statistics(&self, interface: &str, packets: u32) -> CaseResult;
}
