//! Kernel modules that VFs need.

use super::desired::DesiredPf;
use super::planned;
use super::problem::Cause;
use crate::facts::{HostFacts, ModuleState, PfFacts};
use crate::modules::{KNOWN_MODULES, OPTIONAL_MODULES};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// Returns the modules that the VFs of a PF need, in the order in which they are loaded.
pub(super) fn needed_modules(
    desired: &DesiredPf,
    observed: &PfFacts,
    facts: &HostFacts,
) -> Vec<&'static str> {
    let mut names: BTreeSet<_> = desired.groups.iter().flat_map(|group| group.settings.modules()).collect();
    let needs_bind = observed.driver.as_deref() != Some("vfio-pci");
    if observed.is_lone_vf && needs_bind && !facts.kernel.has_iommu && names.contains("vfio_pci") {
        // vfio_pci would load vfio too, but without the option that makes it work without an IOMMU.
        names.insert("vfio");
    }
    KNOWN_MODULES.into_iter().filter(|name| names.contains(name)).collect()
}

/// Returns a cause for each needed module that is not installed.
pub(super) fn missing_modules(desired: &DesiredPf, observed: &PfFacts, facts: &HostFacts) -> Vec<Cause> {
    let is_missing = |module: &&str| !facts.kernel.modules.contains_key(*module);
    let needed = needed_modules(desired, observed, facts).into_iter();
    needed.filter(is_missing).map(|module| Cause::MissingModule { module }).collect()
}

/// Returns the steps that load each module of `needed` that is not loaded, and the optional modules. vfio is always
/// loaded again: the kernel does not report its option, and loading it again sets the option.
pub(super) fn load_modules(
    needed: &BTreeSet<&'static str>,
    any_vfs: bool,
    facts: &HostFacts,
) -> Vec<PlannedStep> {
    let is_loadable = |name: &str| facts.kernel.modules.get(name) == Some(&ModuleState::Loadable);
    let is_useful = |name: &str| needed.contains(name) || any_vfs && OPTIONAL_MODULES.contains(&name);
    let is_reloaded = |name: &str| name == "vfio" && needed.contains(name);
    let names =
        KNOWN_MODULES.into_iter().filter(|name| is_useful(name) && (is_loadable(name) || is_reloaded(name)));
    names.map(|name| load_module(name, needed.contains(name))).collect()
}

fn load_module(name: &str, is_needed: bool) -> PlannedStep {
    let options = if name == "vfio" { vec!["enable_unsafe_noiommu_mode=1".to_owned()] } else { Vec::new() };
    let why = if is_needed { "VFs need it" } else { "pods with VFs often use it" };
    planned(Step::LoadModule { module: name.to_owned(), options }, Disruption::None, why)
}
