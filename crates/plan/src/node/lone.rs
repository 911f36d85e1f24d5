//! Lone VFs: a hypervisor provides the VF without its PF, so that only its driver can be changed.

use vfleet_api::VfRef;

use super::desired::DesiredPf;
use super::pf::{PfSteps, last_desired};
use super::problem::Cause;
use super::protection::HostProtection;
use super::vf::{is_desired_driver, is_free};
use super::{modules, planned, record};
use crate::facts::{EswitchMode, HostFacts, PfFacts, VfFacts};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step, VfDriver, is_userspace_driver};

/// Returns the steps for a desired lone VF. The hypervisor decides about MAC and MTU.
pub(super) fn plan_lone(
    desired: &DesiredPf,
    observed: &PfFacts,
    facts: &HostFacts,
) -> Result<PfSteps, Vec<Cause>> {
    let group = match desired.groups.as_slice() {
        [group] if desired.num_vfs == 1 && desired.eswitch == EswitchMode::Legacy => group,
        _ => return Err(vec![Cause::LoneVf]),
    };
    let missing = modules::missing_modules(desired, observed, facts);
    if !missing.is_empty() {
        return Err(missing);
    }
    if let Some(cause) = refused_cause(desired, observed, facts) {
        return Err(vec![cause]);
    }
    let previous = facts.record(desired.address);
    let is_repair =
        last_desired(previous).and_then(|last| Some(last.vf(0)?.settings == group.settings)).unwrap_or(false);
    let bind = bind(observed, &group.settings.driver, is_repair);
    let set_up = record::write_record(previous, &record::build_record(desired, observed, previous))
        .into_iter()
        .chain(bind)
        .collect();
    Ok(PfSteps { modules: modules::needed_modules(desired, observed, facts), set_up, ..PfSteps::default() })
}

/// Returns the cause if a lone VF is refused because the node uses it. A lone VF that lost its driver gets it again.
pub(super) fn refused_cause(desired: &DesiredPf, observed: &PfFacts, facts: &HostFacts) -> Option<Cause> {
    let driver = &desired.vf(0)?.settings.driver;
    let gets_driver_back = observed.driver.is_none() && *driver == VfDriver::Kernel;
    bind(observed, driver, false).filter(|_| !gets_driver_back)?;
    Some(Cause::VfInUse { index: 0, in_use: HostProtection::for_desired(desired, facts).pf(observed)? })
}

fn bind(observed: &PfFacts, driver: &VfDriver, is_repair: bool) -> Option<PlannedStep> {
    let vf = observed.vfs.first();
    if is_repair && vf.is_some_and(VfFacts::is_attached) {
        return None;
    }
    let (is_small, why) = match &observed.driver {
        Some(bound) if is_desired_driver(bound, driver) => return None,
        Some(bound) => (is_repair, format!("the VF is bound to {bound}")),
        None => (true, "the VF has no driver".to_owned()),
    };
    let disruption = if is_small && vf.is_none_or(is_free) { Disruption::Vf } else { Disruption::Drain };
    let step = Step::BindVf { vf: VfRef { pf: observed.address, index: 0 }, driver: driver.clone() };
    Some(planned(step, disruption, why))
}

/// Returns the step that binds a lone VF to the kernel driver again.
pub(super) fn reset_driver(observed: &PfFacts) -> Option<PlannedStep> {
    let needs_bind = observed.driver.as_deref().is_none_or(is_userspace_driver);
    let step = Step::BindVf { vf: VfRef { pf: observed.address, index: 0 }, driver: VfDriver::Kernel };
    needs_bind.then(|| planned(step, Disruption::Drain, "no policy selects the card anymore"))
}
