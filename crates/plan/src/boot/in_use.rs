//! What carries the node's own traffic is not touched at boot either. Before the network there is neither a route nor an
//! address to tell it by: the agent, which sees both, writes it down.

use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::facts::{HostFacts, HostUse};
use crate::node::{Cause, plan_before_network};
use crate::prelude::*;

/// PFs that are not as wanted, and left so because the node itself uses them. Not those that were once made what is
/// wanted now: they are so at every boot, and then the network starts on them.
pub fn refused(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> BTreeMap<PciAddress, HostUse> {
    let problems = plan_before_network(spec, facts).problems.into_iter();
    let in_use = problems.filter_map(|problem| match problem.cause {
        Cause::PfInUse { host_use } | Cause::MtuOfPfInUse { host_use, .. } => Some((problem.pf?, host_use)),
        _ => None,
    });
    in_use.filter(|(pf, _)| !was_once(*pf, spec, facts)).collect()
}

fn was_once(pf: PciAddress, spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> bool {
    let wanted = spec.interfaces.iter().flatten().find(|one| one.pci_address.value() == Ok(&pf));
    facts.record(pf).is_some_and(|record| Some(&record.interface) == wanted)
}

/// The machine, with what is known of it from before its start.
pub(super) fn known(facts: &HostFacts, in_use: &BTreeMap<PciAddress, HostUse>) -> HostFacts {
    let mut facts = facts.clone();
    for pf in &mut facts.pfs {
        if let (Some(link), Some(host_use)) = (&mut pf.link, in_use.get(&pf.address)) {
            link.host_use.get_or_insert(*host_use);
        }
    }
    facts
}
