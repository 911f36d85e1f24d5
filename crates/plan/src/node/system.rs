//! The machine as a whole: what is not about one PF.

use vfleet_api::SriovNetworkNodeStateSpec;

use super::{NodeOptions, Problem};
use crate::facts::HostFacts;
use crate::prelude::*;
use crate::step::PlannedStep;

/// What is to be done for the machine as a whole.
#[derive(Debug, Default)]
pub(super) struct SystemPlan {
    /// For the machine, before all else.
    pub(super) before: Vec<PlannedStep>,
    /// About PFs, before anything else is done with them: their firmware.
    pub(super) pfs: Vec<PlannedStep>,
    /// For the machine, when all PFs are done.
    pub(super) after: Vec<PlannedStep>,
    /// What cannot be.
    pub(super) problems: Vec<Problem>,
    /// The machine restarts in the end: nothing else is done with PFs before that.
    pub(super) reboots: bool,
}

/// The steps for the machine as a whole.
pub(super) fn plan_system(
    _spec: &SriovNetworkNodeStateSpec,
    _facts: &HostFacts,
    _options: &NodeOptions,
) -> SystemPlan {
    SystemPlan::default()
}
