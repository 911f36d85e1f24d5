//! An IOMMU, for VFs that are handed to programs by vfio-pci.

use super::{ArgumentNeed, Needs, SystemFault, SystemPlan, problem};
use crate::facts::{HostFacts, PfFacts, Processor};
use crate::kernel_arguments::{Wanted, switching_iommu_off};
use crate::node::wanted::WantedPf;
use crate::prelude::*;

/// An IOMMU that is at work is good, however it came about.
pub(super) fn plan(
    pfs: &[(&WantedPf, &PfFacts)],
    unseen: &[&WantedPf],
    facts: &HostFacts,
    plan: &mut SystemPlan,
    needs: &mut Needs,
) {
    let policies = policies_with_vfio(pfs.iter().map(|(wanted, _)| *wanted));
    let may_be_needed = !policies_with_vfio(unseen.iter().copied()).is_empty();
    let kernel = &facts.kernel;
    if kernel.has_iommu || policies.is_empty() && !may_be_needed {
        return;
    }
    let with: &[Wanted] = match kernel.processor {
        Processor::Intel => &[Wanted::IntelIommu, Wanted::IommuPassthrough],
        // Theirs is on unless somebody switched it off.
        Processor::Amd | Processor::Other => &[],
    };
    let need = ArgumentNeed::new(with, switching_iommu_off(&kernel.command_line));
    match need.by_hand(&kernel.command_line) {
        _ if policies.is_empty() => needs.open.extend([need.name]),
        None => plan.problems.push(problem(SystemFault::NoIommu, policies)),
        Some(how) if kernel.boot_loader.is_none() => {
            plan.problems.push(problem(SystemFault::KernelArgumentsByHand { how }, policies));
        }
        Some(_) => needs.arguments.push(need),
    }
}

fn policies_with_vfio<'a>(pfs: impl Iterator<Item = &'a WantedPf>) -> Vec<String> {
    let groups = pfs.flat_map(|wanted| &wanted.groups);
    let vfio = groups.filter(|group| group.wish.is_vfio());
    let policies: BTreeSet<String> = vfio.map(|group| group.policy.clone()).collect();
    policies.into_iter().collect()
}
