//! One VF of a wanted PF: its address or GUID, driver, MTU and vDPA device. A VF that no group asks for is never
//! touched, nor one that the node itself uses.

use vfleet_api::{MacAddr, VfRef};

use super::address;
use super::pf::{is_bound_by_kernel, last_wanted};
use super::planned;
use super::problem::Cause;
use super::protection::Guard;
use super::wanted::{VfWish, WantedPf, WantedVfs};
use crate::facts::{HostFacts, PfFacts, Record, VdpaKind, VfFacts};
use crate::guids::GuidSource;
use crate::mtu::usual_mtu;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step, VfDriver, is_userspace_driver};

/// How far the VFs of a PF are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// They are about to be made.
    New,
    /// Their making was cut off: as new ones, except what is done already. A VF that is bound as wanted may be in use
    /// by now.
    Unfinished,
    /// They are there.
    Settled,
}

/// Steps about VFs.
#[derive(Debug, Default)]
pub(super) struct VfSteps {
    /// What the PF keeps for them: this needs no driver.
    pub(super) addresses: Vec<PlannedStep>,
    /// Drivers, and what comes after them.
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

    /// Leaves out VFs that the kernel shall bind, unless it does so; whether there were any.
    pub(super) fn without_binds_by_kernel_unless(mut self, it_does: bool) -> (Self, bool) {
        let bound = self.set_up.iter().filter(|planned| !it_does && is_bound_by_kernel(planned));
        let stuck: BTreeSet<_> = bound.filter_map(|planned| planned.step.vf()).collect();
        let goes_on = |planned: &PlannedStep| planned.step.vf().is_none_or(|vf| !stuck.contains(&vf));
        self.addresses.retain(goes_on);
        self.set_up.retain(goes_on);
        (self, !stuck.is_empty())
    }
}

/// All that counts for the VFs of one PF.
pub(super) struct VfPlanner<'a> {
    pub(super) wanted: &'a WantedPf,
    pub(super) pf: &'a PfFacts,
    /// What the PF was last wanted to be.
    last: Option<WantedPf>,
    /// VFs whose MTU was being changed by a process that was cut off.
    mtu_changes: BTreeSet<u16>,
    /// Where GUIDs come from, on InfiniBand.
    pub(super) guids: Option<&'a GuidSource>,
    pub(super) phase: Phase,
    /// Addresses that somebody else gave to VFs.
    macs: BTreeMap<u16, MacAddr>,
    guard: Guard<'a>,
}

impl<'a> VfPlanner<'a> {
    pub(super) fn new(
        wanted: &'a WantedPf,
        pf: &'a PfFacts,
        old: Option<&Record>,
        guids: Option<&'a GuidSource>,
        phase: Phase,
        facts: &'a HostFacts,
    ) -> Self {
        let mtu_changes = old.map(|record| record.mtu_changes.clone()).unwrap_or_default();
        let guard = Guard::of_wanted(wanted, facts);
        Self { wanted, pf, last: last_wanted(old), mtu_changes, guids, phase, macs: BTreeMap::new(), guard }
    }

    /// The same, with these addresses for VFs that are made.
    pub(super) fn with_macs(self, macs: &BTreeMap<u16, MacAddr>) -> Self {
        Self { macs: macs.clone(), ..self }
    }

    /// How many VFs there are, or will be.
    pub(super) fn count(&self) -> u16 {
        match self.phase {
            Phase::New => self.wanted.num_vfs,
            Phase::Unfinished | Phase::Settled => u16::try_from(self.pf.vfs.len()).unwrap_or(u16::MAX),
        }
    }

    /// The steps for one VF; an error if it would need some and the node itself uses it.
    pub(super) fn plan(&self, index: u16) -> Result<VfSteps, Cause> {
        let Some(group) = self.wanted.vf(index) else { return Ok(VfSteps::default()) };
        let found = self.pf.vfs.iter().find(|vf| vf.index == index).filter(|_| self.phase != Phase::New);
        let Some(found) = found else { return Ok(self.new_vf(group, index)) };
        let steps = self.existing_vf(group, found);
        // One that lost its driver gets it again, and with it what the node used it for.
        let is_healed = found.driver.is_none() && group.wish.driver == VfDriver::Kernel;
        match self.guard.vf(found) {
            Some(in_use) if !steps.is_empty() && !is_healed => Err(Cause::VfInUse { index, in_use }),
            _ => Ok(steps),
        }
    }

    fn new_vf(&self, group: &WantedVfs, index: u16) -> VfSteps {
        let vf = self.vf(index);
        let why = format!("wanted by policy {}", group.policy);
        VfSteps {
            addresses: address::of_new_vf(self, vf).into_iter().collect(),
            set_up: bind(vf, group, Disruption::Vf, why),
        }
    }

    fn existing_vf(&self, group: &WantedVfs, found: &VfFacts) -> VfSteps {
        let vf = self.vf(found.index);
        let wish = &group.wish;
        let disruption = self.disruption(wish, found);
        let stays_bound = found.driver.as_ref().is_some_and(|driver| is_wanted(driver, &wish.driver));
        let address = address::of_existing_vf(self, wish, found, stays_bound);
        // An address disturbs only those who hold the VF, whether it is new or lost.
        let by_address = if is_free(found) { Disruption::Vf } else { Disruption::Drain };
        let rebind = match &found.driver {
            None => Some((disruption, "it is bound to no driver".to_owned())),
            Some(driver) if !stays_bound => Some((disruption, format!("it is bound to {driver}"))),
            Some(_) => address.rebind.map(|why| (by_address, why.to_owned())),
        };
        let set_up = match rebind {
            Some((disruption, why)) => {
                let mut steps = remove_vdpa(vf, found, None, disruption);
                steps.extend(bind(vf, group, disruption, why));
                steps
            }
            None => self.change(vf, group, found, disruption),
        };
        VfSteps { addresses: address.step.into_iter().collect(), set_up }
    }

    /// Whom a change of this VF's driver, MTU... disturbs. Nobody, if it has no driver. What is healed is not changed:
    /// the same was wanted before, and an interface that is in the host's own namespace is in no pod.
    fn disruption(&self, wish: &VfWish, found: &VfFacts) -> Disruption {
        let last = self.last.as_ref().and_then(|last| last.vf(found.index));
        let is_heal = last.is_some_and(|last| last.wish == *wish);
        if found.driver.is_none() || is_heal && is_free(found) { Disruption::Vf } else { Disruption::Drain }
    }

    /// VFs whose MTU changes in a way that the kernel does not show when this process is cut off.
    pub(super) fn mtu_changes(&self) -> BTreeSet<u16> {
        let existing = self.pf.vfs.iter().filter(|_| self.phase != Phase::New);
        let changes = existing.filter(|found| {
            let Some(VfWish { driver, mtu, .. }) = self.wanted.vf(found.index).map(|group| &group.wish)
            else {
                return false;
            };
            let stays_bound = found.driver.as_ref().is_some_and(|bound| is_wanted(bound, driver));
            let is_shown = found.link.is_some() && mtu.is_some();
            stays_bound && !is_shown && self.guard.vf(found).is_none() && self.mtu(found).is_some()
        });
        changes.map(|found| found.index).collect()
    }

    /// The MTU that a VF in a group is to be given while it stays bound, and why.
    ///
    /// The MTU of a VF that a pod holds cannot be read. It is to be changed when something else was wanted before. Who
    /// asks for no MTU any more gets the kernel's usual one, where ours is still there.
    fn mtu(&self, found: &VfFacts) -> Option<(u32, String)> {
        let wish = &self.wanted.vf(found.index)?.wish;
        let pf = self.pf.link.as_ref()?;
        let last = self.last.as_ref().and_then(|last| last.vf(found.index)?.wish.mtu);
        let is_begun = self.mtu_changes.contains(&found.index);
        let usual = usual_mtu(pf.kind).min(pf.mtu);
        let is_kernel = wish.driver == VfDriver::Kernel && wish.vdpa.is_none() && found.vdpa.is_none();
        match (&found.link, wish.mtu) {
            (Some(link), Some(mtu)) => (link.mtu != mtu).then(|| (mtu, format!("it has {}", link.mtu))),
            (Some(link), None) => {
                let is_ours = is_begun || last == Some(link.mtu);
                (is_ours && link.mtu != usual)
                    .then(|| (usual, "no policy asks for another any more".to_owned()))
            }
            (None, mtu) => {
                let is_other = mtu.map_or(last.is_some_and(|last| last != usual), |mtu| last != Some(mtu));
                (is_kernel && (is_begun || is_other))
                    .then(|| (mtu.unwrap_or(usual), "a pod holds it, and it may have another".to_owned()))
            }
        }
    }

    /// What is to be changed of a VF that stays bound.
    fn change(
        &self,
        vf: VfRef,
        group: &WantedVfs,
        found: &VfFacts,
        disruption: Disruption,
    ) -> Vec<PlannedStep> {
        let mut steps = Vec::new();
        if let Some((mtu, why)) = self.mtu(found) {
            steps.push(planned(Step::SetVfMtu { vf, mtu }, disruption, why));
        }
        steps.extend(remove_vdpa(vf, found, group.wish.vdpa, disruption));
        if let Some(kind) = group.wish.vdpa.filter(|kind| found.vdpa != Some(*kind)) {
            let why = format!("wanted by policy {}", group.policy);
            steps.push(planned(Step::MakeVdpa { vf, kind }, disruption, why));
        }
        steps
    }

    fn vf(&self, index: u16) -> VfRef {
        VfRef { pf: self.wanted.address, index }
    }

    /// Whether somebody else gave the VF the address that it is made with.
    pub(super) fn is_given(&self, index: u16) -> bool {
        self.macs.contains_key(&index)
    }

    /// The address that a VF of this PF is made with; `None` where VFs have none.
    pub(super) fn mac(&self, index: u16) -> Option<MacAddr> {
        let own = crate::mac::own_mac(self.pf, index)?;
        Some(self.macs.get(&index).copied().unwrap_or(own))
    }
}

/// Whether no pod and no program holds it.
pub(super) fn is_free(found: &VfFacts) -> bool {
    found.driver.is_none() || found.link.is_some()
}

/// Whether a driver is the wanted one.
pub(super) fn is_wanted(driver: &str, wanted: &VfDriver) -> bool {
    match wanted {
        VfDriver::Kernel => !is_userspace_driver(driver),
        VfDriver::Named(name) => driver == name,
    }
}

/// Binds a VF and sets up what comes with its driver.
fn bind(vf: VfRef, group: &WantedVfs, disruption: Disruption, why: String) -> Vec<PlannedStep> {
    let VfWish { driver, mtu, vdpa, .. } = &group.wish;
    let wanted_by = || format!("wanted by policy {}", group.policy);
    let mut steps = vec![planned(Step::BindVf { vf, driver: driver.clone() }, disruption, why)];
    if let (VfDriver::Kernel, Some(mtu)) = (driver, *mtu) {
        steps.push(planned(Step::SetVfMtu { vf, mtu }, Disruption::Vf, wanted_by()));
    }
    if let Some(kind) = *vdpa {
        steps.push(planned(Step::MakeVdpa { vf, kind }, Disruption::Vf, wanted_by()));
    }
    steps
}

fn remove_vdpa(
    vf: VfRef,
    found: &VfFacts,
    keep: Option<VdpaKind>,
    disruption: Disruption,
) -> Vec<PlannedStep> {
    match found.vdpa {
        Some(kind) if Some(kind) != keep => {
            let why = format!("it is one for {}", kind.driver());
            vec![planned(Step::RemoveVdpa { vf }, disruption, why)]
        }
        _ => Vec::new(),
    }
}
