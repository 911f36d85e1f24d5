//! Hosts with a deliberate defect each. A suite that does not notice one of them proves nothing.

use std::sync::{Mutex, PoisonError};

use vfleet_api::{PciAddress, VfRef};
use vfleet_host::{Host, HostError, Wake, Watch};
use vfleet_plan::{HostFacts, Record, Step, VfDriver};

use super::bench::{Bench, Outsider, Witness};

/// A way to be broken.
#[derive(Debug)]
pub struct Defect {
    pub name: &'static str,
    /// The case that notices it the quickest.
    pub caught_by: &'static str,
    wrong: Wrong,
}

/// What is wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// Steps are done otherwise, or not at all.
    Steps(fn(&Step, &Surroundings) -> Option<Step>),
    /// The facts are told otherwise.
    Facts(fn(&mut HostFacts, &HostFacts)),
    /// Something else is done after a step.
    Afterwards(fn(&Step, &dyn Outsider)),
    /// Errors are kept secret.
    Errors,
    /// Nobody is woken.
    Wakes,
}

/// What a defect may need to know to do the wrong thing.
struct Surroundings {
    other_pf: PciAddress,
}

macro_rules! defects {
    ($($name:literal, $case:literal, $wrong:expr;)*) => {
        /// All defects.
        pub const DEFECTS: &[Defect] = &[$(Defect { name: $name, caught_by: $case, wrong: $wrong }),*];
    };
}

defects! {
    "one_vf_too_few", "makes_vfs", Wrong::Steps(one_vf_too_few);
    "vfs_are_not_made", "makes_vfs", Wrong::Steps(|step, _| unless(step, is_num_vfs));
    "vfs_are_not_removed", "removes_vfs", Wrong::Steps(|step, _| unless(step, is_no_vfs));
    "vfs_of_the_other_pf", "makes_vfs_of_the_right_pf", Wrong::Steps(vfs_of_the_other_pf);
    "autoprobe_is_inverted", "switches_autoprobe_off_and_on", Wrong::Steps(autoprobe_is_inverted);
    "address_of_the_neighbour", "sets_the_address_of_the_right_vf", Wrong::Steps(address_of_the_neighbour);
    "address_is_not_set", "sets_the_address_of_the_right_vf", Wrong::Steps(|step, _| unless(step, is_mac));
    "vf_is_not_bound", "without_autoprobe_a_named_driver_is_bound_all_the_same",
        Wrong::Steps(|step, _| unless(step, is_bind));
    "vf_is_not_bound_anew", "an_address_reaches_the_interface_at_the_next_bind",
        Wrong::Steps(|step, _| unless(step, is_kernel_bind));
    "neighbour_is_bound", "binds_the_right_vf", Wrong::Steps(neighbour_is_bound);
    "vfio_instead_of_the_kernels_driver", "binds_an_unbound_vf_to_the_kernels_driver", Wrong::Steps(always_vfio);
    "override_is_left_behind", "leaves_no_override_behind", Wrong::Afterwards(leave_override);
    "mtu_is_one_off", "sets_the_mtu_of_a_pf", Wrong::Steps(mtu_is_one_off);
    "mtu_of_the_other_pf", "leaves_the_other_pf_alone", Wrong::Steps(mtu_of_the_other_pf);
    "mtu_of_the_first_vf", "sets_the_mtu_of_the_right_vf", Wrong::Steps(mtu_of_the_first_vf);
    "pf_stays_down", "sets_a_pf_up", Wrong::Steps(|step, _| unless(step, is_up));
    "record_is_not_written", "writes_a_record", Wrong::Steps(|step, _| unless(step, is_record));
    "record_of_the_other_pf", "writes_a_record", Wrong::Steps(record_of_the_other_pf);
    "record_is_not_removed", "removes_a_record", Wrong::Steps(|step, _| unless(step, is_forget));
    "facts_without_the_last_vf", "tells_vfs_by_index", Wrong::Facts(without_the_last_vf);
    "facts_in_reverse", "tells_vfs_by_index", Wrong::Facts(in_reverse);
    "facts_with_old_addresses", "tells_a_mac_that_others_set", Wrong::Facts(with_old_addresses);
    "facts_without_records", "writes_a_record", Wrong::Facts(without_records);
    "facts_with_all_up", "tells_the_link_of_a_pf", Wrong::Facts(with_all_up);
    "errors_are_kept_secret", "refuses_more_vfs_than_there_can_be", Wrong::Errors;
    "nobody_is_woken", "wakes_when_others_change_an_mtu", Wrong::Wakes;
}

fn unless(step: &Step, is_skipped: fn(&Step) -> bool) -> Option<Step> {
    Some(step.clone()).filter(|step| !is_skipped(step))
}

fn is_num_vfs(step: &Step) -> bool {
    matches!(step, Step::SetNumVfs { .. })
}

fn is_no_vfs(step: &Step) -> bool {
    matches!(step, Step::SetNumVfs { count: 0, .. })
}

fn is_mac(step: &Step) -> bool {
    matches!(step, Step::SetVfMac { .. })
}

fn is_bind(step: &Step) -> bool {
    matches!(step, Step::BindVf { .. })
}

fn is_kernel_bind(step: &Step) -> bool {
    matches!(step, Step::BindVf { driver: VfDriver::Kernel, .. })
}

fn is_up(step: &Step) -> bool {
    matches!(step, Step::SetLinkUp { .. })
}

fn is_record(step: &Step) -> bool {
    matches!(step, Step::WriteRecord { .. })
}

fn is_forget(step: &Step) -> bool {
    matches!(step, Step::RemoveRecord { .. })
}

fn neighbour(vf: VfRef) -> VfRef {
    VfRef { index: vf.index ^ 1, ..vf }
}

fn one_vf_too_few(step: &Step, _: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::SetNumVfs { pf, count } => Step::SetNumVfs { pf: *pf, count: count.saturating_sub(1) },
        other => other.clone(),
    })
}

fn vfs_of_the_other_pf(step: &Step, around: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::SetNumVfs { count, .. } => Step::SetNumVfs { pf: around.other_pf, count: *count },
        other => other.clone(),
    })
}

fn autoprobe_is_inverted(step: &Step, _: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::SetAutoprobe { pf, on } => Step::SetAutoprobe { pf: *pf, on: !on },
        other => other.clone(),
    })
}

fn address_of_the_neighbour(step: &Step, _: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::SetVfMac { vf, mac } => Step::SetVfMac { vf: neighbour(*vf), mac: *mac },
        other => other.clone(),
    })
}

fn neighbour_is_bound(step: &Step, _: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::BindVf { vf, driver } => Step::BindVf { vf: neighbour(*vf), driver: driver.clone() },
        other => other.clone(),
    })
}

fn always_vfio(step: &Step, _: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::BindVf { vf, .. } => Step::BindVf { vf: *vf, driver: VfDriver::Named("vfio-pci".to_owned()) },
        other => other.clone(),
    })
}

fn leave_override(step: &Step, outsider: &dyn Outsider) {
    if let Step::BindVf { vf, driver: VfDriver::Named(name) } = step {
        // Where it cannot be set there is nothing left behind, and the suite says that nobody noticed.
        let _ = outsider.set_override(*vf, Some(name));
    }
}

fn mtu_is_one_off(step: &Step, _: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::SetPfMtu { pf, mtu } => Step::SetPfMtu { pf: *pf, mtu: mtu - 1 },
        other => other.clone(),
    })
}

fn mtu_of_the_other_pf(step: &Step, around: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::SetPfMtu { mtu, .. } => Step::SetPfMtu { pf: around.other_pf, mtu: *mtu },
        other => other.clone(),
    })
}

fn mtu_of_the_first_vf(step: &Step, _: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::SetVfMtu { vf, mtu } => Step::SetVfMtu { vf: VfRef { index: 0, ..*vf }, mtu: *mtu },
        other => other.clone(),
    })
}

fn record_of_the_other_pf(step: &Step, around: &Surroundings) -> Option<Step> {
    Some(match step {
        Step::WriteRecord { record } => {
            Step::WriteRecord { record: Record { pf: around.other_pf, ..record.clone() } }
        }
        other => other.clone(),
    })
}

fn without_the_last_vf(facts: &mut HostFacts, _: &HostFacts) {
    facts.pfs.iter_mut().for_each(|pf| drop(pf.vfs.pop()));
}

fn in_reverse(facts: &mut HostFacts, _: &HostFacts) {
    facts.pfs.iter_mut().for_each(|pf| pf.vfs.reverse());
}

fn with_old_addresses(facts: &mut HostFacts, first: &HostFacts) {
    for pf in &mut facts.pfs {
        let old = first.pf(pf.address).map_or(&[][..], |pf| &pf.vfs);
        for (vf, old) in pf.vfs.iter_mut().zip(old) {
            vf.admin_mac = old.admin_mac;
        }
    }
}

fn without_records(facts: &mut HostFacts, _: &HostFacts) {
    facts.records.clear();
}

fn with_all_up(facts: &mut HostFacts, _: &HostFacts) {
    facts.pfs.iter_mut().filter_map(|pf| pf.link.as_mut()).for_each(|link| link.admin_up = true);
}

/// A bench whose hosts all have the same defect.
pub struct BrokenBench<'a> {
    bench: &'a dyn Bench,
    defect: &'static Defect,
    host: BrokenHost<'a>,
}

impl<'a> BrokenBench<'a> {
    pub fn new(bench: &'a dyn Bench, defect: &'static Defect) -> Self {
        Self { bench, defect, host: BrokenHost::new(bench, bench.new_host(), defect) }
    }
}

impl Bench for BrokenBench<'_> {
    fn host(&self) -> &dyn Host {
        &self.host
    }

    fn new_host(&self) -> Box<dyn Host + '_> {
        Box::new(BrokenHost::new(self.bench, self.bench.new_host(), self.defect))
    }

    fn pf(&self) -> PciAddress {
        self.bench.pf()
    }

    fn other_pf(&self) -> PciAddress {
        self.bench.other_pf()
    }

    fn witness(&self) -> &dyn Witness {
        self.bench.witness()
    }

    fn outsider(&self) -> &dyn Outsider {
        self.bench.outsider()
    }

    fn is_fast(&self) -> bool {
        self.bench.is_fast()
    }
}

/// A host with a defect.
struct BrokenHost<'a> {
    inner: Box<dyn Host + 'a>,
    wrong: Wrong,
    surroundings: Surroundings,
    outsider: &'a dyn Outsider,
    first_facts: Mutex<Option<HostFacts>>,
}

impl<'a> BrokenHost<'a> {
    fn new(bench: &'a dyn Bench, inner: Box<dyn Host + 'a>, defect: &Defect) -> Self {
        Self {
            inner,
            wrong: defect.wrong,
            surroundings: Surroundings { other_pf: bench.other_pf() },
            outsider: bench.outsider(),
            first_facts: Mutex::new(None),
        }
    }
}

impl Host for BrokenHost<'_> {
    fn facts(&self) -> Result<HostFacts, HostError> {
        let mut facts = self.inner.facts()?;
        if let Wrong::Facts(distort) = self.wrong {
            let mut first = self.first_facts.lock().unwrap_or_else(PoisonError::into_inner);
            distort(&mut facts, first.get_or_insert_with(|| facts.clone()));
        }
        Ok(facts)
    }

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        let done = match self.wrong {
            Wrong::Steps(otherwise) => {
                otherwise(step, &self.surroundings).map_or(Ok(()), |step| self.inner.execute(&step))
            }
            _ => self.inner.execute(step),
        };
        if let Wrong::Afterwards(act) = self.wrong {
            act(step, self.outsider);
        }
        if matches!(self.wrong, Wrong::Errors) { Ok(()) } else { done }
    }

    fn on_change(&self, wake: Wake) -> Result<Watch, HostError> {
        match self.wrong {
            Wrong::Wakes => self.inner.on_change(Box::new(|| {})),
            _ => self.inner.on_change(wake),
        }
    }
}
