//! IOMMU, which vfio-pci requires.

use super::{ArgumentNeed, RebootNeeds, SystemFault, SystemPlan, problem};
use crate::facts::{HostFacts, PfFacts, Processor};
use crate::kernel_arguments::{KernelArgument, iommu_off_arguments};
use crate::node::desired::DesiredPf;
use crate::prelude::*;

/// Plans the kernel arguments that enable an IOMMU, if one is needed and none is active.
pub(super) fn plan(
    pfs: &[(&DesiredPf, &PfFacts)],
    missing: &[&DesiredPf],
    facts: &HostFacts,
    plan: &mut SystemPlan,
    needs: &mut RebootNeeds,
) {
    let policies = policies_with_vfio(pfs.iter().map(|(desired, _)| *desired));
    let may_be_needed = !policies_with_vfio(missing.iter().copied()).is_empty();
    let kernel = &facts.kernel;
    if kernel.has_iommu || policies.is_empty() && !may_be_needed {
        return;
    }
    let with: &[KernelArgument] = match kernel.processor {
        Processor::Intel => &[KernelArgument::IntelIommu, KernelArgument::IommuPassthrough],
        // These processors enable it by default.
        Processor::Amd | Processor::Other => &[],
    };
    let need = ArgumentNeed::new(with, iommu_off_arguments(&kernel.command_line));
    match need.manual_changes(&kernel.command_line) {
        _ if policies.is_empty() => needs.open.extend([need.name]),
        None => plan.problems.push(problem(SystemFault::NoIommu, policies)),
        Some(how) if kernel.boot_loader.is_none() => {
            plan.problems.push(problem(SystemFault::KernelArgumentsRequired { how }, policies));
        }
        Some(_) => needs.arguments.push(need),
    }
}

fn policies_with_vfio<'a>(pfs: impl Iterator<Item = &'a DesiredPf>) -> Vec<String> {
    let groups = pfs.flat_map(|desired| &desired.groups);
    let vfio = groups.filter(|group| group.settings.is_vfio());
    let policies: BTreeSet<String> = vfio.map(|group| group.policy.clone()).collect();
    policies.into_iter().collect()
}
