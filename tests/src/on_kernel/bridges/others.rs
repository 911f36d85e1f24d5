//! Bridges, ports and keys of other programs.

use super::super::guest::Guest;
use super::links::{read_links, read_ports};
use super::open_vswitch::{snapshot, snapshot_bridge};
use super::{OVS_BRIDGE, PF};

const BRIDGE: &str = "br-foreign";
const PORT: &str = "foreign0";
const LINUX_BRIDGE: &str = "foreign-linux";
const LINUX_PORT: &str = "foreign-a";
/// Port of another program on the bridge of vfleet.
pub(super) const PORT_ON_OURS: &str = "foreign1";

/// Creates an Open vSwitch bridge with a port and keys.
pub(super) fn create_ovs_bridge(guest: &Guest<'_>) {
    // A service of Open vSwitch adds the host name at boot, unless there is one.
    guest.run(&format!(
        "ovs-vsctl add-br {BRIDGE} \
            -- set Bridge {BRIDGE} fail_mode=secure external_ids:owner=other other_config:mac-aging-time=77 \
            -- add-port {BRIDGE} {PORT} tag=7 -- set Interface {PORT} type=internal external_ids:a=b
        ovs-vsctl set Open_vSwitch . external_ids:hostname=other external_ids:other=key other_config:max-idle=9999"
    ));
}

/// Creates a Linux bridge with a port.
pub(super) fn create_linux_bridge(guest: &Guest<'_>) {
    guest.run(&format!(
        "ip link add {LINUX_BRIDGE} type bridge vlan_filtering 1 ageing_time 1000
        ip link add {LINUX_PORT} type veth peer name foreign-b
        ip link set {LINUX_PORT} master {LINUX_BRIDGE}"
    ));
}

/// Adds a port and keys to the bridge of vfleet.
pub(super) fn add_to_our_bridge(guest: &Guest<'_>) {
    guest.run(&format!(
        "ovs-vsctl add-port {OVS_BRIDGE} {PORT_ON_OURS} -- set Interface {PORT_ON_OURS} type=internal external_ids:a=b \
            -- set Bridge {OVS_BRIDGE} external_ids:other=key other_config:forward-bpdu=true \
            -- set Interface {PF} external_ids:other=key"
    ));
}

/// Removes the port of another program from the bridge of vfleet.
pub(super) fn remove_from_our_bridge(guest: &Guest<'_>) {
    guest.run(&format!("ovs-vsctl del-port {PORT_ON_OURS}"));
}

/// Returns the state of the Open vSwitch bridge, and of settings of Open vSwitch, as text.
pub(super) fn read_ovs_bridge(guest: &Guest<'_>) -> String {
    /// Columns of the settings that change with every bridge.
    const OF_ALL_BRIDGES: [&str; 3] = ["bridges", "next_cfg", "cur_cfg"];
    let is_of_all =
        |line: &&str| OF_ALL_BRIDGES.iter().any(|column| line.starts_with(&format!("[\"{column}\"")));
    let settings = snapshot(guest, &[("Open_vSwitch", ".")]);
    let settings: Vec<_> = settings.lines().filter(|line| !is_of_all(line)).collect();
    // Except the key that vfleet sets.
    let settings = settings.join("\n").replace(r#"["hw-offload","true"],"#, "");
    [settings, snapshot_bridge(guest, BRIDGE, &[PORT])].join("\n")
}

/// Returns the state of the Linux bridge as text.
pub(super) fn read_linux_bridge(guest: &Guest<'_>) -> String {
    [read_links(guest, &[LINUX_BRIDGE, LINUX_PORT]), read_ports(guest, &[LINUX_PORT])].join("\n")
}

/// Returns the state of both bridges as text.
pub(super) fn read_bridges(guest: &Guest<'_>) -> String {
    [read_ovs_bridge(guest), read_linux_bridge(guest)].join("\n")
}

/// Returns the state of the port and the keys of other programs on the bridge of vfleet as text.
pub(super) fn read_additions(guest: &Guest<'_>) -> String {
    let rows = snapshot(guest, &[("Port", PORT_ON_OURS), ("Interface", PORT_ON_OURS)]);
    let keys = guest.run(&format!(
        "ovs-vsctl get Bridge {OVS_BRIDGE} external_ids:other other_config:forward-bpdu
        ovs-vsctl port-to-br {PORT_ON_OURS}"
    ));
    format!("{rows}\n{keys}")
}

/// Returns the key of other programs on the uplink of the bridge of vfleet.
pub(super) fn read_uplink_key(guest: &Guest<'_>) -> String {
    guest.run(&format!("ovs-vsctl get Interface {PF} external_ids:other"))
}
