//! Everything that can be known of a PF before the first change.

use alloc::boxed::Box;

use super::making::Making;
use super::modules;
use super::problem::{Cause, Problem};
use super::protection::Guard;
use super::wanted::WantedPf;
use crate::external;
use crate::facts::{EswitchMode, Fact, HostFacts, LinkFacts, LinkKind, PfFacts};
use crate::guids::{GuidDemand, GuidSource};
use crate::prelude::*;

/// All that stands against a PF of our own.
pub(super) fn check_own(
    wanted: &WantedPf,
    found: &PfFacts,
    link: &LinkFacts,
    making: Option<Making>,
    facts: &HostFacts,
) -> Vec<Cause> {
    let asked = wanted.link_type();
    let link_type = (!asked.is_empty() && !asked.eq_ignore_ascii_case(link.kind.as_api()))
        .then(|| Cause::LinkType { asked: asked.to_owned(), found: link.kind.as_api() });
    let count = (wanted.num_vfs > found.total_vfs)
        .then_some(Cause::TooManyVfs { asked: wanted.num_vfs.into(), total: found.total_vfs });
    let mtu = match (wanted.highest_mtu(), link.max_mtu) {
        (Some(asked), Some(max)) if asked > max => Some(Cause::MtuTooHigh { asked, max }),
        _ => None,
    };
    let of_pf = [link_type, count, mtu, switchdev(wanted, found, link), iommu(wanted, facts)];
    let in_use = check_use(wanted, found, making, facts);
    let missing = modules::missing(wanted, found, facts);
    of_pf.into_iter().flatten().chain(in_use).chain(missing).collect()
}

/// All that stands against a PF of our own because of what the node itself uses.
pub(super) fn check_use(
    wanted: &WantedPf,
    found: &PfFacts,
    making: Option<Making>,
    facts: &HostFacts,
) -> Vec<Cause> {
    let guard = Guard::of_wanted(wanted, facts);
    let all_go = making.is_some_and(|making| making.removes);
    let causes = [
        pf_in_use(found, making, &guard),
        mtu_in_use(wanted, found, &guard),
        all_go.then(|| guard.any_vf(found)).flatten(),
    ];
    causes.into_iter().flatten().collect()
}

/// All that stands against VFs on a PF that is managed outside.
pub(super) fn check_external(wanted: &WantedPf, found: &PfFacts, facts: &HostFacts) -> Vec<Cause> {
    let faults = external::check(&wanted.external_wish(), &found.into()).into_iter().map(Cause::External);
    faults.chain(iommu(wanted, facts)).chain(modules::missing(wanted, found, facts)).collect()
}

/// Without an IOMMU no VF can be bound to vfio-pci: nothing is begun that cannot be ended. What to do about it is said
/// for the whole machine (`system::iommu`).
fn iommu(wanted: &WantedPf, facts: &HostFacts) -> Option<Cause> {
    let is_needed = wanted.groups.iter().any(|group| group.wish.is_vfio());
    (is_needed && !facts.kernel.has_iommu).then_some(Cause::NoIommu)
}

/// Returns where the VFs of all desired PFs get their GUIDs from. A PF that cannot be read now may be on InfiniBand.
pub(super) fn guid_source(wanted: &[WantedPf], facts: &HostFacts) -> GuidSource {
    let may_need = |wanted: &&WantedPf| link_kind(wanted, facts).is_none_or(needs_guids);
    let demands: Vec<_> = wanted.iter().filter(may_need).map(guid_demand).collect();
    GuidSource::read(facts.guid_file.as_deref(), &facts.pfs, &demands)
}

/// Returns what is wrong with the whole file of GUIDs, where a desired PF needs it.
pub(super) fn guid_problems(wanted: &[WantedPf], facts: &HostFacts, guids: &GuidSource) -> Vec<Problem> {
    let needs =
        |wanted: &WantedPf| !wanted.groups.is_empty() && link_kind(wanted, facts).is_some_and(needs_guids);
    let faults = guids.faults_of_unknown_pfs().filter(|_| wanted.iter().any(needs));
    faults.map(|error| Problem::of_the_node(Cause::Guids(Box::new(error)))).collect()
}

/// Returns where VFs of a PF get their GUIDs from; `None` where they have none.
pub(super) fn guids<'a>(
    wanted: &WantedPf,
    found: &PfFacts,
    link: &LinkFacts,
    source: &'a GuidSource,
) -> Result<Option<&'a GuidSource>, Cause> {
    if !needs_guids(link.kind) || wanted.groups.is_empty() {
        return Ok(None);
    }
    let checked = source.check(found, &guid_demand(wanted));
    checked.map(|()| Some(source)).map_err(|error| Cause::Guids(Box::new(error)))
}

fn needs_guids(kind: LinkKind) -> bool {
    kind == LinkKind::Infiniband
}

fn link_kind(wanted: &WantedPf, facts: &HostFacts) -> Option<LinkKind> {
    Some(facts.pf(wanted.address)?.link.as_ref()?.kind)
}

fn guid_demand(wanted: &WantedPf) -> GuidDemand {
    GuidDemand { pf: wanted.address, vfs: wanted.groups.iter().map(|group| group.range).collect() }
}

fn switchdev(wanted: &WantedPf, found: &PfFacts, link: &LinkFacts) -> Option<Cause> {
    match (wanted.eswitch, link.kind, found.eswitch) {
        (EswitchMode::Legacy, ..) | (_, LinkKind::Ethernet, Fact::Value(_) | Fact::Unknown) => None,
        (EswitchMode::Switchdev, LinkKind::Ethernet, Fact::None) => Some(Cause::NoEswitch),
        (EswitchMode::Switchdev, ..) => Some(Cause::SwitchdevNotEthernet),
    }
}

fn pf_in_use(found: &PfFacts, making: Option<Making>, guard: &Guard<'_>) -> Option<Cause> {
    let changes_mode = making.is_some_and(Making::changes_mode);
    Some(Cause::PfInUse { in_use: guard.pf(found).filter(|_| changes_mode)? })
}

/// Drivers restart a PF to give it another MTU, and not every switch takes the longer frames.
fn mtu_in_use(wanted: &WantedPf, pf: &PfFacts, guard: &Guard<'_>) -> Option<Cause> {
    let found = pf.link.as_ref()?.mtu;
    let asked = wanted.highest_mtu().filter(|asked| *asked > found)?;
    Some(Cause::MtuOfPfInUse { asked, found, in_use: guard.pf(pf)? })
}
