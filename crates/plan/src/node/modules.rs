//! Modules of the kernel that VFs need.

use super::planned;
use super::problem::Cause;
use super::wanted::WantedPf;
use crate::facts::{HostFacts, ModuleState, PfFacts};
use crate::modules::{KNOWN, WELCOME};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// The modules that a PF's VFs need, in the order in which they are loaded.
pub(super) fn needed(wanted: &WantedPf, found: &PfFacts, facts: &HostFacts) -> Vec<&'static str> {
    let mut names: BTreeSet<_> = wanted.groups.iter().flat_map(|group| group.wish.modules()).collect();
    let is_to_be_bound = found.driver.as_deref() != Some("vfio-pci");
    if found.is_lone_vf && is_to_be_bound && !facts.kernel.has_iommu && names.contains("vfio_pci") {
        // What it depends on would be loaded as well, but without the option that allows it to do without an IOMMU.
        names.insert("vfio");
    }
    KNOWN.into_iter().filter(|name| names.contains(name)).collect()
}

/// The modules that are nowhere on the machine.
pub(super) fn missing(wanted: &WantedPf, found: &PfFacts, facts: &HostFacts) -> Vec<Cause> {
    let is_missing = |module: &&str| !facts.kernel.modules.contains_key(*module);
    let needed = needed(wanted, found, facts).into_iter();
    needed.filter(is_missing).map(|module| Cause::MissingModule { module }).collect()
}

/// Loads those of `needed` that are not loaded, once each; and what programs in pods like to find beside VFs. Whether
/// vfio was loaded with its option nobody can tell, so it is loaded again: that sets it.
pub(super) fn load(needed: &BTreeSet<&'static str>, any_vfs: bool, facts: &HostFacts) -> Vec<PlannedStep> {
    let is_loadable = |name: &str| facts.kernel.modules.get(name) == Some(&ModuleState::Loadable);
    let wanted = |name: &str| needed.contains(name) || any_vfs && WELCOME.contains(&name);
    let is_set_again = |name: &str| name == "vfio" && needed.contains(name);
    let names = KNOWN.into_iter().filter(|name| wanted(name) && (is_loadable(name) || is_set_again(name)));
    names.map(|name| load_one(name, needed.contains(name))).collect()
}

fn load_one(name: &str, is_needed: bool) -> PlannedStep {
    let options = if name == "vfio" { vec!["enable_unsafe_noiommu_mode=1".to_owned()] } else { Vec::new() };
    let why = if is_needed { "VFs need it" } else { "programs that use VFs like to find it" };
    planned(Step::LoadModule { module: name.to_owned(), options }, Disruption::None, why)
}
