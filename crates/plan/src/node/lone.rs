//! A VF that a hypervisor gave to the machine without its PF: all that can be chosen is its driver.

use vfleet_api::VfRef;

use super::pf::{PfPlan, last_wanted};
use super::problem::Cause;
use super::protection::Guard;
use super::vf::is_wanted;
use super::wanted::WantedPf;
use super::{modules, planned, record};
use crate::facts::{EswitchMode, HostFacts, PfFacts};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step, VfDriver, is_userspace_driver};

/// The steps for a wanted lone VF. MAC and MTU are the hypervisor's.
pub(super) fn plan_lone(wanted: &WantedPf, found: &PfFacts, facts: &HostFacts) -> Result<PfPlan, Vec<Cause>> {
    let group = match wanted.groups.as_slice() {
        [group] if wanted.num_vfs == 1 && wanted.eswitch == EswitchMode::Legacy => group,
        _ => return Err(vec![Cause::LoneVf]),
    };
    let missing = modules::missing(wanted, found, facts);
    if !missing.is_empty() {
        return Err(missing);
    }
    if let Some(cause) = refused_for_use(wanted, found, facts) {
        return Err(vec![cause]);
    }
    let old = facts.record(wanted.address);
    let is_heal = last_wanted(old).and_then(|last| Some(last.vf(0)?.wish == group.wish)).unwrap_or(false);
    let bind = bind(found, &group.wish.driver, is_heal);
    let set_up = record::write(old, &record::record(wanted, found, old)).into_iter().chain(bind).collect();
    Ok(PfPlan { modules: modules::needed(wanted, found, facts), set_up, ..PfPlan::default() })
}

/// Returns what is refused of a lone VF because the node itself uses it. One that lost its driver gets it again.
pub(super) fn refused_for_use(wanted: &WantedPf, found: &PfFacts, facts: &HostFacts) -> Option<Cause> {
    let driver = &wanted.vf(0)?.wish.driver;
    let is_healed = found.driver.is_none() && *driver == VfDriver::Kernel;
    bind(found, driver, false).filter(|_| !is_healed)?;
    Some(Cause::VfInUse { index: 0, in_use: Guard::of_wanted(wanted, facts).pf(found)? })
}

fn bind(found: &PfFacts, driver: &VfDriver, is_heal: bool) -> Option<PlannedStep> {
    let (disruption, why) = match &found.driver {
        Some(bound) if is_wanted(bound, driver) => return None,
        Some(bound) => {
            let is_free = is_heal && found.link.is_some();
            (if is_free { Disruption::Vf } else { Disruption::Drain }, format!("it is bound to {bound}"))
        }
        None => (Disruption::Vf, "it is bound to no driver".to_owned()),
    };
    let step = Step::BindVf { vf: VfRef { pf: found.address, index: 0 }, driver: driver.clone() };
    Some(planned(step, disruption, why))
}

/// A lone VF goes back to the kernel's driver.
pub(super) fn give_back(found: &PfFacts) -> Option<PlannedStep> {
    let is_elsewhere = found.driver.as_deref().is_none_or(is_userspace_driver);
    let step = Step::BindVf { vf: VfRef { pf: found.address, index: 0 }, driver: VfDriver::Kernel };
    is_elsewhere.then(|| planned(step, Disruption::Drain, "no policy wants it any more"))
}
