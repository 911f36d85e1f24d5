//! Planner of one VF of a desired PF: its MAC or GUID, driver, MTU and vDPA device. VFs in no group and VFs that the
//! node uses are never changed.

use vfleet_api::{MacAddr, VfRef};

use super::address;
use super::desired::{DesiredPf, DesiredVfGroup, VfSettings};
use super::pf::{is_bound_by_kernel, last_desired};
use super::planned;
use super::problem::Cause;
use super::protection::HostProtection;
use crate::facts::{Fact, HostFacts, PfFacts, Record, VdpaKind, VfFacts};
use crate::guids::GuidSource;
use crate::mtu::default_mtu;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step, VfDriver, is_userspace_driver};

/// Progress of creating the VFs of a PF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VfPhase {
    /// VFs are about to be created.
    New,
    /// VF creation was interrupted and continues. A VF that is bound to the desired driver may be in use already.
    Unfinished,
    /// VF creation is complete.
    Settled,
}

/// Steps for VFs.
#[derive(Debug, Default)]
pub(super) struct VfSteps {
    /// Addresses that the PF stores for VFs, which needs no driver.
    pub(super) addresses: Vec<PlannedStep>,
    /// Drivers, and settings that need a driver.
    pub(super) set_up: Vec<PlannedStep>,
}

impl VfSteps {
    pub(super) fn append(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        self.set_up.extend(other.set_up);
    }

    fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.set_up.is_empty()
    }

    /// Removes the steps of VFs that the kernel must bind, unless `autoprobe` is on. Returns whether there were any.
    pub(super) fn without_kernel_binds_unless(mut self, autoprobe: bool) -> (Self, bool) {
        let bound = self.set_up.iter().filter(|planned| !autoprobe && is_bound_by_kernel(planned));
        let unbindable: BTreeSet<_> = bound.filter_map(|planned| planned.step.vf()).collect();
        let is_kept = |planned: &PlannedStep| planned.step.vf().is_none_or(|vf| !unbindable.contains(&vf));
        self.addresses.retain(is_kept);
        self.set_up.retain(is_kept);
        (self, !unbindable.is_empty())
    }
}

/// Planner of the VFs of one PF.
pub(super) struct VfPlanner<'a> {
    pub(super) desired: &'a DesiredPf,
    pub(super) pf: &'a PfFacts,
    /// Last desired state of the PF.
    last: Option<DesiredPf>,
    /// VFs whose MTU an interrupted process was changing.
    mtu_changes: BTreeSet<u16>,
    /// Source of GUIDs, on InfiniBand.
    pub(super) guids: Option<&'a GuidSource>,
    pub(super) phase: VfPhase,
    /// MACs that something other than vfleet gave to VFs.
    macs: BTreeMap<u16, MacAddr>,
    protection: HostProtection<'a>,
}

impl<'a> VfPlanner<'a> {
    pub(super) fn new(
        desired: &'a DesiredPf,
        pf: &'a PfFacts,
        previous: Option<&Record>,
        guids: Option<&'a GuidSource>,
        phase: VfPhase,
        facts: &'a HostFacts,
    ) -> Self {
        let mtu_changes = previous.map(|record| record.mtu_changes.clone()).unwrap_or_default();
        let protection = HostProtection::for_desired(desired, facts);
        Self {
            desired,
            pf,
            last: last_desired(previous),
            mtu_changes,
            guids,
            phase,
            macs: BTreeMap::new(),
            protection,
        }
    }

    /// Returns the planner with these MACs for created VFs.
    pub(super) fn with_macs(self, macs: &BTreeMap<u16, MacAddr>) -> Self {
        Self { macs: macs.clone(), ..self }
    }

    /// Returns the number of VFs after creation.
    pub(super) fn count(&self) -> u16 {
        match self.phase {
            VfPhase::New => self.desired.num_vfs,
            VfPhase::Unfinished | VfPhase::Settled => u16::try_from(self.pf.vfs.len()).unwrap_or(u16::MAX),
        }
    }

    /// Returns the steps for one VF; an error if the VF needs steps and the node uses it.
    pub(super) fn plan(&self, index: u16) -> Result<VfSteps, Cause> {
        let Some(group) = self.desired.vf(index) else { return Ok(VfSteps::default()) };
        let observed = self.pf.vfs.iter().find(|vf| vf.index == index).filter(|_| self.phase != VfPhase::New);
        let Some(observed) = observed else { return Ok(self.plan_new_vf(group, index)) };
        let steps = self.plan_existing_vf(group, observed);
        // A VF that lost its driver gets it back, and with it the interface that the node used.
        let gets_driver_back = observed.driver.is_none() && group.settings.driver == VfDriver::Kernel;
        match self.protection.vf(observed) {
            Some(in_use) if !steps.is_empty() && !gets_driver_back => Err(Cause::VfInUse { index, in_use }),
            _ => Ok(steps),
        }
    }

    fn plan_new_vf(&self, group: &DesiredVfGroup, index: u16) -> VfSteps {
        let vf = self.vf(index);
        let why = format!("requested by policy {}", group.policy);
        VfSteps {
            addresses: address::plan_new_vf(self, vf).into_iter().collect(),
            set_up: bind(vf, group, Disruption::Vf, why),
        }
    }

    fn plan_existing_vf(&self, group: &DesiredVfGroup, observed: &VfFacts) -> VfSteps {
        let vf = self.vf(observed.index);
        let settings = &group.settings;
        let disruption = self.disruption(settings, observed);
        let stays_bound =
            observed.driver.as_ref().is_some_and(|driver| is_desired_driver(driver, &settings.driver));
        let is_repaired_later = self.is_repaired_later(settings, observed);
        if is_repaired_later && !stays_bound {
            return VfSteps::default();
        }
        let address = address::plan_existing_vf(self, settings, observed, stays_bound);
        // A new address disturbs only the holder of the VF.
        let address_disruption = if is_free(observed) { Disruption::Vf } else { Disruption::Drain };
        let rebind = match &observed.driver {
            None => Some((disruption, "the VF has no driver".to_owned())),
            Some(driver) if !stays_bound => Some((disruption, format!("the VF is bound to {driver}"))),
            Some(_) => address.rebind.map(|why| (address_disruption, why.to_owned())),
        };
        let set_up = match rebind {
            Some((disruption, why)) => {
                let mut steps = remove_vdpa(vf, observed, None, disruption);
                steps.extend(bind(vf, group, disruption, why));
                steps
            }
            None if is_repaired_later => Vec::new(),
            None => self.plan_changes(vf, group, observed, disruption),
        };
        VfSteps { addresses: address.step.into_iter().collect(), set_up }
    }

    /// Returns the disruption of changing driver or settings of the VF. It is low without a driver, and for a repair:
    /// the desired state did not change, and no pod holds an interface that is in the host's network namespace.
    fn disruption(&self, settings: &VfSettings, observed: &VfFacts) -> Disruption {
        let is_small = observed.driver.is_none() || self.is_repair(settings, observed);
        if is_small && is_free(observed) { Disruption::Vf } else { Disruption::Drain }
    }

    /// Returns whether the desired state of the VF did not change.
    fn is_repair(&self, settings: &VfSettings, observed: &VfFacts) -> bool {
        let last = self.last.as_ref().and_then(|last| last.vf(observed.index));
        last.is_some_and(|last| last.settings == *settings)
    }

    /// Returns whether a repair of the VF has to wait until its pod releases it: the CNI plugin changes driver and settings
    /// for the pod, and restores them afterwards.
    fn is_repaired_later(&self, settings: &VfSettings, observed: &VfFacts) -> bool {
        observed.is_attached()
            && self.phase == VfPhase::Settled
            && !self.mtu_changes.contains(&observed.index)
            && self.is_repair(settings, observed)
    }

    /// Returns VFs whose MTU is changed without the kernel reporting the result, in case this process is interrupted.
    pub(super) fn mtu_changes(&self) -> BTreeSet<u16> {
        let existing = self.pf.vfs.iter().filter(|_| self.phase != VfPhase::New);
        let changes = existing.filter(|observed| {
            let Some(VfSettings { driver, mtu, .. }) =
                self.desired.vf(observed.index).map(|group| &group.settings)
            else {
                return false;
            };
            let stays_bound = observed.driver.as_ref().is_some_and(|bound| is_desired_driver(bound, driver));
            let is_reported = observed.link.is_some() && mtu.is_some();
            stays_bound
                && !is_reported
                && self.protection.vf(observed).is_none()
                && self.mtu(observed).is_some()
        });
        changes.map(|observed| observed.index).collect()
    }

    /// Returns the MTU to set on a VF that stays bound, and the reason.
    ///
    /// The MTU of a VF that a pod holds cannot be read: it is set if the desired MTU changed. A VF without a desired
    /// MTU gets the default of the kernel, if it still has the MTU that vfleet set.
    fn mtu(&self, observed: &VfFacts) -> Option<(u32, String)> {
        let settings = &self.desired.vf(observed.index)?.settings;
        let pf = self.pf.link.as_ref()?;
        let last = self.last.as_ref().and_then(|last| last.vf(observed.index)?.settings.mtu);
        let was_interrupted = self.mtu_changes.contains(&observed.index);
        let default = default_mtu(pf.kind).min(pf.mtu);
        let is_kernel =
            settings.driver == VfDriver::Kernel && settings.vdpa.is_none() && observed.vdpa.is_none();
        match (&observed.link, settings.mtu) {
            (Some(link), Some(mtu)) => (link.mtu != mtu).then(|| (mtu, format!("the MTU is {}", link.mtu))),
            (Some(link), None) => {
                let is_ours = was_interrupted || last == Some(link.mtu);
                (is_ours && link.mtu != default)
                    .then(|| (default, "no policy requests another MTU anymore".to_owned()))
            }
            (None, mtu) => {
                let is_other = mtu.map_or(last.is_some_and(|last| last != default), |mtu| last != Some(mtu));
                (is_kernel && (was_interrupted || is_other))
                    .then(|| (mtu.unwrap_or(default), "a pod holds the VF, whose MTU is unknown".to_owned()))
            }
        }
    }

    /// Returns the steps for a VF that stays bound.
    fn plan_changes(
        &self,
        vf: VfRef,
        group: &DesiredVfGroup,
        observed: &VfFacts,
        disruption: Disruption,
    ) -> Vec<PlannedStep> {
        let mut steps = Vec::new();
        if let Some((mtu, why)) = self.mtu(observed) {
            steps.push(planned(Step::SetVfMtu { vf, mtu }, disruption, why));
        }
        steps.extend(remove_vdpa(vf, observed, group.settings.vdpa, disruption));
        if let Some(kind) = group.settings.vdpa.filter(|kind| observed.vdpa != Some(*kind)) {
            let why = format!("requested by policy {}", group.policy);
            steps.push(planned(Step::MakeVdpa { vf, kind }, disruption, why));
        }
        steps
    }

    fn vf(&self, index: u16) -> VfRef {
        VfRef { pf: self.desired.address, index }
    }

    /// Returns whether something other than vfleet gave the VF its MAC.
    pub(super) fn has_foreign_mac(&self, index: u16) -> bool {
        self.macs.contains_key(&index)
    }

    /// Returns the MAC with which the VF is created; `None` if VFs of the PF have none.
    pub(super) fn mac(&self, index: u16) -> Option<MacAddr> {
        let own = crate::mac::own_mac(self.pf, index)?;
        Some(self.macs.get(&index).copied().unwrap_or(own))
    }
}

/// Returns whether no pod and no program holds the VF.
pub(super) fn is_free(observed: &VfFacts) -> bool {
    observed.attachment == Fact::None && (observed.driver.is_none() || observed.link.is_some())
}

/// Returns whether `driver` is the desired one.
pub(super) fn is_desired_driver(driver: &str, desired: &VfDriver) -> bool {
    match desired {
        VfDriver::Kernel => !is_userspace_driver(driver),
        VfDriver::Named(name) => driver == name,
    }
}

/// Returns the steps that bind a VF and configure what needs the driver.
fn bind(vf: VfRef, group: &DesiredVfGroup, disruption: Disruption, why: String) -> Vec<PlannedStep> {
    let VfSettings { driver, mtu, vdpa, .. } = &group.settings;
    let requested_by = || format!("requested by policy {}", group.policy);
    let mut steps = vec![planned(Step::BindVf { vf, driver: driver.clone() }, disruption, why)];
    if let (VfDriver::Kernel, Some(mtu)) = (driver, *mtu) {
        steps.push(planned(Step::SetVfMtu { vf, mtu }, Disruption::Vf, requested_by()));
    }
    if let Some(kind) = *vdpa {
        steps.push(planned(Step::MakeVdpa { vf, kind }, Disruption::Vf, requested_by()));
    }
    steps
}

fn remove_vdpa(
    vf: VfRef,
    observed: &VfFacts,
    keep: Option<VdpaKind>,
    disruption: Disruption,
) -> Vec<PlannedStep> {
    match observed.vdpa {
        Some(kind) if Some(kind) != keep => {
            let why = format!("its driver is {}", kind.driver());
            vec![planned(Step::RemoveVdpa { vf }, disruption, why)]
        }
        _ => Vec::new(),
    }
}
