//! Interfaces of the kernel and ports of its bridges, read with its own tools.

use super::super::guest::Guest;

/// Returns interfaces as ip(8) shows them, without timers, counters and the eswitch of a card.
pub(super) fn read_links(guest: &Guest<'_>, names: &[&str]) -> String {
    let script = format!(
        "for link in {}; do
            ip -details -json link show $link | jq '.[] | del(
                .phys_switch_id,
                (.linkinfo.info_data | .hello_timer, .tcn_timer, .topology_change_timer, .gc_timer, .fdb_n_learned),
                (.linkinfo.info_slave_data | .message_age_timer, .forward_delay_timer, .hold_timer)
            )'
        done",
        names.join(" ")
    );
    guest.run(&script)
}

/// Returns ports of Linux bridges and their VLANs as bridge(8) shows them.
pub(super) fn read_ports(guest: &Guest<'_>, names: &[&str]) -> String {
    let script = format!(
        "for port in {}; do
            bridge -details -json link show dev $port | jq .
            bridge -json vlan show dev $port | jq .
        done",
        names.join(" ")
    );
    guest.run(&script)
}
