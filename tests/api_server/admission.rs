//! Objects at admission, asked for by the real API server over TLS: the cases of `crates/plan/tests/admission` once more
//! (how they are written is said in `crates/plan/tests/admission.rs`), and many at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use futures::StreamExt;
use serde_json::{Value, json};
use vfleet_plan::admission::Operation;
use vfleet_tests::door::{Answered, Stage};
use vfleet_tests::plane::Plane;

use crate::case::{By, Case, Outcome};

/// Cases that are asked at once.
const AT_ONCE: usize = 16;

/// What must be there before a case is tried: cases with the same are tried on one stage.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Scene {
    world: String,
    /// Objects besides, as text, in order.
    also: Vec<String>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/plan/tests/admission").join(name)
}

fn all_cases() -> Vec<(String, Case)> {
    let files = std::fs::read_dir(folder("cases")).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = files
        .map(|file| {
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let case = Case::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, case)
        })
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

/// Networks of cases have names of their own, so that all that are to be changed can be there at once. Nothing that is
/// said of a network contains its name. In all operator configs admission is on: otherwise nobody would be asked.
fn for_the_stage(name: &str, mut case: Case) -> Case {
    let objects = [&mut case.object, &mut case.old].into_iter().flatten();
    for object in objects.chain(&mut case.also) {
        if is_network(object) {
            object["metadata"]["name"] = json!(name);
        }
        if object["kind"] == "SriovOperatorConfig" {
            switch_on(object);
        }
    }
    case
}

fn switch_on(config: &mut Value) {
    config["spec"]["enableOperatorWebhook"] = json!(true);
    config["spec"]["enableInjector"] = json!(true);
}

fn scene(case: &Case) -> Option<Scene> {
    // What nobody else looks at is put beside the others.
    let old = case.old.iter().filter(|old| !old["kind"].as_str().unwrap().ends_with("Network"));
    let also = case.also.iter().chain(old).map(ToString::to_string).collect();
    Some(Scene { world: case.world.clone()?, also })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_is_answered_as_it_says() {
    let mut scenes: BTreeMap<Scene, Vec<(String, Case)>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for (name, case) in all_cases() {
        let case = for_the_stage(&name, case);
        match scene(&case) {
            Some(scene) => scenes.entry(scene).or_default().push((name, case)),
            None => left_out.push(name),
        }
    }
    eprintln!("left to the planner's own test, since an API server knows its cluster: {left_out:?}");
    let mut stage = Stage::new("cases", Plane::AdmissionCases).await;
    let (mut tried, mut failed) = (0, Vec::new());
    for (scene, cases) in scenes {
        tried += cases.len();
        failed.extend(play(&mut stage, &scene, &cases).await);
    }
    assert!(failed.is_empty(), "{} of {tried}:\n{}\n", failed.len(), failed.join("\n"));
    assert!(tried >= 120, "{tried}");
}

/// Tries all cases of a scene; says which fail.
async fn play(stage: &mut Stage, scene: &Scene, cases: &[(String, Case)]) -> Vec<String> {
    let (dev_mode, mut objects) = crate::world::read_objects(&folder("worlds"), &scene.world).unwrap();
    let also: Vec<Value> = scene.also.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    crate::world::add(&mut objects, &also).unwrap();
    let mut objects: Vec<Value> = objects.into_values().collect();
    if !objects.iter().any(|object| object["kind"] == "SriovOperatorConfig") {
        let mut config = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig",
            "metadata": { "name": "default" },
        });
        switch_on(&mut config);
        objects.push(config);
    }
    objects.extend(cases.iter().filter_map(|(_, case)| case.old.clone()).filter(is_network));
    stage.set(&objects).await;
    for (_, case) in cases {
        stage.prepare_namespace(case.object.as_ref().or(case.old.as_ref()).unwrap()).await;
    }
    let environment: &[(&str, &str)] = if dev_mode { &[("DEV_MODE", "TRUE")] } else { &[] };
    let operator = stage.follower(environment).await;
    let trying = futures::stream::iter(cases).map(async |(name, case)| {
        let problem = check(case, &ask(stage, case).await).err()?;
        Some(format!("{name}: {problem}"))
    });
    let failed: Vec<_> = trying.buffer_unordered(AT_ONCE).collect().await;
    stage.end(operator);
    failed.into_iter().flatten().collect()
}

fn is_network(object: &Value) -> bool {
    object["kind"].as_str().unwrap().ends_with("Network")
}

async fn ask(stage: &Stage, case: &Case) -> Answered {
    let (object, old) = (case.object.as_ref(), case.old.as_ref());
    match case.operation.unwrap_or(Operation::Create) {
        Operation::Create => stage.create(object.unwrap()).await,
        Operation::Update => stage.update(object.unwrap()).await,
        Operation::Delete => stage.delete(old.unwrap()).await,
    }
}

fn check(case: &Case, answered: &Answered) -> Result<(), String> {
    // It is there already, which the API server says after all others were asked.
    let is_there = answered.body["reason"] == "AlreadyExists";
    let is_admitted = answered.code < 300 || is_there;
    match case.by {
        By::Schema if is_admitted || answered.is_ours() => {
            return Err(format!("the schema lets it through: {answered:?}"));
        }
        By::Ours | By::LookUp if !is_admitted && !answered.is_ours() => {
            return Err(format!("somebody else refuses it: {answered:?}"));
        }
        By::Ours | By::Schema | By::LookUp | By::NotSent => {}
    }
    let patch = case.expect.patch.as_ref().filter(|_| is_admitted && !is_there);
    if let (Some(patch), Some(object)) = (patch, &case.object) {
        check_patched(object, patch, &answered.body)?;
    }
    let outcome = Outcome {
        errors: if is_there { Vec::new() } else { errors(answered) },
        warnings: answered.warnings.clone(),
        // Its effect was looked at.
        patch: case.expect.patch.clone().map(|patch| operations(&patch)).unwrap_or_default(),
    };
    case.expect.compare(&outcome)
}

/// What was said to be wrong. That rules of the schema were left out because others failed is not.
fn errors(answered: &Answered) -> Vec<String> {
    let is_wrong = |text: &String| !text.contains("some validation rules were not checked");
    answered.errors().into_iter().filter(is_wrong).collect()
}

/// The operations that are expected: what the API server did with ours is all that can be seen from outside.
fn operations(patch: &Value) -> Vec<vfleet_plan::admission::PatchOperation> {
    let operation = |operation: &Value| vfleet_plan::admission::PatchOperation::Add {
        path: operation["path"].as_str().unwrap().to_owned(),
        value: operation["value"].clone(),
    };
    patch.as_array().unwrap().iter().map(operation).collect()
}

/// Whether the object has become what the patch makes of it, in all that we ever change.
fn check_patched(object: &Value, patch: &Value, found: &Value) -> Result<(), String> {
    let mut expected = object.clone();
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
    json_patch::patch(&mut expected, &patch).unwrap();
    let wanted = touched(&expected);
    let found = touched(found);
    if wanted == found { Ok(()) } else { Err(format!("it became {found}, expected {wanted}")) }
}

fn touched(object: &Value) -> Value {
    let spec = &object["spec"];
    if object["kind"] != "Pod" {
        return json!([spec["priority"], spec["isRdma"]]);
    }
    // The API server itself gives pods requests and places: only what has a vendor can be ours.
    let of = |part: &str| -> BTreeMap<String, String> {
        let given = spec["containers"][0]["resources"][part].as_object().into_iter().flatten();
        let ours = given.filter(|(name, _)| name.contains('/'));
        ours.map(|(name, count)| (name.clone(), count.as_str().unwrap_or_default().to_owned())).collect()
    };
    json!([of("requests"), of("limits"), spec["nodeSelector"]])
}

/// Each answer is about its own object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once_are_told_apart() {
    let mut stage = Stage::new("many", Plane::AdmissionCases).await;
    let config = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig",
        "metadata": { "name": "default" }, "spec": { "enableOperatorWebhook": true },
    });
    stage.set(&[config]).await;
    let operator = stage.follower(&[]).await;
    let network = |number: usize| {
        let mut network = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetwork",
            "metadata": { "name": format!("net-{number}") }, "spec": { "resourceName": format!("r{number}x") },
        });
        if number.is_multiple_of(2) {
            network["spec"]["capabilities"] = json!(format!(r#"{{"cap{number}x": 1}}"#));
        }
        network
    };
    let networks: Vec<_> = (0..200).map(network).collect();
    let answers = futures::future::join_all(networks.iter().map(|network| stage.create(network))).await;
    let mut verdicts = BTreeSet::new();
    for (number, answered) in answers.iter().enumerate() {
        let [warning] = answered.warnings.as_slice() else { panic!("{number}: {answered:?}") };
        assert!(warning.contains(&format!("resource r{number}x yet")), "{number}: {answered:?}");
        let errors = answered.errors();
        if number % 2 == 0 {
            let [error] = errors.as_slice() else { panic!("{number}: {answered:?}") };
            assert!(
                error.contains(&format!("cap{number}x ")) && answered.is_ours(),
                "{number}: {answered:?}"
            );
        } else {
            assert!(errors.is_empty(), "{number}: {answered:?}");
            assert_eq!(answered.body["metadata"]["name"], format!("net-{number}"));
        }
        verdicts.insert(answered.code);
    }
    assert_eq!(verdicts, BTreeSet::from([201, 422]));
    stage.end(operator);
}
