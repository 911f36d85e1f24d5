//! An IOMMU, for VFs that are handed to programs by vfio-pci.

use super::{Needs, SystemFault, SystemPlan, problem};
use crate::facts::{HostFacts, PfFacts, Processor};
use crate::kernel_arguments::{Wanted, missing};
use crate::node::wanted::WantedPf;
use crate::prelude::*;

/// An IOMMU that is at work is good, however it came about.
pub(super) fn plan(
    pfs: &[(WantedPf, &PfFacts)],
    facts: &HostFacts,
    plan: &mut SystemPlan,
    needs: &mut Needs,
) {
    let policies = policies_with_vfio(pfs);
    if policies.is_empty() || facts.kernel.has_iommu {
        return;
    }
    let wanted: &[Wanted] = match facts.kernel.processor {
        Processor::Intel => &[Wanted::IntelIommu, Wanted::IommuPassthrough],
        // Theirs is on unless somebody switched it off.
        Processor::Amd => &[Wanted::IommuPassthrough],
        Processor::Other => &[],
    };
    let missing = missing(wanted, &facts.kernel.command_line);
    if missing.is_empty() {
        plan.problems.push(problem(SystemFault::NoIommu, policies));
    } else if facts.kernel.boot_loader.is_none() {
        let arguments = missing.join(" ");
        plan.problems.push(problem(SystemFault::KernelArgumentsByHand { arguments }, policies));
    } else {
        needs.arguments.extend(wanted);
    }
}

fn policies_with_vfio(pfs: &[(WantedPf, &PfFacts)]) -> Vec<String> {
    let groups = pfs.iter().flat_map(|(wanted, _)| wanted.interface.vf_groups.iter().flatten());
    let vfio = groups.filter(|group| group.device_type.as_deref() == Some("vfio-pci"));
    let policies: BTreeSet<String> =
        vfio.map(|group| group.policy_name.clone().unwrap_or_default()).collect();
    policies.into_iter().collect()
}
