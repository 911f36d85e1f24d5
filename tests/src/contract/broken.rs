//! Hosts with a deliberate defect each. A suite that does not notice one of them proves nothing.

mod cards;
mod facts;
mod steps;

use std::sync::{Mutex, PoisonError};

use vfleet_api::PciAddress;
use vfleet_host::{Host, HostError, Running, Wake, Watch};
use vfleet_plan::{HostFacts, Step};

use super::bench::{Bench, Outsider, Witness};
use super::coverage::Environment;

/// A list of defects, each with the case that notices it the quickest.
macro_rules! defects {
    ($($name:literal, caught by $case:literal, $wrong:expr;)*) => {
        pub(super) const DEFECTS: &[crate::contract::broken::Defect] =
            &[$(crate::contract::broken::Defect { name: $name, caught_by: $case, wrong: $wrong }),*];
    };
}
use defects;

/// All defects.
pub fn all_defects() -> impl Iterator<Item = &'static Defect> {
    [cards::DEFECTS, steps::DEFECTS, facts::DEFECTS].into_iter().flatten()
}

/// One defect of each kind, those that a kernel shows the quickest. How a defect is noticed does not depend on what is
/// skipped, changed or told, so the others are left to `SimHost`.
const FOR_KERNEL: [&str; 6] = [
    "record_is_not_written",
    "mtu_is_one_off",
    "override_is_left_behind",
    "facts_with_all_up",
    "errors_are_kept_secret",
    "nobody_is_woken",
];

/// One defect of each kind.
pub fn defects_for_kernel() -> impl Iterator<Item = &'static Defect> {
    all_defects().filter(|defect| FOR_KERNEL.contains(&defect.name))
}

/// A way to be broken.
#[derive(Debug)]
pub struct Defect {
    pub name: &'static str,
    /// The name of the case that notices it the quickest.
    pub caught_by: &'static str,
    wrong: Wrong,
}

/// What is wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// Some steps are not done, and said to be.
    Skips(fn(&Step) -> bool),
    /// Another step is done. The address is that of the other PF.
    Changes(fn(&mut Step, PciAddress)),
    /// Something else is done after a step.
    Afterwards(fn(&Step, &dyn Outsider)),
    /// Other facts are told. The second ones are the first that were ever read.
    Facts(fn(&mut HostFacts, &HostFacts)),
    /// Errors are kept secret.
    Errors,
    /// Nobody is woken.
    Wakes,
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

    fn environment(&self) -> Environment {
        self.bench.environment()
    }
}

/// A host with a defect.
struct BrokenHost<'a> {
    inner: Box<dyn Host + 'a>,
    wrong: Wrong,
    other_pf: PciAddress,
    outsider: &'a dyn Outsider,
    first_facts: Mutex<Option<HostFacts>>,
}

impl<'a> BrokenHost<'a> {
    fn new(bench: &'a dyn Bench, inner: Box<dyn Host + 'a>, defect: &Defect) -> Self {
        Self {
            inner,
            wrong: defect.wrong,
            other_pf: bench.other_pf(),
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
            let first = first.get_or_insert_with(|| facts.clone());
            distort(&mut facts, first);
        }
        Ok(facts)
    }

    fn start(&self, step: &Step) -> Result<Running<()>, HostError> {
        Ok(Running::completed(step.to_string(), self.execute(step)))
    }

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        let done = match self.wrong {
            Wrong::Skips(is_skipped) if is_skipped(step) => Ok(()),
            Wrong::Changes(change) => {
                let mut changed = step.clone();
                change(&mut changed, self.other_pf);
                self.inner.execute(&changed)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::mem::{Discriminant, discriminant};

    use super::*;

    #[test]
    fn the_kernel_is_given_one_defect_of_each_kind() {
        let kinds = |defects: &mut dyn Iterator<Item = &'static Defect>| {
            let mut kinds: Vec<(Discriminant<Wrong>, Vec<&str>)> = Vec::new();
            for defect in defects {
                let kind = discriminant(&defect.wrong);
                match kinds.iter_mut().find(|(known, _)| *known == kind) {
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
    fn every_defect_has_a_name_of_its_own() {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        all_defects().for_each(|defect| *names.entry(defect.name).or_default() += 1);
        assert!(names.values().all(|count| *count == 1), "{names:?}");
    }
}
