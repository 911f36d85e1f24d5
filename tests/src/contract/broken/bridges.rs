//! Defects in steps and facts of software bridges. If a change of the administrator fails, the suite reports an
//! undetected defect.

use vfleet_api::PciAddress;
use vfleet_plan::{HostFacts, LinuxBridgeFacts, OvsFacts, Step};

use super::{DefectKind, defects};
use crate::contract::bridges::OvsTable;
use crate::contract::testbed::Administrator;

defects! {
    "linux_bridge_is_not_created", detected by "creates_a_linux_bridge" and "continues_a_linux_bridge_that_was_begun",
        DefectKind::SkipsSteps(|step| matches!(step, Step::CreateLinuxBridge { .. }));
    "linux_bridge_has_the_alias_of_another_pf", detected by "creates_a_linux_bridge",
        DefectKind::AltersSteps(use_alias_of_other_pf);
    "linux_bridge_is_not_configured", detected by "sets_a_linux_bridge_up" and "sets_the_mtu_of_a_linux_bridge",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetLinuxBridge { .. }));
    "linux_bridge_accepts_router_advertisements", detected by "a_linux_bridge_accepts_no_router_advertisements",
        DefectKind::ActsAfterSteps(accept_ra);
    "foreign_linux_bridge_is_changed", detected by "leaves_a_foreign_linux_bridge_alone",
        DefectKind::ActsAfterSteps(set_bridge_up);
    "vlan_filtering_is_inverted", detected by "sets_vlan_filtering_and_protocol_of_a_linux_bridge",
        DefectKind::AltersSteps(invert_vlan_filtering);
    "uplink_is_not_attached", detected by "attaches_and_detaches_an_uplink",
        DefectKind::SkipsSteps(|step| matches!(step, Step::AttachUplink { .. }));
    "uplink_is_taken_from_its_master",
        detected by "refuses_an_uplink_of_another_linux_bridge" and "refuses_an_uplink_of_a_bond",
        DefectKind::ActsAfterSteps(take_uplink);
    "uplink_is_not_detached", detected by "attaches_and_detaches_an_uplink",
        DefectKind::SkipsSteps(|step| matches!(step, Step::DetachUplink { .. }));
    "port_is_not_configured", detected by "sets_several_port_settings_at_once",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetBridgePort { .. }));
    "port_settings_are_lost", detected by "sets_several_port_settings_at_once", DefectKind::AltersSteps(lose_port_setting);
    "linux_bridge_is_not_removed", detected by "removes_a_linux_bridge",
        DefectKind::SkipsSteps(|step| matches!(step, Step::RemoveLinuxBridge { .. }));
    "linux_bridge_is_removed_with_its_ports",
        detected by "keeps_a_linux_bridge_with_foreign_ports" and "leaves_a_foreign_linux_bridge_alone",
        DefectKind::ActsAfterSteps(remove_bridge);
    "ovs_bridge_is_not_created", detected by "creates_an_ovs_bridge",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetOvsBridge { .. }));
    "ovs_bridge_is_not_changed", detected by "changes_an_ovs_bridge_in_place",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetOvsBridge { observed: Some(_), .. }));
    "given_up_keys_are_kept", detected by "changes_an_ovs_bridge_in_place", DefectKind::AltersSteps(keep_keys);
    "foreign_keys_are_changed", detected by "changes_an_ovs_bridge_in_place",
        DefectKind::ActsAfterSteps(change_foreign_key);
    "ovs_bridge_is_not_removed", detected by "removes_an_ovs_bridge",
        DefectKind::SkipsSteps(|step| matches!(step, Step::RemoveOvsBridge { .. }));
    "ovs_port_is_not_removed", detected by "removes_a_port_of_an_ovs_bridge",
        DefectKind::SkipsSteps(|step| matches!(step, Step::RemoveOvsPort { .. }));
    "hardware_offload_is_not_enabled", detected by "enables_hardware_offload_of_ovs",
        DefectKind::SkipsSteps(|step| matches!(step, Step::EnableOvsOffload));
    "facts_omit_linux_bridges_of_others", detected by "reports_linux_bridges_of_others",
        DefectKind::DistortsFacts(omit_foreign_bridges);
    "facts_omit_port_settings", detected by "reports_port_settings_that_others_changed",
        DefectKind::DistortsFacts(omit_port_settings);
    "facts_omit_ovs_ports", detected by "reports_ovs_bridges_of_others", DefectKind::DistortsFacts(omit_ovs_ports);
    "facts_say_that_ovs_follows", detected by "reports_that_ovs_does_not_follow",
        DefectKind::DistortsFacts(report_that_ovs_follows);
    "facts_omit_errors_of_interfaces", detected by "refuses_an_uplink_type_that_ovs_does_not_support",
        DefectKind::DistortsFacts(omit_errors);
    "facts_say_that_bridges_are_created", detected by "reports_an_ovs_bridge_with_an_unknown_datapath_type",
        DefectKind::DistortsFacts(report_that_bridges_are_created);
}

fn accept_ra(step: &Step, admin: &dyn Administrator) {
    if let Step::SetLinuxBridge { name, .. } = step {
        let _ = admin.set_accept_ra(name, true);
    }
}

fn set_bridge_up(step: &Step, admin: &dyn Administrator) {
    if let Step::SetLinuxBridge { name, .. } = step {
        let _ = admin.set_bridge_up(name, true);
    }
}

fn take_uplink(step: &Step, admin: &dyn Administrator) {
    if let Step::AttachUplink { pf, bridge } = step {
        let _ = admin.add_port(bridge, *pf);
    }
}

fn remove_bridge(step: &Step, admin: &dyn Administrator) {
    if let Step::RemoveLinuxBridge { name, .. } = step {
        let _ = admin.remove_bridge(name);
    }
}

fn use_alias_of_other_pf(step: &mut Step, other: PciAddress) {
    if let Step::CreateLinuxBridge { alias, .. } = step {
        *alias = LinuxBridgeFacts::alias_of(other);
    }
}

fn invert_vlan_filtering(step: &mut Step, _: PciAddress) {
    if let Step::SetLinuxBridge { settings, .. } = step {
        settings.vlan_filtering = !settings.vlan_filtering;
    }
}

fn lose_port_setting(step: &mut Step, _: PciAddress) {
    if let Step::SetBridgePort { settings, .. } = step {
        settings.pop_first();
    }
}

fn keep_keys(step: &mut Step, _: PciAddress) {
    if let Step::SetOvsBridge { bridge, .. } = step {
        bridge.external_ids.remove.clear();
    }
}

fn change_foreign_key(step: &Step, admin: &dyn Administrator) {
    if let Step::SetOvsBridge { bridge, observed: Some(_), .. } = step {
        let _ = admin.set_ovs_entry(OvsTable::Bridge, &bridge.name, "external_ids", "foreign", "changed");
    }
}

fn omit_foreign_bridges(facts: &mut HostFacts, _: &HostFacts) {
    facts.bridges.linux.retain(|bridge| bridge.marked_uplink().is_some());
}

fn omit_port_settings(facts: &mut HostFacts, _: &HostFacts) {
    for port in facts.bridges.linux.iter_mut().flat_map(|bridge| &mut bridge.ports) {
        port.settings.remove("cost");
    }
}

fn omit_ovs_ports(facts: &mut HostFacts, _: &HostFacts) {
    if let OvsFacts::Database(database) = &mut facts.bridges.ovs {
        database.bridges.iter_mut().for_each(|bridge| drop(bridge.ports.pop()));
    }
}

fn report_that_ovs_follows(facts: &mut HostFacts, _: &HostFacts) {
    if let OvsFacts::Database(database) = &mut facts.bridges.ovs {
        database.is_behind = false;
    }
}

fn omit_errors(facts: &mut HostFacts, _: &HostFacts) {
    if let OvsFacts::Database(database) = &mut facts.bridges.ovs {
        let ports = database.bridges.iter_mut().flat_map(|bridge| &mut bridge.ports);
        ports.flat_map(|port| &mut port.interfaces).for_each(|interface| interface.error = None);
    }
}

fn report_that_bridges_are_created(facts: &mut HostFacts, _: &HostFacts) {
    if let OvsFacts::Database(database) = &mut facts.bridges.ovs {
        database.bridges.iter_mut().for_each(|bridge| bridge.lacks_datapath = false);
    }
}
