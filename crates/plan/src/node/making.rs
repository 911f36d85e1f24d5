//! How VFs are made anew, and how the embedded switch changes its mode on the way.

use super::planned;
use super::wanted::WantedPf;
use crate::facts::{EswitchMode, Fact, KernelFacts, ModeOrder, ModeTrial, PfFacts, Record};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};
use crate::vendor;

/// VFs are made anew: their count is not the wanted one, or the mode of the switch is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Making {
    /// The VFs that are there go first.
    pub(super) removes: bool,
    /// Whom that disturbs: nobody where no VF has a driver.
    removal: Disruption,
    /// When the mode changes.
    order: ModeOrder,
    /// The mode that the switch is given while there are no VFs.
    mode_before: Option<EswitchMode>,
    /// The mode that the switch is given when the VFs are made, and have no driver.
    mode_after: Option<EswitchMode>,
    /// Flows are to be steered by software, which can be set only in legacy mode and without VFs.
    steers: bool,
}

impl Making {
    /// What is to be done in this order; `None` when the right VFs are there, in the right mode. A mode that the driver
    /// does not tell is not switchdev mode, unless there are no VFs that it could be for.
    pub(super) fn needed(
        wanted: &WantedPf,
        found: &PfFacts,
        old: Option<&Record>,
        order: ModeOrder,
    ) -> Option<Self> {
        // A mode that cannot be told now is as it was last made: VFs are not taken away for it.
        let was_made = old.is_some_and(|record| {
            !record.making && record.interface.e_switch_mode == wanted.interface.e_switch_mode
        });
        let is_other_mode = match found.eswitch {
            Fact::Value(mode) => mode != wanted.eswitch,
            Fact::Unknown => wanted.eswitch == EswitchMode::Switchdev && wanted.num_vfs > 0 && !was_made,
            Fact::None => false,
        };
        if found.vfs.len() == usize::from(wanted.num_vfs) && !is_other_mode {
            return None;
        }
        let vendor = vendor::of_driver(found.driver.as_deref());
        let made_in = match order {
            ModeOrder::VfsFirst if wanted.num_vfs > 0 => EswitchMode::Legacy,
            ModeOrder::VfsFirst | ModeOrder::ModeFirst => wanted.eswitch,
        };
        let is_made_in = match found.eswitch {
            Fact::Value(mode) => mode == made_in,
            Fact::Unknown => made_in == EswitchMode::Legacy,
            Fact::None => true,
        };
        let mode_before = (!is_made_in).then_some(made_in);
        let mode_after = (made_in != wanted.eswitch).then_some(wanted.eswitch);
        let making = Self {
            removes: !found.vfs.is_empty(),
            removal: removal(found),
            order,
            mode_before,
            mode_after,
            steers: false,
        };
        let steers = vendor.software_steering && making.goes_to_switchdev();
        Some(Self { steers, ..making })
    }

    /// Whether the switch changes its mode, if only for a while.
    pub(super) const fn changes_mode(self) -> bool {
        self.mode_before.is_some() || self.mode_after.is_some()
    }

    /// Whether the switch is to go into switchdev mode, which the kernel may refuse.
    pub(super) fn goes_to_switchdev(self) -> bool {
        [self.mode_before, self.mode_after].contains(&Some(EswitchMode::Switchdev))
    }

    /// Whether no VF may have a driver before all is done.
    pub(super) const fn needs_unbound_vfs(self) -> bool {
        self.mode_after.is_some()
    }

    /// Until there are no VFs, and they can be made.
    pub(super) fn before_vfs(
        self,
        wanted: &WantedPf,
        found: &PfFacts,
        kernel: &KernelFacts,
    ) -> Vec<PlannedStep> {
        let pf = wanted.address;
        let mut steps = Vec::new();
        if self.removes {
            let why = if found.vfs.len() == usize::from(wanted.num_vfs) {
                format!("its switch shall be in mode {}", wanted.eswitch.as_str())
            } else {
                format!("it has {} VFs, {} are wanted", found.vfs.len(), wanted.num_vfs)
            };
            steps.push(planned(Step::SetNumVfs { pf, count: 0 }, self.removal, why));
        }
        // Steering can be set only in legacy mode: after the way there, and before the way out.
        let steer = self.steers.then(|| {
            planned(
                Step::SetSoftwareSteering { pf },
                Disruption::Pf,
                "before its switch goes into switchdev mode",
            )
        });
        match self.mode_before {
            Some(EswitchMode::Switchdev) => {
                steps.extend(steer);
                steps.push(self.set_mode(wanted, EswitchMode::Switchdev, kernel));
            }
            Some(EswitchMode::Legacy) => {
                steps.push(self.set_mode(wanted, EswitchMode::Legacy, kernel));
                steps.extend(steer);
            }
            None => steps.extend(steer),
        }
        steps
    }

    /// When the VFs are made, and have their addresses.
    pub(super) fn after_vfs(self, wanted: &WantedPf, kernel: &KernelFacts) -> Option<PlannedStep> {
        self.mode_after.map(|mode| self.set_mode(wanted, mode, kernel))
    }

    fn set_mode(self, wanted: &WantedPf, mode: EswitchMode, kernel: &KernelFacts) -> PlannedStep {
        let why = if mode == wanted.eswitch {
            format!("wanted by {}", wanted.policies())
        } else {
            "its driver makes VFs in legacy mode".to_owned()
        };
        let trial = (mode == EswitchMode::Switchdev)
            .then(|| ModeTrial { order: self.order, boot_id: kernel.boot_id.clone() });
        planned(Step::SetEswitchMode { pf: wanted.address, mode, trial }, self.removal, why)
    }
}

/// Whom it disturbs when all VFs go. Nobody holds a VF that has no driver.
pub(super) fn removal(found: &PfFacts) -> Disruption {
    let is_bound = found.vfs.iter().any(|vf| vf.driver.is_some());
    if is_bound { Disruption::Drain } else { Disruption::Pf }
}
