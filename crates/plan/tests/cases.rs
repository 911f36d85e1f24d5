//! Cases: policies and a machine with the expected node state and steps. Add a folder to `cases/` to add a test:
//!
//! - `policies.yaml`: policies
//! - `machine.yaml`: machine, in the format of crates/host/README.md
//! - `cards.yaml`: cards of a node state instead of a machine, if the simulation does not support them
//! - `labels.yaml`: labels of the node (optional)
//! - `pools.yaml`: pools (optional)
//! - `gates.yaml`: feature gates (optional)
//! - `current.yaml`: current spec of the node state (optional)
//! - `unreadable.yaml`: names of policies that cannot be read (optional)
//! - `expected.txt`: expected result; written by `UPDATE_CASES=1 cargo test -p vfleet-plan --test cases`
//!
//! Review a changed `expected.txt` before committing it: it is the decision.

#[path = "harness/case_folder.rs"]
mod case_folder;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeStateSpec, SriovNetworkPoolConfig};
use vfleet_host::{Host, SimHost};
use vfleet_plan::report::ReportContext;
use vfleet_plan::{
    Disruption, HostFacts, NamedPolicy, NamedPool, NodeIdentity, NodeInput, NodePlan, PfOutcome,
    find_node_mismatch, find_pool_of_node, plan_node, plan_node_spec, report,
};

use case_folder::{TestResult, compare, optional};

fn case(policies_file: &Path) -> TestResult {
    compare(policies_file, outcome)
}

fn outcome(folder: &Path) -> TestResult<String> {
    let policies: Vec<SriovNetworkNodePolicy> =
        serde_saphyr::from_multiple(&std::fs::read_to_string(folder.join("policies.yaml"))?)?;
    let named: Vec<_> = policies
        .iter()
        .map(|policy| NamedPolicy { name: policy.metadata.name.as_deref().unwrap_or(""), spec: &policy.spec })
        .collect();
    let labels: BTreeMap<String, String> = optional(folder, "labels.yaml")?.unwrap_or_default();
    let unreadable: BTreeSet<String> = optional(folder, "unreadable.yaml")?.unwrap_or_default();
    let gates: BTreeMap<String, bool> = optional(folder, "gates.yaml")?.unwrap_or_default();
    let current: SriovNetworkNodeStateSpec = optional(folder, "current.yaml")?.unwrap_or_default();
    let reported: Option<Vec<InterfaceExt>> = optional(folder, "cards.yaml")?;
    let facts = match &reported {
        Some(_) => None,
        None => Some(machine(folder)?.facts()?),
    };
    let cards = reported
        .or_else(|| Some(report::interfaces(facts.as_ref()?, &ReportContext::default())))
        .unwrap_or_default();
    let node = NodeInput {
        labels: &labels,
        cards: &cards,
        current: &current,
        rdma_mode: rdma_mode(folder, &labels)?.into(),
        manage_software_bridges: gates.get("manageSoftwareBridges").copied().unwrap_or(false),
    };
    let plan = plan_node_spec(&named, &unreadable, &node);

    let again = NodeInput { current: &plan.spec, ..node };
    assert_eq!(plan_node_spec(&named, &unreadable, &again).spec, plan.spec, "planning again changes nothing");

    let mut text = format!("# node state\n{}", serde_saphyr::to_string(&plan.spec)?);
    write_why_not(&mut text, &named, &labels, &plan)?;
    if let Some(facts) = facts {
        write_steps(&mut text, &plan, &facts)?;
        settle(folder, &plan.spec)?;
    }
    Ok(text)
}

/// Executes the plan, completely and interrupted after each of its steps: no steps may be left, and the result must be the
/// same. Plans with a reboot are skipped.
fn settle(folder: &Path, spec: &SriovNetworkNodeStateSpec) -> TestResult {
    let host = machine(folder)?;
    let plan = plan_node(spec, &host.facts()?);
    if plan.disruption() == Disruption::Reboot {
        return Ok(());
    }
    let steps = plan.steps;
    execute_plans(&host, spec)?;
    let whole = host.facts()?;
    for cut in 1..steps.len() {
        let host = machine(folder)?;
        for planned in &steps[..cut] {
            host.execute(&planned.step)?;
        }
        execute_plans(&host, spec)?;
        if host.facts()? != whole {
            return Err(
                format!("the result differs after an interruption behind `{}`", steps[cut - 1]).into()
            );
        }
    }
    Ok(())
}

/// Plans and executes twice, since rules for representors are planned only when the representors exist.
fn execute_plans(host: &SimHost, spec: &SriovNetworkNodeStateSpec) -> TestResult {
    for _ in 0..2 {
        for planned in plan_node(spec, &host.facts()?).steps {
            host.execute(&planned.step).map_err(|error| format!("`{planned}`: {error}"))?;
        }
    }
    let left: Vec<_> = plan_node(spec, &host.facts()?).steps.iter().map(ToString::to_string).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("steps are left: {left:#?}").into()) }
}

fn machine(folder: &Path) -> TestResult<SimHost> {
    Ok(SimHost::from_yaml(&std::fs::read_to_string(folder.join("machine.yaml"))?, "case")?)
}

fn rdma_mode(
    folder: &Path,
    labels: &BTreeMap<String, String>,
) -> TestResult<Option<vfleet_api::pool_config::RdmaMode>> {
    let path = folder.join("pools.yaml");
    if !path.exists() {
        return Ok(None);
    }
    let pools: Vec<SriovNetworkPoolConfig> = serde_saphyr::from_multiple(&std::fs::read_to_string(path)?)?;
    let pools: Vec<_> = pools
        .iter()
        .map(|pool| NamedPool { name: pool.metadata.name.as_deref().unwrap_or(""), spec: &pool.spec })
        .collect();
    Ok(find_pool_of_node(&pools, NodeIdentity { name: "case", labels }).and_then(|pool| pool.spec.rdma_mode))
}

/// Writes one line for each policy that does not select the node, and for each PF that a policy does not get.
fn write_why_not(
    text: &mut String,
    policies: &[NamedPolicy<'_>],
    labels: &BTreeMap<String, String>,
    plan: &NodePlan,
) -> TestResult {
    writeln!(text, "\n# why not")?;
    for policy in policies {
        if let Some(rule) = find_node_mismatch(policy, labels) {
            writeln!(text, "policy {}: {rule}", policy.name)?;
        }
    }
    for answer in &plan.evaluations {
        for pf in &answer.pfs {
            match &pf.outcome {
                verdict if verdict.is_satisfied() => {}
                PfOutcome::Invalid(fault) => {
                    writeln!(text, "policy {}: {}: {pf}", answer.policy, fault.reason())?;
                }
                _ => writeln!(text, "policy {}: {pf}", answer.policy)?,
            }
        }
    }
    Ok(())
}

fn write_steps(text: &mut String, plan: &NodePlan, facts: &HostFacts) -> TestResult {
    let plan = plan_node(&plan.spec, facts);
    writeln!(text, "\n# steps, disruption: {}", plan.disruption().description())?;
    for step in &plan.steps {
        writeln!(text, "{step}")?;
    }
    writeln!(text, "\n# problems")?;
    for problem in &plan.problems {
        writeln!(text, "{}: {problem}", problem.cause.reason())?;
    }
    Ok(())
}

datatest_stable::harness! {
    { test = case, root = "tests/cases", pattern = r"policies\.yaml$" },
}
