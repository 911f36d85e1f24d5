//! What to do on a machine: node state spec and host facts => steps.

mod pf;
mod problem;
mod reset;
mod system;
mod udev;
mod vf;
mod wanted;

pub use problem::{Cause, Problem};

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::node_state::Interface;

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
    plan_node_with(spec, facts, &NodeOptions::default())
}

/// What a node may do beyond the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// Whether the firmware of a card is restarted when its settings changed, before the machine is.
    pub firmware_reset: bool,
    /// Whether the firmware of Mellanox cards is set at all.
    pub mellanox: bool,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { firmware_reset: false, mellanox: true }
    }
}

/// As [`plan_node`], with these options.
pub fn plan_node_with(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts, options: &NodeOptions) -> Plan {
    let mut plan = Plan::default();
    let Some(interfaces) = &spec.interfaces else { return plan };
    let system = system::plan_system(spec, facts, options);
    plan.problems.extend(problem::unsupported(spec));
    plan.problems.extend(system.problems);
    plan.steps.extend(system.before);
    plan.steps.extend(system.pfs);
    if !system.reboots {
        plan_pfs(&mut plan, interfaces, facts);
    }
    plan.steps.extend(system.after);
    plan
}

fn plan_pfs(plan: &mut Plan, interfaces: &[Interface], facts: &HostFacts) {
    for interface in interfaces {
        match wanted::wanted(interface).and_then(|wanted| pf::plan_pf(&wanted, facts)) {
            Ok(steps) => plan.steps.extend(steps),
            Err(problem) => plan.problems.push(problem),
        }
    }
    for record in &facts.records {
        let still_wanted = interfaces.iter().any(|interface| interface.pci_address.value() == Ok(&record.pf));
        if !still_wanted {
            plan.steps.extend(reset::reset_pf(record, facts.pf(record.pf), facts));
        }
    }
}

pub(crate) fn planned(step: Step, disruption: Disruption, why: impl Into<String>) -> PlannedStep {
    PlannedStep { step, disruption, why: why.into() }
}
