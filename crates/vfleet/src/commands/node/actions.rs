//! Actions of the subcommands: plan, check the allowed disruption, execute and verify.

use anyhow::Context;
use vfleet_agent::apply::{self, ApplyContext};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::Host;
use vfleet_plan::standalone::recorded_spec;
use vfleet_plan::{Disruption, HostFacts, NodeOptions, Plan, plan_node_with};

use super::AllowedDisruption;
use super::exit::ExitStatus;
use super::policies::PolicySource;
use super::report::Report;

/// Machine with its desired state, plan and report.
struct PlannedMachine {
    facts: HostFacts,
    spec: SriovNetworkNodeStateSpec,
    options: NodeOptions,
    plan: Plan,
    report: Report,
}

/// Plans the steps for the policies.
pub(super) fn plan(host: &dyn Host, source: &PolicySource, options: NodeOptions) -> anyhow::Result<Report> {
    Ok(plan_policies(host, source, options)?.report)
}

/// Configures the machine as the policies request.
pub(super) fn apply(
    host: &dyn Host,
    source: &PolicySource,
    options: NodeOptions,
    allowed: AllowedDisruption,
) -> anyhow::Result<Report> {
    Ok(execute(host, plan_policies(host, source, options)?, allowed))
}

/// Resets all PFs that vfleet configured.
pub(super) fn reset(host: &dyn Host, allowed: AllowedDisruption) -> anyhow::Result<Report> {
    let facts = host.facts().context("cannot read the machine")?;
    let spec = SriovNetworkNodeStateSpec { interfaces: Some(Vec::new()), ..Default::default() };
    let options = NodeOptions::default();
    let plan = plan_node_with(&spec, &facts, &options);
    let report = Report::new(&facts, &plan);
    Ok(execute(host, PlannedMachine { facts, spec, options, plan, report }, allowed))
}

/// Reads the machine, and plans the steps to its last configuration.
pub(super) fn show(host: &dyn Host) -> anyhow::Result<Report> {
    let facts = host.facts().context("cannot read the machine")?;
    // Recorded bridges are part of the last configuration.
    let options = NodeOptions { manage_bridges: true, ..NodeOptions::default() };
    let plan = plan_node_with(&recorded_spec(&facts), &facts, &options);
    let is_read = facts.unreadable.is_empty() && facts.unread_attachments.is_none();
    let is_configured = plan.steps.is_empty() && plan.problems.is_empty() && is_read;
    let exit = if is_configured { ExitStatus::Done } else { ExitStatus::Failed };
    Ok(Report { exit, ..Report::new(&facts, &plan) })
}

fn plan_policies(
    host: &dyn Host,
    source: &PolicySource,
    options: NodeOptions,
) -> anyhow::Result<PlannedMachine> {
    let facts = host.facts().context("cannot read the machine")?;
    let evaluated = source.evaluate(&facts);
    let plan = plan_node_with(&evaluated.spec, &facts, &options);
    let report =
        Report::new(&facts, &plan).with_policies(evaluated.policies, evaluated.findings, evaluated.notes);
    Ok(PlannedMachine { facts, spec: evaluated.spec, options, plan, report })
}

fn execute(host: &dyn Host, machine: PlannedMachine, allowed: AllowedDisruption) -> Report {
    let PlannedMachine { facts, spec, options, plan, report } = machine;
    if let Some(refusal) = refusal(&plan, allowed) {
        return report.with_refusal(refusal);
    }
    let context = ApplyContext {
        host,
        node: "this machine",
        planner: &|facts| plan_node_with(&spec, facts, &options),
        one_card_at_a_time: false,
        listener: &|_| {},
    };
    report.with_outcome(&apply::apply_plan(&context, facts, plan))
}

/// Returns why the plan is not executed: its disruption is not allowed.
fn refusal(plan: &Plan, allowed: AllowedDisruption) -> Option<String> {
    let steps_with = |level: Disruption| -> Vec<String> {
        let steps = plan.steps.iter().filter(|planned| planned.disruption == level);
        steps.map(ToString::to_string).collect()
    };
    let reboots = steps_with(Disruption::Reboot);
    if !reboots.is_empty() && !allowed.allow_reboot {
        return Some(format!("the machine would reboot ({}): add --allow-reboot", reboots.join("; ")));
    }
    let drains = steps_with(Disruption::Drain);
    (!drains.is_empty() && !allowed.force).then(|| {
        format!("VFs that may be in use would be changed or removed ({}): add --force", drains.join("; "))
    })
}
