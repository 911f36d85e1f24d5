//! Broken hosts: hosts with one deliberate defect each, which the suite must detect.

mod bridges;
mod cards;
mod facts;
mod steps;

use std::sync::{Mutex, PoisonError};

use vfleet_api::PciAddress;
use vfleet_host::attachment::AttachmentHost;
use vfleet_host::{ChangeCallback, Host, HostError, TaskHandle, WatchGuard};
use vfleet_plan::{HostFacts, Step};

use super::cases::{Case, find_case};
use super::coverage::Environment;
use super::testbed::{Administrator, Observer, TestBed};

/// Defines the list `DEFECTS` of a module: name, cases that detect the defect, the fastest first, kind.
macro_rules! defects {
    ($($name:literal, detected by $($case:literal)and+, $kind:expr;)*) => {
        pub(super) const DEFECTS: &[crate::contract::broken::Defect] =
            &[$(crate::contract::broken::Defect { name: $name, detected_by: &[$($case),+], kind: $kind }),*];
    };
}
use defects;

/// Returns all defects.
pub fn all_defects() -> impl Iterator<Item = &'static Defect> {
    [cards::DEFECTS, steps::DEFECTS, facts::DEFECTS, bridges::DEFECTS].into_iter().flatten()
}

/// One defect of each kind: those that are detected fastest on a kernel. The other defects of a kind are detected in
/// the same way, and run only on `SimHost`.
const FOR_KERNEL: [&str; 6] = [
    "record_is_not_written",
    "mtu_is_one_off",
    "driver_override_is_left_behind",
    "facts_report_all_links_up",
    "errors_are_hidden",
    "watchers_are_not_notified",
];

/// Returns one defect of each kind.
pub fn defects_for_kernel() -> impl Iterator<Item = &'static Defect> {
    all_defects().filter(|defect| FOR_KERNEL.contains(&defect.name))
}

/// Deliberate defect of a host.
#[derive(Debug)]
pub struct Defect {
    pub name: &'static str,
    /// Names of cases that detect the defect. The fastest is the first, which is enough on a kernel; the other ones are
    /// those that no other defect shows to be able to fail.
    pub detected_by: &'static [&'static str],
    kind: DefectKind,
}

impl Defect {
    /// Returns the case that detects the defect fastest.
    pub fn fastest_case(&self) -> Option<&'static Case> {
        self.detected_by.first().and_then(|name| find_case(name))
    }
}

/// Kind of a defect.
#[derive(Clone, Copy, Debug)]
enum DefectKind {
    /// Steps are skipped, but reported as done.
    SkipsSteps(fn(&Step) -> bool),
    /// Steps are altered. The address is that of the other PF.
    AltersSteps(fn(&mut Step, PciAddress)),
    /// An additional change follows each step.
    ActsAfterSteps(fn(&Step, &dyn Administrator)),
    /// Facts are distorted. The second argument is the first facts that were read.
    DistortsFacts(fn(&mut HostFacts, &HostFacts)),
    /// Errors are not returned.
    HidesErrors,
    /// Watchers are not notified.
    NeverNotifies,
}

/// Test bed whose hosts all have the same defect.
pub struct BrokenTestBed<'a> {
    testbed: &'a dyn TestBed,
    defect: &'static Defect,
    host: BrokenHost<'a>,
}

impl<'a> BrokenTestBed<'a> {
    pub fn new(testbed: &'a dyn TestBed, defect: &'static Defect) -> Self {
        Self { testbed, defect, host: BrokenHost::new(testbed, testbed.new_host(), defect) }
    }
}

impl TestBed for BrokenTestBed<'_> {
    fn host(&self) -> &dyn Host {
        &self.host
    }

    fn attachments(&self) -> &dyn AttachmentHost {
        self.testbed.attachments()
    }

    fn new_host(&self) -> Box<dyn Host + '_> {
        Box::new(BrokenHost::new(self.testbed, self.testbed.new_host(), self.defect))
    }

    fn pf(&self) -> PciAddress {
        self.testbed.pf()
    }

    fn other_pf(&self) -> PciAddress {
        self.testbed.other_pf()
    }

    fn observer(&self) -> &dyn Observer {
        self.testbed.observer()
    }

    fn admin(&self) -> &dyn Administrator {
        self.testbed.admin()
    }

    fn environment(&self) -> Environment {
        self.testbed.environment()
    }
}

/// Host with a defect.
struct BrokenHost<'a> {
    inner: Box<dyn Host + 'a>,
    kind: DefectKind,
    other_pf: PciAddress,
    admin: &'a dyn Administrator,
    first_facts: Mutex<Option<HostFacts>>,
}

impl<'a> BrokenHost<'a> {
    fn new(testbed: &'a dyn TestBed, inner: Box<dyn Host + 'a>, defect: &Defect) -> Self {
        Self {
            inner,
            kind: defect.kind,
            other_pf: testbed.other_pf(),
            admin: testbed.admin(),
            first_facts: Mutex::new(None),
        }
    }
}

impl Host for BrokenHost<'_> {
    fn facts(&self) -> Result<HostFacts, HostError> {
        let mut facts = self.inner.facts()?;
        if let DefectKind::DistortsFacts(distort) = self.kind {
            let mut first = self.first_facts.lock().unwrap_or_else(PoisonError::into_inner);
            let first = first.get_or_insert_with(|| facts.clone());
            distort(&mut facts, first);
        }
        Ok(facts)
    }

    fn start(&self, step: &Step) -> Result<TaskHandle<()>, HostError> {
        Ok(TaskHandle::completed(step.to_string(), self.execute(step)))
    }

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        let result = match self.kind {
            DefectKind::SkipsSteps(is_skipped) if is_skipped(step) => Ok(()),
            DefectKind::AltersSteps(change) => {
                let mut changed = step.clone();
                change(&mut changed, self.other_pf);
                self.inner.execute(&changed)
            }
            _ => self.inner.execute(step),
        };
        if let DefectKind::ActsAfterSteps(act) = self.kind {
            act(step, self.admin);
        }
        if matches!(self.kind, DefectKind::HidesErrors) { Ok(()) } else { result }
    }

    fn on_change(&self, wake: ChangeCallback) -> Result<WatchGuard, HostError> {
        match self.kind {
            DefectKind::NeverNotifies => self.inner.on_change(Box::new(|| {})),
            _ => self.inner.on_change(wake),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::mem::{Discriminant, discriminant};

    use super::*;

    #[test]
    fn one_defect_of_each_kind_runs_on_the_kernel() {
        let kinds = |defects: &mut dyn Iterator<Item = &'static Defect>| {
            let mut kinds: Vec<(Discriminant<DefectKind>, Vec<&str>)> = Vec::new();
            for defect in defects {
                let kind = discriminant(&defect.kind);
                match kinds.iter_mut().find(|(listed, _)| *listed == kind) {
                    Some((_, names)) => names.push(defect.name),
                    None => kinds.push((kind, vec![defect.name])),
                }
            }
            kinds
        };
        let chosen = kinds(&mut defects_for_kernel());
        assert!(chosen.iter().all(|(_, names)| names.len() == 1), "{chosen:?}");
        assert_eq!(chosen.len(), kinds(&mut all_defects()).len());
        assert_eq!(chosen.len(), FOR_KERNEL.len());
    }

    #[test]
    fn names_of_defects_are_unique() {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        all_defects().for_each(|defect| *names.entry(defect.name).or_default() += 1);
        assert!(names.values().all(|count| *count == 1), "{names:?}");
    }
}
