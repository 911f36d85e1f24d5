//! Clusters without admission webhooks: objects that would have been refused are stored, and condition `Valid` has the
//! same errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vfleet_plan::admission::Operation;
use vfleet_tests::admission::CaseCluster;
use vfleet_tests::plane::Plane;

use crate::case::{Case, DecidedBy};

/// Number of objects at the same time. They also conflict with each other, and the length of a message is limited.
const BATCH: usize = 6;

/// Time for the conditions, which are written once a second.
const DEADLINE: Duration = Duration::from_mins(1);

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/plan/tests/admission").join(name)
}

/// Returns the cases, by world, in which the rules (and not the schema) refuse a creation.
fn refused_cases() -> BTreeMap<String, Vec<(String, Case)>> {
    let mut by_world: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder("cases")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let case = Case::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let is_created = case.operation.unwrap_or(Operation::Create) == Operation::Create;
        // Only the config `default` has a status, and pods have none of the operator.
        let has_condition = !["Pod", "SriovOperatorConfig"].contains(&case.kind().unwrap());
        // Policies and pools in other namespaces are not reconciled.
        let is_network = case.kind().unwrap().ends_with("Network");
        let is_reconciled = is_network
            || case.object.as_ref().is_some_and(|object| object["metadata"]["namespace"].is_null());
        if case.by == DecidedBy::Ours
            && is_created
            && has_condition
            && is_reconciled
            && case.also.is_empty()
            && !case.expect.admitted
            && let Some(world) = case.world.clone()
        {
            by_world.entry(world).or_default().push((name, case));
        }
    }
    for cases in by_world.values_mut() {
        cases.sort_by(|a, b| a.0.cmp(&b.0));
    }
    by_world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_objects_with_errors_are_reported() {
    let mut cluster = CaseCluster::new("status", Plane::AdmissionStatus).await;
    let mut checked = 0;
    for (world, cases) in refused_cases() {
        for batch in cases.chunks(BATCH) {
            checked += check_batch(&mut cluster, &world, batch).await;
        }
    }
    assert_eq!(checked, count_cases_by_text(), "all cases are checked");
}

/// Counts the cases of this test by the text of their files, so that none is lost.
fn count_cases_by_text() -> usize {
    let files = std::fs::read_dir(folder("cases")).unwrap().map(|entry| entry.unwrap().path());
    let is_case = |text: &String| {
        let has_line = |start: &str| text.lines().any(|line| line.starts_with(start));
        let is_of_kind = |kind: &str| text.contains(&format!("\n  kind: {kind}"));
        let is_elsewhere = text.contains("namespace: ") && !text.contains("Network\n");
        has_line("  admitted: false")
            && has_line("world: ")
            && !["by: ", "also:", "operation: UPDATE", "operation: DELETE"].into_iter().any(has_line)
            && !["Pod", "SriovOperatorConfig"].into_iter().any(is_of_kind)
            && !is_elsewhere
    };
    files.filter(|file| is_case(&std::fs::read_to_string(file).unwrap())).count()
}

/// Stores a batch in a world and waits for the errors of each object.
async fn check_batch(cluster: &mut CaseCluster, world: &str, cases: &[(String, Case)]) -> usize {
    let (dev_mode, objects) = crate::world::read_objects(&folder("worlds"), world).unwrap();
    let mut objects: Vec<Value> = objects.into_values().collect();
    for object in objects.iter_mut().filter(|object| object["kind"] == "SriovOperatorConfig") {
        object["spec"]["enableOperatorWebhook"] = json!(false);
        object["spec"]["enableInjector"] = json!(false);
    }
    // No operator runs yet, so no webhook is called.
    let renamed = |(name, case): &(String, Case)| {
        let mut object = case.object.clone().unwrap();
        object["metadata"]["name"] = json!(name);
        object
    };
    let invalid: Vec<Value> = cases.iter().map(renamed).collect();
    objects.extend(invalid.iter().cloned());
    cluster.replace_objects(&objects).await;
    let arguments =
        ["--webhook-bind-address", "0", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"];
    // The holder of the Lease has this name, so the operator leads at once.
    let mut environment = vec![("POD_NAME", "nobody")];
    environment.extend(dev_mode.then_some(("DEV_MODE", "TRUE")));
    let operator = cluster.admission.cluster.start_operator_with_args(&arguments, &environment);
    let start = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for (object, (name, case)) in invalid.iter().zip(cases) {
        loop {
            let valid = valid(&cluster.get(object).await.body);
            let missing: Vec<_> =
                case.expect.errors.iter().filter(|expected| !expected.is_part_of(&valid.1)).collect();
            if valid.0 == "False" && missing.is_empty() {
                break;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "{name}: missing {missing:?} in {valid:?}\n{}",
                cluster.admission.cluster.log()
            );
            ticks.tick().await;
        }
    }
    operator.kill();
    invalid.len()
}

/// Returns status and message of condition `Valid`.
fn valid(object: &Value) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut valid = conditions.filter(|condition| condition["type"] == "Valid");
    valid.next().map(|valid| (text(&valid["status"]), text(&valid["message"]))).unwrap_or_default()
}
