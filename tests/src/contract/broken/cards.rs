//! Steps and facts about links, VFs and records that are wrong.

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{HostFacts, Step, VfDriver};

use super::{Wrong, defects};
use crate::contract::bench::Outsider;

defects! {
    "one_vf_too_few", caught by "makes_vfs", Wrong::Changes(one_vf_too_few);
    "vfs_are_not_made", caught by "makes_vfs", Wrong::Skips(|step| matches!(step, Step::SetNumVfs { .. }));
    "vfs_are_not_removed", caught by "removes_vfs",
        Wrong::Skips(|step| matches!(step, Step::SetNumVfs { count: 0, .. }));
    "vfs_of_the_other_pf", caught by "makes_vfs_of_the_right_pf", Wrong::Changes(vfs_of_the_other_pf);
    "autoprobe_is_inverted", caught by "switches_autoprobe_off_and_on", Wrong::Changes(autoprobe_is_inverted);
    "address_of_the_neighbour", caught by "sets_the_address_of_the_right_vf",
        Wrong::Changes(address_of_the_neighbour);
    "address_is_not_set", caught by "sets_the_address_of_the_right_vf",
        Wrong::Skips(|step| matches!(step, Step::SetVfMac { .. }));
    "vf_is_not_bound", caught by "without_autoprobe_a_named_driver_is_bound_all_the_same",
        Wrong::Skips(|step| matches!(step, Step::BindVf { .. }));
    "vf_is_not_bound_anew", caught by "an_address_reaches_the_interface_at_the_next_bind",
        Wrong::Skips(|step| matches!(step, Step::BindVf { driver: VfDriver::Kernel, .. }));
    "neighbour_is_bound", caught by "binds_the_right_vf", Wrong::Changes(neighbour_is_bound);
    "vfio_instead_of_the_kernels_driver", caught by "binds_an_unbound_vf_to_the_kernels_driver",
        Wrong::Changes(always_vfio);
    "override_is_left_behind", caught by "leaves_no_override_behind", Wrong::Afterwards(leave_override);
    "mtu_is_one_off", caught by "sets_the_mtu_of_a_pf", Wrong::Changes(mtu_is_one_off);
    "mtu_of_the_other_pf", caught by "leaves_the_other_pf_alone", Wrong::Changes(mtu_of_the_other_pf);
    "mtu_of_the_first_vf", caught by "sets_the_mtu_of_the_right_vf", Wrong::Changes(mtu_of_the_first_vf);
    "pf_stays_down", caught by "sets_a_pf_up", Wrong::Skips(|step| matches!(step, Step::SetLinkUp { .. }));
    "record_is_not_written", caught by "writes_a_record",
        Wrong::Skips(|step| matches!(step, Step::WriteRecord { .. }));
    "record_of_the_other_pf", caught by "writes_a_record", Wrong::Changes(record_of_the_other_pf);
    "record_is_not_removed", caught by "removes_a_record",
        Wrong::Skips(|step| matches!(step, Step::RemoveRecord { .. }));
    "facts_without_the_last_vf", caught by "tells_vfs_by_index", Wrong::Facts(without_the_last_vf);
    "facts_in_reverse", caught by "tells_vfs_by_index", Wrong::Facts(in_reverse);
    "facts_with_old_addresses", caught by "tells_a_mac_that_others_set", Wrong::Facts(with_old_addresses);
    "facts_without_records", caught by "writes_a_record", Wrong::Facts(|facts, _| facts.records.clear());
    "facts_without_torn_records", caught by "a_card_whose_record_and_copy_are_torn_cannot_be_read",
        Wrong::Facts(|facts, _| facts.unread_records.clear());
    "facts_with_all_up", caught by "tells_the_link_of_a_pf", Wrong::Facts(with_all_up);
    "errors_are_kept_secret", caught by "refuses_more_vfs_than_there_can_be", Wrong::Errors;
    "nobody_is_woken", caught by "wakes_when_others_change_an_mtu", Wrong::Wakes;
}

fn one_vf_too_few(step: &mut Step, _: PciAddress) {
    if let Step::SetNumVfs { count, .. } = step {
        *count = count.saturating_sub(1);
    }
}

fn vfs_of_the_other_pf(step: &mut Step, other: PciAddress) {
    if let Step::SetNumVfs { pf, .. } = step {
        *pf = other;
    }
}

fn autoprobe_is_inverted(step: &mut Step, _: PciAddress) {
    if let Step::SetAutoprobe { on, .. } = step {
        *on = !*on;
    }
}

fn address_of_the_neighbour(step: &mut Step, _: PciAddress) {
    if let Step::SetVfMac { vf, .. } = step {
        vf.index ^= 1;
    }
}

fn neighbour_is_bound(step: &mut Step, _: PciAddress) {
    if let Step::BindVf { vf, .. } = step {
        vf.index ^= 1;
    }
}

fn always_vfio(step: &mut Step, _: PciAddress) {
    if let Step::BindVf { driver, .. } = step {
        *driver = VfDriver::Named("vfio-pci".to_owned());
    }
}

fn leave_override(step: &Step, outsider: &dyn Outsider) {
    if let Step::BindVf { vf, driver: VfDriver::Named(name) } = step {
        // Where it cannot be set nothing is left behind, and the suite says that nobody noticed.
        let _ = outsider.set_override(*vf, Some(name));
    }
}

fn mtu_is_one_off(step: &mut Step, _: PciAddress) {
    if let Step::SetPfMtu { mtu, .. } = step {
        *mtu -= 1;
    }
}

fn mtu_of_the_other_pf(step: &mut Step, other: PciAddress) {
    if let Step::SetPfMtu { pf, .. } = step {
        *pf = other;
    }
}

fn mtu_of_the_first_vf(step: &mut Step, _: PciAddress) {
    if let Step::SetVfMtu { vf, .. } = step {
        *vf = VfRef { index: 0, ..*vf };
    }
}

fn record_of_the_other_pf(step: &mut Step, other: PciAddress) {
    if let Step::WriteRecord { record } = step {
        record.pf = other;
    }
}

fn without_the_last_vf(facts: &mut HostFacts, _: &HostFacts) {
    for pf in &mut facts.pfs {
        pf.vfs.pop();
    }
}

fn in_reverse(facts: &mut HostFacts, _: &HostFacts) {
    for pf in &mut facts.pfs {
        pf.vfs.reverse();
    }
}

fn with_old_addresses(facts: &mut HostFacts, first: &HostFacts) {
    for pf in &mut facts.pfs {
        let old = first.pf(pf.address).map_or(&[][..], |pf| &pf.vfs);
        for (vf, old) in pf.vfs.iter_mut().zip(old) {
            vf.admin_mac = old.admin_mac;
        }
    }
}

fn with_all_up(facts: &mut HostFacts, _: &HostFacts) {
    for link in facts.pfs.iter_mut().filter_map(|pf| pf.link.as_mut()) {
        link.admin_up = true;
    }
}
