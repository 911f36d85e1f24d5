//! What to do on a machine: node state spec and host facts => steps.

mod pf;
mod problem;
mod reset;
mod vf;
mod wanted;

pub use problem::{Cause, Problem};

use vfleet_api::SriovNetworkNodeStateSpec;

use crate::facts::HostFacts;
use crate::prelude::*;
use crate::step::{Disruption, Plan, PlannedStep, Step};

/// The steps that make the machine what `spec` wants, and what of it cannot be.
///
/// Guarantees: executing the steps and planning again gives no steps. When the execution is cut after any step,
/// planning again leads to the same machine. Nothing is planned for a PF that is neither in `spec` nor recorded
/// as ours.
///
/// A spec without `interfaces` was not worked out yet (a node state that was just created) and wants nothing,
/// not even that recorded PFs be reset; an empty list does.
pub fn plan_node(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Plan {
    let mut plan = Plan::default();
    let Some(interfaces) = &spec.interfaces else { return plan };
    plan.problems.extend(problem::unsupported(spec));
    for interface in interfaces {
        match wanted::wanted(interface).and_then(|wanted| pf::plan_pf(&wanted, facts)) {
            Ok(steps) => plan.steps.extend(steps),
            Err(problem) => plan.problems.push(problem),
        }
    }
    for record in &facts.records {
        let still_wanted = interfaces.iter().any(|interface| interface.pci_address.value() == Ok(&record.pf));
        if !still_wanted {
            plan.steps.extend(reset::reset_pf(record, facts.pf(record.pf)));
        }
    }
    plan
}

pub(crate) fn planned(step: Step, disruption: Disruption, why: impl Into<String>) -> PlannedStep {
    PlannedStep { step, disruption, why: why.into() }
}
