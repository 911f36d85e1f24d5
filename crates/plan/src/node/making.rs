//! How VFs are made anew, and how the embedded switch changes its mode on the way.

use super::planned;
use super::wanted::WantedPf;
use crate::facts::{EswitchMode, PfFacts};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};
use crate::vendor::{self, ModeOrder};

/// VFs are made anew: their count is not the wanted one, or the mode of the switch is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Making {
    /// The VFs that are there go first.
    pub(super) removes: bool,
    /// The mode that the switch is given while there are no VFs.
    mode_before: Option<EswitchMode>,
    /// The mode that the switch is given when the VFs are made, and have no driver.
    mode_after: Option<EswitchMode>,
    /// Flows are to be steered by software, which can be set only in legacy mode and without VFs.
    steers: bool,
}

impl Making {
    /// What is to be done; `None` when the right VFs are there, in the right mode.
    pub(super) fn needed(wanted: &WantedPf, found: &PfFacts) -> Option<Self> {
        let is_other_mode = found.eswitch.is_some_and(|mode| mode != wanted.eswitch);
        if found.vfs.len() == usize::from(wanted.num_vfs) && !is_other_mode {
            return None;
        }
        let vendor = vendor::of_driver(found.driver.as_deref());
        let made_in = match vendor.order {
            ModeOrder::VfsFirst if wanted.num_vfs > 0 => EswitchMode::Legacy,
            ModeOrder::VfsFirst | ModeOrder::ModeFirst => wanted.eswitch,
        };
        let mode_before = (found.eswitch.is_some_and(|mode| mode != made_in)).then_some(made_in);
        let mode_after = (made_in != wanted.eswitch).then_some(wanted.eswitch);
        let goes_to_switchdev = [mode_before, mode_after].contains(&Some(EswitchMode::Switchdev));
        Some(Self {
            removes: !found.vfs.is_empty(),
            mode_before,
            mode_after,
            steers: vendor.software_steering && goes_to_switchdev,
        })
    }

    /// Whether the switch changes its mode, if only for a while.
    pub(super) const fn changes_mode(self) -> bool {
        self.mode_before.is_some() || self.mode_after.is_some()
    }

    /// Whether no VF may have a driver before all is done.
    pub(super) const fn needs_unbound_vfs(self) -> bool {
        self.mode_after.is_some()
    }

    /// Until there are no VFs, and they can be made.
    pub(super) fn before_vfs(self, wanted: &WantedPf, found: &PfFacts) -> Vec<PlannedStep> {
        let pf = wanted.address;
        let mut steps = Vec::new();
        if self.removes {
            let why = if found.vfs.len() == usize::from(wanted.num_vfs) {
                format!("its switch shall be in mode {}", wanted.eswitch.as_str())
            } else {
                format!("it has {} VFs, {} are wanted", found.vfs.len(), wanted.num_vfs)
            };
            steps.push(planned(Step::SetNumVfs { pf, count: 0 }, Disruption::Drain, why));
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
                steps.push(self.set_mode(wanted, EswitchMode::Switchdev));
            }
            Some(EswitchMode::Legacy) => {
                steps.push(self.set_mode(wanted, EswitchMode::Legacy));
                steps.extend(steer);
            }
            None => steps.extend(steer),
        }
        steps
    }

    /// When the VFs are made, and have their addresses.
    pub(super) fn after_vfs(self, wanted: &WantedPf) -> Option<PlannedStep> {
        self.mode_after.map(|mode| self.set_mode(wanted, mode))
    }

    fn set_mode(self, wanted: &WantedPf, mode: EswitchMode) -> PlannedStep {
        let why = if mode == wanted.eswitch {
            format!("wanted by {}", wanted.policies())
        } else {
            "its driver makes VFs in legacy mode".to_owned()
        };
        let disruption = if self.removes { Disruption::Drain } else { Disruption::Pf };
        planned(Step::SetEswitchMode { pf: wanted.address, mode }, disruption, why)
    }
}
