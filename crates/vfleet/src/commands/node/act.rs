//! What the subcommands do: plan, ask for consent, execute, look again.

use anyhow::Context;
use vfleet_agent::apply::{self, Work};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::Host;
use vfleet_plan::standalone::recorded_spec;
use vfleet_plan::{Disruption, HostFacts, Plan, plan_node};

use super::Consent;
use super::exit::Exit;
use super::policies::Source;
use super::report::Report;

/// A machine, what is wanted of it, and what that takes.
struct Job {
    facts: HostFacts,
    spec: SriovNetworkNodeStateSpec,
    plan: Plan,
    report: Report,
}

/// What would be done.
pub(super) fn plan(host: &dyn Host, source: &Source) -> anyhow::Result<Report> {
    Ok(wanted_by_policies(host, source)?.report)
}

/// Makes the machine what the policies want.
pub(super) fn apply(host: &dyn Host, source: &Source, consent: Consent) -> anyhow::Result<Report> {
    Ok(act(host, wanted_by_policies(host, source)?, consent))
}

/// Gives back all that is ours.
pub(super) fn reset(host: &dyn Host, consent: Consent) -> anyhow::Result<Report> {
    let facts = host.facts().context("cannot read the machine")?;
    let spec = SriovNetworkNodeStateSpec { interfaces: Some(Vec::new()), ..Default::default() };
    let plan = plan_node(&spec, &facts);
    let report = Report::new(&facts, &plan);
    Ok(act(host, Job { facts, spec, plan, report }, consent))
}

/// The machine, and what of it is not as it was last wanted.
pub(super) fn show(host: &dyn Host) -> anyhow::Result<Report> {
    let facts = host.facts().context("cannot read the machine")?;
    let plan = plan_node(&recorded_spec(&facts), &facts);
    let is_as_wanted = plan.steps.is_empty() && plan.problems.is_empty() && facts.unread.is_empty();
    let exit = if is_as_wanted { Exit::Done } else { Exit::Failed };
    Ok(Report { exit, ..Report::new(&facts, &plan) })
}

fn wanted_by_policies(host: &dyn Host, source: &Source) -> anyhow::Result<Job> {
    let facts = host.facts().context("cannot read the machine")?;
    let wish = source.wish(&facts);
    let plan = plan_node(&wish.spec, &facts);
    let report = Report::new(&facts, &plan).with_policies(wish.policies, wish.findings, wish.notes);
    Ok(Job { facts, spec: wish.spec, plan, report })
}

fn act(host: &dyn Host, job: Job, consent: Consent) -> Report {
    let Job { facts, spec, plan, report } = job;
    if let Some(refusal) = refusal(&plan, consent) {
        return report.refused(refusal);
    }
    let work = Work {
        host,
        node: "this machine",
        planner: &|facts| plan_node(&spec, facts),
        one_card_at_a_time: false,
        listener: &|_| {},
    };
    report.ended(&apply::carry_out(&work, facts, plan))
}

/// Why the plan is not executed: it disturbs somebody who was not said to be disturbed.
fn refusal(plan: &Plan, consent: Consent) -> Option<String> {
    let disturbing = |level: Disruption| -> Vec<String> {
        let steps = plan.steps.iter().filter(|planned| planned.disruption == level);
        steps.map(ToString::to_string).collect()
    };
    let restarts = disturbing(Disruption::Reboot);
    if !restarts.is_empty() && !consent.allow_reboot {
        return Some(format!("the machine would restart ({}): add --allow-reboot", restarts.join("; ")));
    }
    let drains = disturbing(Disruption::Drain);
    (!drains.is_empty() && !consent.force).then(|| {
        format!("VFs that may be in use would go away or change ({}): add --force", drains.join("; "))
    })
}
