//! Policies and a machine give this node state and these steps. Add a folder to `cases/` to add a test:
//!
//! - `policies.yaml`: the policies, as users write them
//! - `machine.yaml`: the machine, as in crates/host/README.md
//! - `labels.yaml`: the node's labels, where they matter
//! - `current.yaml`: the node state's spec until now, where it matters
//! - `expected.txt`: what must come of it; written by `UPDATE_CASES=1 cargo test -p vfleet-plan --test cases`
//!
//! Read a changed `expected.txt` before committing it: it is the decision.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeStateSpec};
use vfleet_host::{Host, SimHost};
use vfleet_plan::{NamedPolicy, plan_node, plan_node_spec, report};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn case(policies_file: &Path) -> TestResult {
    let folder = policies_file.parent().ok_or("a case is a folder")?;
    let found = outcome(folder)?;
    let expected = folder.join("expected.txt");
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(&expected, &found)?;
    }
    let wanted = std::fs::read_to_string(&expected)?;
    if found == wanted {
        return Ok(());
    }
    Err(format!("{} does not match:\n--- expected\n{wanted}\n--- found\n{found}", expected.display()).into())
}

fn outcome(folder: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let policies: Vec<SriovNetworkNodePolicy> =
        serde_saphyr::from_multiple(&std::fs::read_to_string(folder.join("policies.yaml"))?)?;
    let named: Vec<_> = policies
        .iter()
        .map(|policy| NamedPolicy { name: policy.metadata.name.as_deref().unwrap_or(""), spec: &policy.spec })
        .collect();
    let labels: BTreeMap<String, String> = match std::fs::read_to_string(folder.join("labels.yaml")) {
        Ok(text) => serde_saphyr::from_str(&text)?,
        Err(_) => BTreeMap::new(),
    };
    let host = SimHost::from_yaml(&std::fs::read_to_string(folder.join("machine.yaml"))?, "case")?;
    let facts = host.facts()?;

    let current = match std::fs::read_to_string(folder.join("current.yaml")) {
        Ok(text) => serde_saphyr::from_str(&text)?,
        Err(_) => SriovNetworkNodeStateSpec::default(),
    };

    let (spec, problems) =
        plan_node_spec(&named, &BTreeSet::new(), &labels, &report::interfaces(&facts), &current);
    let plan = plan_node(&spec, &facts);
    let mut text = format!(
        "# node state\n{}\n# steps, disruption {:?}\n",
        serde_saphyr::to_string(&spec)?,
        plan.disruption()
    );
    for step in &plan.steps {
        writeln!(text, "{step}")?;
    }
    writeln!(text, "\n# problems")?;
    for problem in &problems {
        writeln!(text, "{problem}")?;
    }
    for problem in &plan.problems {
        writeln!(text, "{}: {problem}", problem.cause.reason())?;
    }
    Ok(text)
}

datatest_stable::harness! {
    { test = case, root = "tests/cases", pattern = r"policies\.yaml$" },
}
