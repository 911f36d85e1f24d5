//! Creation of VFs, including the change of the eswitch mode before or after it.

use super::desired::DesiredPf;
use super::planned;
use crate::facts::{EswitchMode, Fact, KernelFacts, ModeOrder, ModeTrial, PfFacts, Record};
use crate::prelude::*;
use crate::quirks;
use crate::step::{Disruption, PlannedStep, Step};

/// Creation of VFs, because their number or the eswitch mode differs from the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VfCreation {
    /// Existing VFs are removed first.
    pub(super) removes: bool,
    /// Disruption of the removal; low if no VF has a driver.
    removal_disruption: Disruption,
    /// Order of creation and mode change.
    order: ModeOrder,
    /// Eswitch mode that is set while there are no VFs.
    mode_before: Option<EswitchMode>,
    /// Eswitch mode that is set after the VFs are created, while they have no driver.
    mode_after: Option<EswitchMode>,
    /// Software steering is set, which is possible only in legacy mode without VFs.
    sets_steering: bool,
}

impl VfCreation {
    /// Returns the creation in this order; `None` if number of VFs and eswitch mode match the desired state. An unknown
    /// mode does not count as switchdev, unless no VFs are desired.
    pub(super) fn needed(
        desired: &DesiredPf,
        observed: &PfFacts,
        previous: Option<&Record>,
        order: ModeOrder,
    ) -> Option<Self> {
        let is_other_mode = observed.eswitch != Fact::None && !has_desired_mode(desired, observed, previous);
        if observed.vfs.len() == usize::from(desired.num_vfs) && !is_other_mode {
            return None;
        }
        let quirks = quirks::driver_quirks(observed.driver.as_deref());
        let creation_mode = match order {
            ModeOrder::VfsFirst if desired.num_vfs > 0 => EswitchMode::Legacy,
            ModeOrder::VfsFirst | ModeOrder::ModeFirst => desired.eswitch,
        };
        let has_creation_mode = match observed.eswitch {
            Fact::Value(mode) => mode == creation_mode,
            Fact::Unknown => creation_mode == EswitchMode::Legacy,
            Fact::None => true,
        };
        let mode_before = (!has_creation_mode).then_some(creation_mode);
        let mode_after = (creation_mode != desired.eswitch).then_some(desired.eswitch);
        let creation = Self {
            removes: !observed.vfs.is_empty(),
            removal_disruption: removal_disruption(observed),
            order,
            mode_before,
            mode_after,
            sets_steering: false,
        };
        let sets_steering = quirks.software_steering && creation.enters_switchdev();
        Some(Self { sets_steering, ..creation })
    }

    /// Returns whether the eswitch mode changes, even if only temporarily.
    pub(super) const fn changes_mode(self) -> bool {
        self.mode_before.is_some() || self.mode_after.is_some()
    }

    /// Returns whether switchdev mode is set, which the kernel may refuse.
    pub(super) fn enters_switchdev(self) -> bool {
        [self.mode_before, self.mode_after].contains(&Some(EswitchMode::Switchdev))
    }

    /// Returns whether VFs must have no driver until the creation is complete.
    pub(super) const fn needs_unbound_vfs(self) -> bool {
        self.mode_after.is_some()
    }

    /// Returns the steps before the VFs are created.
    pub(super) fn steps_before(
        self,
        desired: &DesiredPf,
        observed: &PfFacts,
        kernel: &KernelFacts,
    ) -> Vec<PlannedStep> {
        let pf = desired.address;
        let mut steps = Vec::new();
        if self.removes {
            let why = if observed.vfs.len() == usize::from(desired.num_vfs) {
                format!("eSwitchMode {} is desired", desired.eswitch.as_str())
            } else {
                format!("the PF has {} VFs, {} are desired", observed.vfs.len(), desired.num_vfs)
            };
            steps.push(planned(Step::SetNumVfs { pf, count: 0 }, self.removal_disruption, why));
        }
        // Steering can be set only in legacy mode: after entering it, and before leaving it.
        let steer = self.sets_steering.then(|| {
            planned(Step::SetSoftwareSteering { pf }, Disruption::Pf, "required before switchdev mode")
        });
        match self.mode_before {
            Some(EswitchMode::Switchdev) => {
                steps.extend(steer);
                steps.push(self.set_mode(desired, EswitchMode::Switchdev, kernel));
            }
            Some(EswitchMode::Legacy) => {
                steps.push(self.set_mode(desired, EswitchMode::Legacy, kernel));
                steps.extend(steer);
            }
            None => steps.extend(steer),
        }
        steps
    }

    /// Returns the step after the VFs are created and have their addresses.
    pub(super) fn step_after(self, desired: &DesiredPf, kernel: &KernelFacts) -> Option<PlannedStep> {
        self.mode_after.map(|mode| self.set_mode(desired, mode, kernel))
    }

    fn set_mode(self, desired: &DesiredPf, mode: EswitchMode, kernel: &KernelFacts) -> PlannedStep {
        let why = if mode == desired.eswitch {
            format!("requested by {}", desired.policies())
        } else {
            "the driver creates VFs in legacy mode".to_owned()
        };
        let trial = (mode == EswitchMode::Switchdev)
            .then(|| ModeTrial { order: self.order, boot_id: kernel.boot_id.clone() });
        planned(Step::SetEswitchMode { pf: desired.address, mode, trial }, self.removal_disruption, why)
    }
}

/// Returns whether the PF is in the desired eswitch mode. An unknown mode is assumed to be the last configured one: VFs
/// are not removed because of it.
pub(super) fn has_desired_mode(desired: &DesiredPf, observed: &PfFacts, previous: Option<&Record>) -> bool {
    let was_configured = || {
        previous.is_some_and(|record| {
            !record.creating_vfs && record.interface.e_switch_mode == desired.interface.e_switch_mode
        })
    };
    match observed.eswitch {
        Fact::Value(mode) => mode == desired.eswitch,
        Fact::Unknown => !desired.is_switchdev() || desired.num_vfs == 0 || was_configured(),
        Fact::None => !desired.is_switchdev(),
    }
}

/// Returns the disruption of removing all VFs. A VF without a driver has no user.
pub(super) fn removal_disruption(observed: &PfFacts) -> Disruption {
    let is_bound = observed.vfs.iter().any(|vf| vf.driver.is_some());
    if is_bound { Disruption::Drain } else { Disruption::Pf }
}
