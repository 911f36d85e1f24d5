//! No admission at all: objects that would have been refused are stored, and their condition `Valid` says the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vfleet_plan::admission::Operation;
use vfleet_tests::door::Stage;
use vfleet_tests::plane::Plane;

use crate::case::{By, Case};

/// So many at once: what is wrong with them because of each other is said, too, and a message has an end.
const BATCH: usize = 6;

/// Verdicts come with the reports, once a second.
const DEADLINE: Duration = Duration::from_mins(1);

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/plan/tests/admission").join(name)
}

/// What is refused when it is created, by rules and not by the schema; by world.
fn refused() -> BTreeMap<String, Vec<(String, Case)>> {
    let mut by_world: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder("cases")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let case = Case::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let is_created = case.operation.unwrap_or(Operation::Create) == Operation::Create;
        // A config has one name only, and no status of its own under another; a pod has none of ours.
        let has_verdict = !["Pod", "SriovOperatorConfig"].contains(&case.kind().unwrap());
        // Policies and pools elsewhere are not looked at.
        let is_network = case.kind().unwrap().ends_with("Network");
        let is_seen = is_network
            || case.object.as_ref().is_some_and(|object| object["metadata"]["namespace"].is_null());
        if case.by == By::Ours
            && is_created
            && has_verdict
            && is_seen
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
async fn what_is_stored_all_the_same_is_told() {
    let mut stage = Stage::new("status", Plane::AdmissionStatus).await;
    let mut said = 0;
    for (world, cases) in refused() {
        for batch in cases.chunks(BATCH) {
            said += play(&mut stage, &world, batch).await;
        }
    }
    assert_eq!(said, in_their_texts(), "as many objects as there are in the files, by their text");
}

/// How many cases there are for this test, found without reading them as cases: none must get lost on the way.
fn in_their_texts() -> usize {
    let files = std::fs::read_dir(folder("cases")).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |text: &String| {
        let has_line = |start: &str| text.lines().any(|line| line.starts_with(start));
        let is_of_kind = |kind: &str| text.contains(&format!("\n  kind: {kind}"));
        let is_elsewhere = text.contains("namespace: ") && !text.contains("Network\n");
        has_line("  admitted: false")
            && has_line("world: ")
            && !["by: ", "also:", "operation: UPDATE", "operation: DELETE"].into_iter().any(has_line)
            && !["Pod", "SriovOperatorConfig"].into_iter().any(is_of_kind)
            && !is_elsewhere
    };
    files.filter(|file| is_one(&std::fs::read_to_string(file).unwrap())).count()
}

/// Stores all of a batch in a world; waits until each is told what is wrong with it.
async fn play(stage: &mut Stage, world: &str, cases: &[(String, Case)]) -> usize {
    let (dev_mode, objects) = crate::world::read_objects(&folder("worlds"), world).unwrap();
    let mut objects: Vec<Value> = objects.into_values().collect();
    for object in objects.iter_mut().filter(|object| object["kind"] == "SriovOperatorConfig") {
        object["spec"]["enableOperatorWebhook"] = json!(false);
        object["spec"]["enableInjector"] = json!(false);
    }
    // As stored objects they come before any operator: nobody is there to be asked.
    let own = |(name, case): &(String, Case)| {
        let mut object = case.object.clone().unwrap();
        object["metadata"]["name"] = json!(name);
        object
    };
    let bad: Vec<Value> = cases.iter().map(own).collect();
    objects.extend(bad.iter().cloned());
    stage.set(&objects).await;
    let arguments =
        ["--webhook-bind-address", "0", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"];
    // The one that holds the Lease comes back under its name, and leads at once.
    let mut environment = vec![("POD_NAME", "nobody")];
    environment.extend(dev_mode.then_some(("DEV_MODE", "TRUE")));
    let operator = stage.door.cluster.operator_told(&arguments, &environment);
    let start = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for (object, (name, case)) in bad.iter().zip(cases) {
        loop {
            let valid = valid(&stage.get(object).await.body);
            let missing: Vec<_> =
                case.expect.errors.iter().filter(|saying| !saying.is_part_of(&valid.1)).collect();
            if valid.0 == "False" && missing.is_empty() {
                break;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "{name}: not said: {missing:?}, but {valid:?}\n{}",
                stage.door.cluster.log()
            );
            ticks.tick().await;
        }
    }
    operator.kill();
    bad.len()
}

/// Status and message of the condition `Valid`.
fn valid(object: &Value) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut valid = conditions.filter(|condition| condition["type"] == "Valid");
    valid.next().map(|valid| (text(&valid["status"]), text(&valid["message"]))).unwrap_or_default()
}
