//! Cases of the CNI plugins: a network configuration and facts with the expected steps, or the exact error. Add a folder to
//! `cni/cases/` to add a test:
//!
//! - `config.json`: network configuration, as a runtime writes it to standard input
//! - `facts.yaml`: differences from the facts in `cni/base/` (JSON Merge Patch, optional)
//! - `environment.yaml`: differences from the usual environment (optional)
//! - `ovs.conf`: file that all networks of Open vSwitch share (optional)
//! - `ipam.json`: result of the IPAM plugin (optional)
//! - `release.yaml`: release afterwards (optional, see [`ReleaseCase`])
//! - `check.yaml`: CHECK afterwards (optional, see [`CheckCase`])
//! - `expected.txt`: expected result; written by `UPDATE_CASES=1 cargo test -p vfleet-plan --test cni`
//!
//! Review a changed `expected.txt` before committing it: it is the decision. `cni/README.md` lists the cases of known traps.

#![allow(clippy::expect_used, clippy::panic, reason = "tests fail by panics")]

#[path = "cni/attach.rs"]
mod attach;
#[path = "harness/case_folder.rs"]
mod case_folder;
#[path = "cni/model.rs"]
mod model;
#[path = "cni/settle.rs"]
mod settle;

use std::fmt::Write;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use vfleet_plan::cni::attachment::{
    AddPlan, ReleasePlan, plan_addresses, plan_addressing, plan_check, plan_release,
};
use vfleet_plan::cni::facts::AttachmentFacts;
use vfleet_plan::cni::journal::{DeviceChanges, Journal, OvsLink, Phase};
use vfleet_plan::cni::protocol::result::{CniResult, ResultInterface};
use vfleet_plan::cni::protocol::{CniError, CniVersion};

use attach::Attempt;
use case_folder::{TestResult, compare, optional};
use model::VfDriver;

/// Release after the ADD.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ReleaseCase {
    /// Number of steps after which the ADD was interrupted; all of them if absent.
    after: Option<usize>,
    /// The namespace was deleted before.
    namespace_deleted: bool,
    /// Differences from the facts after the ADD.
    facts: Value,
}

/// CHECK after the ADD.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct CheckCase {
    /// Differences from the facts after the ADD.
    facts: Value,
    /// Differences of the interface in the pod.
    interface: Value,
    /// Differences from the result of the ADD, which is the previous result of the CHECK.
    previous: Value,
    /// The runtime gave no previous result.
    without_previous: bool,
    /// There is no journal.
    without_journal: bool,
    /// Phase in the journal.
    phase: Option<Phase>,
}

fn case(config_file: &Path) -> TestResult {
    compare(config_file, outcome)
}

fn outcome(folder: &Path) -> TestResult<String> {
    let attempt = Attempt {
        config: std::fs::read(folder.join("config.json"))?,
        environment: optional(folder, "environment.yaml")?.unwrap_or_default(),
        facts: optional(folder, "facts.yaml")?.unwrap_or_default(),
        ovs_file: std::fs::read_to_string(folder.join("ovs.conf")).ok(),
    };
    let facts = attempt.facts()?;
    let mut text = String::new();
    let plan = match attempt.plan(&facts) {
        Ok(plan) => plan,
        Err(error) => {
            write_error(&mut text, &error)?;
            return Ok(text);
        }
    };
    write_plan(&mut text, &plan)?;
    let ipam = folder.join("ipam.json");
    if ipam.exists() {
        let result = CniResult::parse(&serde_json::from_slice(&std::fs::read(ipam)?)?, CniVersion::V1_0_0);
        match result.and_then(|result| addressing(&plan, result)) {
            Ok(addressing) => text.push_str(&addressing),
            Err(error) => write_error(&mut text, &error)?,
        }
    }
    settle::restores_everything(&plan, &facts)?;

    let journal = Journal { phase: Phase::Attached, ..plan.journal.clone() };
    if let Some(case) = optional::<ReleaseCase>(folder, "release.yaml")? {
        let after = facts_after(&plan, &facts, case.after.unwrap_or(plan.steps.len()));
        write_release(&mut text, &plan_release(&journal, &released_facts(after, &case)?))?;
    }
    if let Some(case) = optional::<CheckCase>(folder, "check.yaml")? {
        let after = facts_after(&plan, &facts, plan.steps.len());
        writeln!(text, "\n# check")?;
        match check(&case, &plan, journal, after)? {
            Ok(()) => writeln!(text, "no difference")?,
            Err(error) => write_error(&mut text, &error)?,
        }
    }
    Ok(text)
}

/// Returns what follows the IPAM plugin.
fn addressing(plan: &AddPlan, ipam: CniResult) -> Result<String, CniError> {
    if plan.before_addresses.is_empty() {
        return Ok(format!("addresses: {}\n", plan_addresses(&ipam, 0)?));
    }
    let mut result = CniResult { interfaces: plan.interfaces.clone(), ..ipam };
    let steps = plan_addressing(plan, &mut result)?;
    let mut text = String::from("\n# addresses\n");
    for step in steps {
        text.push_str(&format!("{step}\n"));
    }
    let mac = result.interfaces.last().and_then(|interface| interface.mac.clone());
    text.push_str(&format!("mac: {}\n", mac.unwrap_or_default()));
    Ok(text)
}

fn facts_after(plan: &AddPlan, facts: &AttachmentFacts, steps: usize) -> AttachmentFacts {
    let mut facts = facts.clone();
    for step in plan.steps.iter().take(steps) {
        model::execute(&mut facts, step, VfDriver::AcceptsMac);
    }
    facts
}

fn released_facts(mut facts: AttachmentFacts, case: &ReleaseCase) -> TestResult<AttachmentFacts> {
    if case.namespace_deleted {
        model::delete_namespace(&mut facts);
    }
    attach::patched(&facts, &case.facts)
}

fn check(
    case: &CheckCase,
    plan: &AddPlan,
    mut journal: Journal,
    facts: AttachmentFacts,
) -> TestResult<Result<(), CniError>> {
    journal.phase = case.phase.unwrap_or(journal.phase);
    let mut facts = serde_json::to_value(facts)?;
    let address = facts["device"]["address"].clone();
    let links = facts["namespace"]["links"].as_array_mut().ok_or("the pod has interfaces")?;
    // Without a device the interface is known by its name.
    let is_own = |link: &&mut Value| match &address {
        Value::Null => link["name"] == "net1",
        address => link["device"] == *address,
    };
    for link in links.iter_mut().filter(is_own) {
        json_patch::merge(link, &object(&case.interface));
    }
    json_patch::merge(&mut facts, &object(&case.facts));
    let previous = CniResult { interfaces: plan.interfaces.clone(), ..CniResult::default() };
    let mut previous = previous.to_json(CniVersion::V1_1_0);
    json_patch::merge(&mut previous, &object(&case.previous));
    let previous = CniResult::parse(&previous, CniVersion::V1_1_0).map_err(|error| error.to_string())?;
    let previous = Some(&previous).filter(|_| !case.without_previous);
    let journal_on_disk = Some(&journal).filter(|_| !case.without_journal);
    Ok(plan_check(journal_on_disk, &journal.key, previous, &serde_json::from_value(facts)?))
}

/// Returns a patch, of which none is an empty one.
fn object(patch: &Value) -> Value {
    if patch.is_null() { Value::Object(serde_json::Map::new()) } else { patch.clone() }
}

fn write_error(text: &mut String, error: &CniError) -> TestResult {
    writeln!(text, "code {}: {}", error.code.number(), error.message)?;
    if !error.details.is_empty() {
        writeln!(text, "details: {}", error.details)?;
    }
    Ok(())
}

fn write_plan(text: &mut String, plan: &AddPlan) -> TestResult {
    writeln!(text, "# steps")?;
    for step in &plan.steps {
        writeln!(text, "{step}")?;
    }
    writeln!(text, "\n# result")?;
    for interface in &plan.interfaces {
        write_interface(text, interface)?;
    }
    if plan.interfaces.is_empty() {
        writeln!(text, "previous result")?;
    }
    writeln!(
        text,
        "addresses: {}",
        match (plan.journal.changes.runs_ipam(), plan.configures_addresses) {
            (true, true) => "configured",
            (true, false) => "only reported",
            (false, _) => "none",
        }
    )?;
    writeln!(text, "\n# journal")?;
    match &plan.journal.changes {
        DeviceChanges::Sriov(changes) => {
            writeln!(text, "changed: {}", changes.changed)?;
            writeln!(text, "original: {}", changes.original)?;
            write_option(text, "interface", changes.interface.as_ref())?;
        }
        DeviceChanges::Infiniband(changes) => {
            write_option(text, "GUID", changes.guid)?;
            write_option(text, "GUID to restore", changes.original_guid)?;
            write_option(text, "link_state", changes.link_state)?;
            writeln!(text, "original: {}", changes.original)?;
            write_option(text, "interface", changes.interface.as_ref())?;
            write_option(text, "RDMA device", changes.rdma.as_ref())?;
        }
        DeviceChanges::Rdma(changes) => writeln!(text, "RDMA device: {}", changes.rdma)?,
        DeviceChanges::Ovs(_) | DeviceChanges::AcceleratedBridge(_) | DeviceChanges::Mirror(_) => {
            write_switch_changes(text, &plan.journal.changes)?;
        }
    }
    for step in &plan.last {
        writeln!(text, "last: {step}")?;
    }
    for note in &plan.notes {
        writeln!(text, "note: {note}")?;
    }
    Ok(())
}

fn write_switch_changes(text: &mut String, changes: &DeviceChanges) -> TestResult {
    for (key, value) in changes.fields() {
        writeln!(text, "{key}: {value}")?;
    }
    let (vf, representor) = match changes {
        DeviceChanges::Ovs(changes) => match &changes.link {
            OvsLink::Veth { .. } => (None, None),
            OvsLink::Vf { vf, representor } => (Some(vf), Some(representor)),
            OvsLink::Vdpa { device, representor } => {
                write_option(text, "original mac", device.original_mac)?;
                write_option(text, "original mtu", device.original_mtu)?;
                (None, Some(representor))
            }
        },
        DeviceChanges::AcceleratedBridge(changes) => {
            if let Some(uplink) = &changes.uplink {
                writeln!(text, "uplink: {} needs {:?}, added {:?}", uplink.name, uplink.needed, uplink.added)?;
            }
            (Some(&changes.vf), Some(&changes.representor))
        }
        _ => (None, None),
    };
    if let Some(vf) = vf {
        writeln!(text, "original: {}", vf.original)?;
        write_option(text, "interface", vf.interface.as_ref())?;
    }
    if let Some(representor) = representor {
        let state = if representor.was_up { "up" } else { "down" };
        writeln!(text, "representor: {} was {state}", representor.name)?;
        write_option(text, "mtu of the representor", representor.original_mtu)?;
    }
    Ok(())
}

fn write_interface(text: &mut String, interface: &ResultInterface) -> TestResult {
    write!(text, "{}", interface.name)?;
    let fields = [("mac", &interface.mac), ("sandbox", &interface.sandbox), ("pciID", &interface.pci_id)];
    for (key, value) in fields {
        if let Some(value) = value {
            write!(text, " {key} {value}")?;
        }
    }
    if let Some(mtu) = interface.mtu {
        write!(text, " mtu {mtu}")?;
    }
    Ok(writeln!(text)?)
}

fn write_option(text: &mut String, key: &str, value: Option<impl std::fmt::Display>) -> TestResult {
    if let Some(value) = value {
        writeln!(text, "{key}: {value}")?;
    }
    Ok(())
}

fn write_release(text: &mut String, plan: &ReleasePlan) -> TestResult {
    writeln!(text, "\n# release")?;
    for step in &plan.steps {
        writeln!(text, "{step}")?;
    }
    for note in &plan.notes {
        writeln!(text, "note: {note}")?;
    }
    if let Some(error) = &plan.postponed {
        write_error(text, error)?;
    }
    for part in &plan.waits_for {
        writeln!(text, "waits for the {part}")?;
    }
    Ok(())
}

datatest_stable::harness! {
    { test = case, root = "tests/cni/cases", pattern = r"config\.json$" },
}
