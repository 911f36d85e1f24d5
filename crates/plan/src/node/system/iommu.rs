//! An IOMMU, for VFs that are handed to programs by vfio-pci.

use super::{ArgumentNeed, Needs, SystemFault, SystemPlan, problem};
use crate::facts::{HostFacts, PfFacts, Processor};
use crate::kernel_arguments::{Wanted, switching_iommu_off};
use crate::node::wanted::WantedPf;
use crate::prelude::*;

/// An IOMMU that is at work is good, however it came about.
pub(super) fn plan(
    pfs: &[(&WantedPf, &PfFacts)],
    facts: &HostFacts,
    plan: &mut SystemPlan,
    needs: &mut Needs,
) {
    let policies = policies_with_vfio(pfs);
    let kernel = &facts.kernel;
    if policies.is_empty() || kernel.has_iommu {
        return;
    }
    let with: &[Wanted] = match kernel.processor {
        Processor::Intel => &[Wanted::IntelIommu, Wanted::IommuPassthrough],
        // Theirs is on unless somebody switched it off.
        Processor::Amd | Processor::Other => &[],
    };
    let need = ArgumentNeed::new(with, switching_iommu_off(&kernel.command_line));
    match need.by_hand(&kernel.command_line) {
        None => plan.problems.push(problem(SystemFault::NoIommu, policies)),
        Some(how) if kernel.boot_loader.is_none() => {
            plan.problems.push(problem(SystemFault::KernelArgumentsByHand { how }, policies));
        }
        Some(_) => needs.arguments.push(need),
    }
}

fn policies_with_vfio(pfs: &[(&WantedPf, &PfFacts)]) -> Vec<String> {
    let groups = pfs.iter().flat_map(|(wanted, _)| &wanted.groups);
    let vfio = groups.filter(|group| group.wish.is_vfio());
    let policies: BTreeSet<String> = vfio.map(|group| group.policy.clone()).collect();
    policies.into_iter().collect()
}
