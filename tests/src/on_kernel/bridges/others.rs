//! Bridges, ports and keys of other programs.

use super::super::guest::Guest;
use super::open_vswitch::snapshot;
use super::{OVS_BRIDGE, PF};

const BRIDGE: &str = "br-foreign";
const PORT: &str = "foreign0";
const LINUX_BRIDGE: &str = "foreign-linux";
/// Port of another program on the bridge of vfleet.
const PORT_ON_OURS: &str = "foreign1";

/// Creates an Open vSwitch bridge with a port and keys.
pub(super) fn create_ovs_bridge(guest: &Guest<'_>) {
    guest.run(&format!(
        "ovs-vsctl add-br {BRIDGE} \
            -- set Bridge {BRIDGE} fail_mode=secure external_ids:owner=other other_config:mac-aging-time=77 \
            -- add-port {BRIDGE} {PORT} tag=7 -- set Interface {PORT} type=internal external_ids:a=b
        ovs-vsctl set Open_vSwitch . external_ids:other=key other_config:max-idle=9999"
    ));
}

/// Creates a Linux bridge with a port.
pub(super) fn create_linux_bridge(guest: &Guest<'_>) {
    guest.run(&format!(
        "ip link add {LINUX_BRIDGE} type bridge vlan_filtering 1 ageing_time 1000
        ip link add foreign-a type veth peer name foreign-b
        ip link set foreign-a master {LINUX_BRIDGE}"
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

/// Returns the state of the Open vSwitch bridge as text.
pub(super) fn read_ovs_bridge(guest: &Guest<'_>) -> String {
    let rows =
        [("Bridge", BRIDGE), ("Port", BRIDGE), ("Port", PORT), ("Interface", BRIDGE), ("Interface", PORT)];
    let keys = guest.run("ovs-vsctl get Open_vSwitch . external_ids:other other_config:max-idle");
    format!("{}\n{keys}", snapshot(guest, &rows))
}

/// Returns the state of both bridges as text.
pub(super) fn read_bridges(guest: &Guest<'_>) -> String {
    let linux = guest.run(&format!(
        "ip -details -json link show {LINUX_BRIDGE} | jq '.[] | del(.linkinfo.info_data | .hello_timer, .tcn_timer, .topology_change_timer, .gc_timer)'
        ip -details -json link show foreign-a | jq '.[] | del(.linkinfo.info_slave_data | .message_age_timer, .forward_delay_timer, .hold_timer)'
        bridge -json vlan show dev foreign-a | jq ."
    ));
    format!("{}\n{linux}", read_ovs_bridge(guest))
}

/// Returns the state of ports and keys of other programs on the bridge of vfleet as text.
pub(super) fn read_additions(guest: &Guest<'_>) -> String {
    let rows = snapshot(guest, &[("Port", PORT_ON_OURS), ("Interface", PORT_ON_OURS)]);
    let keys = guest.run(&format!(
        "ovs-vsctl get Bridge {OVS_BRIDGE} external_ids:other other_config:forward-bpdu
        ovs-vsctl get Interface {PF} external_ids:other
        ovs-vsctl port-to-br {PORT_ON_OURS}"
    ));
    format!("{rows}\n{keys}")
}
