//! Bridges, ports and keys of other programs.

use super::super::guest::{Guest, assert_unchanged};
use super::open_vswitch::snapshot;
use super::{OVS_BRIDGE, PF};

const BRIDGE: &str = "br-foreign";
const PORT: &str = "foreign0";
const LINUX_BRIDGE: &str = "foreign-linux";
/// Port of another program on the bridge of vfleet.
pub(super) const PORT_ON_OURS: &str = "foreign1";

/// Creates bridges of both kinds, with ports and keys.
pub(super) fn create_bridges(guest: &Guest<'_>) {
    guest.run(&format!(
        "ovs-vsctl add-br {BRIDGE} \
            -- set Bridge {BRIDGE} fail_mode=secure external_ids:owner=other other_config:mac-aging-time=77 \
            -- add-port {BRIDGE} {PORT} tag=7 -- set Interface {PORT} type=internal external_ids:a=b
        ovs-vsctl set Open_vSwitch . external_ids:other=key other_config:max-idle=9999
        ip link add {LINUX_BRIDGE} type bridge vlan_filtering 1 ageing_time 1000
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

/// Everything of other programs, as text.
pub(super) struct Snapshot {
    bridges: String,
    on_our_bridge: String,
}

/// Reads bridges, ports and keys of other programs.
pub(super) fn read(guest: &Guest<'_>) -> Snapshot {
    Snapshot { bridges: read_bridges(guest), on_our_bridge: read_on_our_bridge(guest) }
}

/// Reads the bridges of other programs.
pub(super) fn read_bridges(guest: &Guest<'_>) -> String {
    let rows =
        [("Bridge", BRIDGE), ("Port", BRIDGE), ("Port", PORT), ("Interface", BRIDGE), ("Interface", PORT)];
    let ovs = snapshot(guest, &rows);
    let linux = guest.run(&format!(
        "ovs-vsctl get Open_vSwitch . external_ids:other other_config:max-idle
        ip -details -json link show {LINUX_BRIDGE} | jq '.[] | del(.linkinfo.info_data | .hello_timer, .tcn_timer, .topology_change_timer, .gc_timer)'
        ip -details -json link show foreign-a | jq '.[] | del(.linkinfo.info_slave_data | .message_age_timer, .forward_delay_timer, .hold_timer)'
        bridge -json vlan show dev foreign-a | jq ."
    ));
    format!("{ovs}\n{linux}")
}

fn read_on_our_bridge(guest: &Guest<'_>) -> String {
    let rows = snapshot(guest, &[("Port", PORT_ON_OURS), ("Interface", PORT_ON_OURS)]);
    let keys = guest.run(&format!(
        "ovs-vsctl get Bridge {OVS_BRIDGE} external_ids:other other_config:forward-bpdu
        ovs-vsctl get Interface {PF} external_ids:other
        ovs-vsctl port-to-br {PORT_ON_OURS}"
    ));
    format!("{rows}\n{keys}")
}

impl Snapshot {
    /// Checks that nothing has changed since this was read.
    pub(super) fn assert_unchanged(&self, guest: &Guest<'_>, what: &str) {
        self.assert_bridges_unchanged(guest, what);
        let now = read_on_our_bridge(guest);
        assert_unchanged(
            &self.on_our_bridge,
            &now,
            &format!("{what}: a port or key of others on our bridge"),
        );
    }

    /// Checks that the bridges of other programs have not changed since this was read.
    pub(super) fn assert_bridges_unchanged(&self, guest: &Guest<'_>, what: &str) {
        assert_unchanged(&self.bridges, &read_bridges(guest), &format!("{what}: a bridge of others"));
    }
}
