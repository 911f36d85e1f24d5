//! Checks of a PF before the first step.

use alloc::boxed::Box;

use super::creation::VfCreation;
use super::desired::DesiredPf;
use super::modules;
use super::problem::{Cause, Problem};
use super::protection::HostProtection;
use crate::external;
use crate::facts::{EswitchMode, Fact, HostFacts, LinkFacts, LinkKind, PfFacts};
use crate::guids::{GuidDemand, GuidSource};
use crate::prelude::*;

/// Returns the causes that prevent the desired state of a PF.
pub(super) fn check_managed(
    desired: &DesiredPf,
    observed: &PfFacts,
    link: &LinkFacts,
    creation: Option<VfCreation>,
    facts: &HostFacts,
) -> Vec<Cause> {
    let requested = desired.link_type();
    let link_type = (!requested.is_empty() && !requested.eq_ignore_ascii_case(link.kind.as_api()))
        .then(|| Cause::LinkType { requested: requested.to_owned(), observed: link.kind.as_api() });
    let count = (desired.num_vfs > observed.total_vfs)
        .then_some(Cause::TooManyVfs { requested: desired.num_vfs.into(), total: observed.total_vfs });
    let mtu = match (desired.highest_mtu(), link.max_mtu) {
        (Some(requested), Some(max)) if requested > max => Some(Cause::MtuTooHigh { requested, max }),
        _ => None,
    };
    let of_pf =
        [link_type, count, mtu, check_switchdev(desired, observed, link), check_iommu(desired, facts)];
    let in_use = check_use(desired, observed, creation, facts);
    let missing = modules::missing_modules(desired, observed, facts);
    of_pf.into_iter().flatten().chain(in_use).chain(missing).collect()
}

/// Returns the causes that prevent the desired state of a PF because the node uses it or one of its VFs.
pub(super) fn check_use(
    desired: &DesiredPf,
    observed: &PfFacts,
    creation: Option<VfCreation>,
    facts: &HostFacts,
) -> Vec<Cause> {
    let protection = HostProtection::for_desired(desired, facts);
    let removes_vfs = creation.is_some_and(|creation| creation.removes);
    let causes = [
        check_pf_in_use(observed, creation, &protection),
        check_mtu_in_use(desired, observed, &protection),
        removes_vfs.then(|| protection.removal_cause(observed)).flatten(),
    ];
    causes.into_iter().flatten().collect()
}

/// Returns the causes that prevent the desired state of VFs on an externally managed PF.
pub(super) fn check_external(desired: &DesiredPf, observed: &PfFacts, facts: &HostFacts) -> Vec<Cause> {
    let faults =
        external::check(&desired.external_requirements(), &observed.into()).into_iter().map(Cause::External);
    faults
        .chain(check_iommu(desired, facts))
        .chain(modules::missing_modules(desired, observed, facts))
        .collect()
}

/// Returns a cause if VFs need an IOMMU and there is none: then nothing is started on the PF. The remedy is reported
/// for the whole machine (`system::iommu`).
fn check_iommu(desired: &DesiredPf, facts: &HostFacts) -> Option<Cause> {
    let is_needed = desired.groups.iter().any(|group| group.settings.is_vfio());
    (is_needed && !facts.kernel.has_iommu).then_some(Cause::NoIommu)
}

/// Returns the source of the GUIDs of all desired VFs. A PF that cannot be read now may be on InfiniBand.
pub(super) fn guid_source(desired: &[DesiredPf], facts: &HostFacts) -> GuidSource {
    let may_need = |desired: &&DesiredPf| link_kind(desired, facts).is_none_or(needs_guids);
    let demands: Vec<_> = desired.iter().filter(may_need).map(guid_demand).collect();
    GuidSource::read(facts.guid_file.as_deref(), &facts.pfs, &demands)
}

/// Returns the problems of the whole GUID file, if a desired PF needs it.
pub(super) fn guid_problems(desired: &[DesiredPf], facts: &HostFacts, guids: &GuidSource) -> Vec<Problem> {
    let needs = |desired: &DesiredPf| {
        !desired.groups.is_empty() && link_kind(desired, facts).is_some_and(needs_guids)
    };
    let errors = guids.errors_of_unknown_pfs().filter(|_| desired.iter().any(needs));
    errors.map(|error| Problem::of_node(Cause::Guids(Box::new(error)))).collect()
}

/// Returns the source of the GUIDs of the PF's VFs; `None` if they need none.
pub(super) fn check_guids<'a>(
    desired: &DesiredPf,
    observed: &PfFacts,
    link: &LinkFacts,
    source: &'a GuidSource,
) -> Result<Option<&'a GuidSource>, Cause> {
    if !needs_guids(link.kind) || desired.groups.is_empty() {
        return Ok(None);
    }
    let checked = source.check(observed, &guid_demand(desired));
    checked.map(|()| Some(source)).map_err(|error| Cause::Guids(Box::new(error)))
}

fn needs_guids(kind: LinkKind) -> bool {
    kind == LinkKind::Infiniband
}

fn link_kind(desired: &DesiredPf, facts: &HostFacts) -> Option<LinkKind> {
    Some(facts.pf(desired.address)?.link.as_ref()?.kind)
}

fn guid_demand(desired: &DesiredPf) -> GuidDemand {
    GuidDemand { pf: desired.address, vfs: desired.groups.iter().map(|group| group.range).collect() }
}

fn check_switchdev(desired: &DesiredPf, observed: &PfFacts, link: &LinkFacts) -> Option<Cause> {
    match (desired.eswitch, link.kind, observed.eswitch) {
        (EswitchMode::Legacy, ..) | (_, LinkKind::Ethernet, Fact::Value(_) | Fact::Unknown) => None,
        (EswitchMode::Switchdev, LinkKind::Ethernet, Fact::None) => Some(no_eswitch(observed)),
        (EswitchMode::Switchdev, ..) => Some(Cause::SwitchdevNotEthernet),
    }
}

fn no_eswitch(observed: &PfFacts) -> Cause {
    let driver =
        observed.driver.as_ref().map_or_else(|| "the driver".to_owned(), |name| format!("driver {name}"));
    Cause::NoEswitch { driver }
}

fn check_pf_in_use(
    observed: &PfFacts,
    creation: Option<VfCreation>,
    protection: &HostProtection<'_>,
) -> Option<Cause> {
    let changes_mode = creation.is_some_and(VfCreation::changes_mode);
    Some(Cause::PfInUse { in_use: protection.pf(observed).filter(|_| changes_mode)? })
}

/// Returns a cause if the MTU of a PF in use would change: drivers reset the PF, and not every switch accepts longer
/// frames.
fn check_mtu_in_use(desired: &DesiredPf, pf: &PfFacts, protection: &HostProtection<'_>) -> Option<Cause> {
    let observed = pf.link.as_ref()?.mtu;
    let requested = desired.highest_mtu().filter(|requested| *requested > observed)?;
    Some(Cause::MtuOfPfInUse { requested, observed, in_use: protection.pf(pf)? })
}
