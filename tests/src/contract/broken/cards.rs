//! Defects in steps and facts about links, VFs and records.

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{HostFacts, Step, VfDriver};

use super::{DefectKind, defects};
use crate::contract::testbed::Administrator;

defects! {
    "one_vf_too_few", detected by "creates_vfs", DefectKind::AltersSteps(create_one_vf_too_few);
    "vfs_are_not_created", detected by "creates_vfs", DefectKind::SkipsSteps(|step| matches!(step, Step::SetNumVfs { .. }));
    "vfs_are_not_removed", detected by "removes_vfs",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetNumVfs { count: 0, .. }));
    "vfs_are_created_on_the_other_pf", detected by "creates_vfs_on_the_right_pf", DefectKind::AltersSteps(create_vfs_on_other_pf);
    "autoprobe_is_inverted", detected by "switches_autoprobe_off_and_on", DefectKind::AltersSteps(invert_autoprobe);
    "mac_is_set_on_another_vf", detected by "sets_the_mac_of_the_right_vf",
        DefectKind::AltersSteps(set_mac_of_another_vf);
    "mac_is_not_set", detected by "sets_the_mac_of_the_right_vf",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetVfMac { .. }));
    "vf_is_not_bound", detected by "without_autoprobe_a_named_driver_is_still_bound",
        DefectKind::SkipsSteps(|step| matches!(step, Step::BindVf { .. }));
    "vf_is_not_rebound", detected by "a_mac_takes_effect_at_the_next_bind",
        DefectKind::SkipsSteps(|step| matches!(step, Step::BindVf { driver: VfDriver::Kernel, .. }));
    "another_vf_is_bound", detected by "binds_the_right_vf", DefectKind::AltersSteps(bind_another_vf);
    "vfio_instead_of_the_kernels_driver", detected by "binds_an_unbound_vf_to_the_kernels_driver",
        DefectKind::AltersSteps(bind_to_vfio);
    "driver_override_is_left_behind", detected by "leaves_no_driver_override_behind", DefectKind::ActsAfterSteps(leave_override);
    "mtu_is_one_off", detected by "sets_the_mtu_of_a_pf", DefectKind::AltersSteps(set_mtu_one_too_low);
    "mtu_is_set_on_the_other_pf", detected by "leaves_the_other_pf_alone", DefectKind::AltersSteps(set_mtu_of_other_pf);
    "mtu_is_set_on_the_first_vf", detected by "sets_the_mtu_of_the_right_vf", DefectKind::AltersSteps(set_mtu_of_first_vf);
    "pf_stays_down", detected by "sets_a_pf_up", DefectKind::SkipsSteps(|step| matches!(step, Step::SetLinkUp { .. }));
    "record_is_not_written", detected by "writes_a_record",
        DefectKind::SkipsSteps(|step| matches!(step, Step::WriteRecord { .. }));
    "record_is_written_for_the_other_pf", detected by "writes_a_record", DefectKind::AltersSteps(write_record_of_other_pf);
    "record_is_not_removed", detected by "removes_a_record",
        DefectKind::SkipsSteps(|step| matches!(step, Step::RemoveRecord { .. }));
    "facts_omit_the_last_vf", detected by "reports_vfs_in_index_order", DefectKind::DistortsFacts(remove_last_vf);
    "facts_list_vfs_in_reverse", detected by "reports_vfs_in_index_order", DefectKind::DistortsFacts(reverse_vfs);
    "facts_have_outdated_macs", detected by "reports_a_mac_set_by_others", DefectKind::DistortsFacts(keep_old_macs);
    "facts_omit_records", detected by "writes_a_record", DefectKind::DistortsFacts(|facts, _| facts.records.clear());
    "facts_omit_damaged_records", detected by "a_card_with_a_damaged_record_and_copy_is_unreadable",
        DefectKind::DistortsFacts(|facts, _| facts.unreadable_records.clear());
    "facts_report_all_links_up", detected by "reports_the_link_of_a_pf", DefectKind::DistortsFacts(set_all_up);
    "errors_are_hidden",
        detected by "refuses_more_vfs_than_the_card_supports"
        and "leaves_an_interface_with_the_name_of_a_bridge_alone",
        DefectKind::HidesErrors;
    "watchers_are_not_notified",
        detected by "notifies_when_others_change_an_mtu"
        and "notifies_when_others_change_our_linux_bridge"
        and "notifies_when_others_create_and_remove_linux_bridges"
        and "notifies_when_others_change_our_ovs_bridge"
        and "notifies_when_ovs_restarts",
        DefectKind::NeverNotifies;
}

fn create_one_vf_too_few(step: &mut Step, _: PciAddress) {
    if let Step::SetNumVfs { count, .. } = step {
        *count = count.saturating_sub(1);
    }
}

fn create_vfs_on_other_pf(step: &mut Step, other: PciAddress) {
    if let Step::SetNumVfs { pf, .. } = step {
        *pf = other;
    }
}

fn invert_autoprobe(step: &mut Step, _: PciAddress) {
    if let Step::SetAutoprobe { on, .. } = step {
        *on = !*on;
    }
}

fn set_mac_of_another_vf(step: &mut Step, _: PciAddress) {
    if let Step::SetVfMac { vf, .. } = step {
        vf.index ^= 1;
    }
}

fn bind_another_vf(step: &mut Step, _: PciAddress) {
    if let Step::BindVf { vf, .. } = step {
        vf.index ^= 1;
    }
}

fn bind_to_vfio(step: &mut Step, _: PciAddress) {
    if let Step::BindVf { driver, .. } = step {
        *driver = VfDriver::Named("vfio-pci".to_owned());
    }
}

fn leave_override(step: &Step, admin: &dyn Administrator) {
    if let Step::BindVf { vf, driver: VfDriver::Named(name) } = step {
        // If the override cannot be set, none is left behind, and the suite reports an undetected defect.
        let _ = admin.set_override(*vf, Some(name));
    }
}

fn set_mtu_one_too_low(step: &mut Step, _: PciAddress) {
    if let Step::SetPfMtu { mtu, .. } = step {
        *mtu -= 1;
    }
}

fn set_mtu_of_other_pf(step: &mut Step, other: PciAddress) {
    if let Step::SetPfMtu { pf, .. } = step {
        *pf = other;
    }
}

fn set_mtu_of_first_vf(step: &mut Step, _: PciAddress) {
    if let Step::SetVfMtu { vf, .. } = step {
        *vf = VfRef { index: 0, ..*vf };
    }
}

fn write_record_of_other_pf(step: &mut Step, other: PciAddress) {
    if let Step::WriteRecord { record } = step {
        record.pf = other;
    }
}

fn remove_last_vf(facts: &mut HostFacts, _: &HostFacts) {
    for pf in &mut facts.pfs {
        pf.vfs.pop();
    }
}

fn reverse_vfs(facts: &mut HostFacts, _: &HostFacts) {
    for pf in &mut facts.pfs {
        pf.vfs.reverse();
    }
}

fn keep_old_macs(facts: &mut HostFacts, first: &HostFacts) {
    for pf in &mut facts.pfs {
        let old = first.pf(pf.address).map_or(&[][..], |pf| &pf.vfs);
        for (vf, old) in pf.vfs.iter_mut().zip(old) {
            vf.admin_mac = old.admin_mac;
        }
    }
}

fn set_all_up(facts: &mut HostFacts, _: &HostFacts) {
    for link in facts.pfs.iter_mut().filter_map(|pf| pf.link.as_mut()) {
        link.admin_up = true;
    }
}
