//! Everything that can be known of a PF before the first change.

use alloc::boxed::Box;

use super::making::Making;
use super::modules;
use super::problem::Cause;
use super::protection::Guard;
use super::wanted::WantedPf;
use crate::external;
use crate::facts::{EswitchMode, HostFacts, LinkFacts, LinkKind, PfFacts};
use crate::guids::GuidSource;
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

/// Where VFs get their GUIDs from; `None` where they have none.
pub(super) fn guids(
    wanted: &WantedPf,
    found: &PfFacts,
    link: &LinkFacts,
    facts: &HostFacts,
) -> Result<Option<GuidSource>, Cause> {
    if link.kind != LinkKind::Infiniband || wanted.groups.is_empty() {
        return Ok(None);
    }
    let source = GuidSource::read(facts.guid_file.as_deref()).and_then(|source| {
        source.check(found, wanted.num_vfs)?;
        Ok(source)
    });
    source.map(Some).map_err(|error| Cause::Guids(Box::new(error)))
}

fn switchdev(wanted: &WantedPf, found: &PfFacts, link: &LinkFacts) -> Option<Cause> {
    match (wanted.eswitch, link.kind, found.eswitch) {
        (EswitchMode::Legacy, ..) | (_, LinkKind::Ethernet, Some(_)) => None,
        (EswitchMode::Switchdev, LinkKind::Ethernet, None) => Some(Cause::NoEswitch),
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
