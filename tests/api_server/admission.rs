//! Admission requests of a real API server over TLS: the cases of `crates/plan/tests/admission` (their format is
//! described in `crates/plan/tests/admission.rs`), and many requests at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use futures::StreamExt;
use serde_json::{Value, json};
use vfleet_plan::admission::Operation;
use vfleet_tests::admission::{ApiResponse, CaseCluster};
use vfleet_tests::plane::Plane;

use crate::case::{Case, DecidedBy, Outcome};

/// Number of parallel requests.
const PARALLEL: usize = 16;

/// Objects that must exist before a case. Cases with the same objects share a cluster.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Scene {
    world: String,
    /// Additional objects as JSON, in order.
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

/// Adapts a case. Networks get unique names, so that all can exist at the same time (no message contains them), and
/// admission is enabled in operator configs.
fn adapt(name: &str, mut case: Case) -> Case {
    let objects = [&mut case.object, &mut case.old].into_iter().flatten();
    for object in objects.chain(&mut case.also) {
        if is_network(object) {
            object["metadata"]["name"] = json!(name);
        }
        if object["kind"] == "SriovOperatorConfig" {
            enable_admission(object);
        }
    }
    case
}

fn enable_admission(config: &mut Value) {
    config["spec"]["enableOperatorWebhook"] = json!(true);
    config["spec"]["enableInjector"] = json!(true);
}

fn scene(case: &Case) -> Option<Scene> {
    // Networks do not influence each other.
    let old = case.old.iter().filter(|old| !old["kind"].as_str().unwrap().ends_with("Network"));
    let also = case.also.iter().chain(old).map(ToString::to_string).collect();
    Some(Scene { world: case.world.clone()?, also })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_has_the_expected_response() {
    let mut scenes: BTreeMap<Scene, Vec<(String, Case)>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for (name, case) in all_cases() {
        let case = adapt(&name, case);
        match scene(&case) {
            Some(scene) => scenes.entry(scene).or_default().push((name, case)),
            None => left_out.push(name),
        }
    }
    eprintln!("checked only in crates/plan, because they have no cluster: {left_out:?}");
    let mut cluster = CaseCluster::new("cases", Plane::AdmissionCases).await;
    let (mut checked, mut failed) = (0, Vec::new());
    for (scene, cases) in scenes {
        checked += cases.len();
        failed.extend(check_scene(&mut cluster, &scene, &cases).await);
    }
    assert!(failed.is_empty(), "{} of {checked}:\n{}\n", failed.len(), failed.join("\n"));
    assert!(checked >= 120, "{checked}");
}

/// Checks all cases of a scene. Returns the failures.
async fn check_scene(cluster: &mut CaseCluster, scene: &Scene, cases: &[(String, Case)]) -> Vec<String> {
    let (dev_mode, mut objects) = crate::world::read_objects(&folder("worlds"), &scene.world).unwrap();
    let also: Vec<Value> = scene.also.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    crate::world::add(&mut objects, &also).unwrap();
    let mut objects: Vec<Value> = objects.into_values().collect();
    if !objects.iter().any(|object| object["kind"] == "SriovOperatorConfig") {
        let mut config = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig",
            "metadata": { "name": "default" },
        });
        enable_admission(&mut config);
        objects.push(config);
    }
    objects.extend(cases.iter().filter_map(|(_, case)| case.old.clone()).filter(is_network));
    cluster.replace_objects(&objects).await;
    for (_, case) in cases {
        cluster.prepare_namespace(case.object.as_ref().or(case.old.as_ref()).unwrap()).await;
    }
    let environment: &[(&str, &str)] = if dev_mode { &[("DEV_MODE", "TRUE")] } else { &[] };
    let operator = cluster.start_follower(environment).await;
    let results = futures::stream::iter(cases).map(async |(name, case)| {
        let problem = check(case, &send(cluster, case).await).err()?;
        Some(format!("{name}: {problem}"))
    });
    let failed: Vec<_> = results.buffer_unordered(PARALLEL).collect().await;
    cluster.end(operator);
    failed.into_iter().flatten().collect()
}

fn is_network(object: &Value) -> bool {
    object["kind"].as_str().unwrap().ends_with("Network")
}

async fn send(cluster: &CaseCluster, case: &Case) -> ApiResponse {
    let (object, old) = (case.object.as_ref(), case.old.as_ref());
    match case.operation.unwrap_or(Operation::Create) {
        Operation::Create => cluster.create(object.unwrap()).await,
        Operation::Update => cluster.update(object.unwrap()).await,
        Operation::Delete => cluster.delete(old.unwrap()).await,
    }
}

fn check(case: &Case, response: &ApiResponse) -> Result<(), String> {
    // The API server reports this after all webhooks have admitted the object.
    let exists = response.body["reason"] == "AlreadyExists";
    let is_admitted = response.code < 300 || exists;
    match case.by {
        DecidedBy::Schema if is_admitted || response.is_from_webhook() => {
            return Err(format!("the schema does not refuse it: {response:?}"));
        }
        DecidedBy::Ours | DecidedBy::LookUp if !is_admitted && !response.is_from_webhook() => {
            return Err(format!("refused by something else: {response:?}"));
        }
        DecidedBy::Ours | DecidedBy::Schema | DecidedBy::LookUp | DecidedBy::NotSent => {}
    }
    let patch = case.expect.patch.as_ref().filter(|_| is_admitted && !exists);
    if let (Some(patch), Some(object)) = (patch, &case.object) {
        check_patched(object, patch, &response.body)?;
    }
    let outcome = Outcome {
        errors: if exists { Vec::new() } else { errors(response) },
        warnings: response.warnings.clone(),
        // Its effect was checked above.
        patch: case.expect.patch.clone().map(|patch| operations(&patch)).unwrap_or_default(),
    };
    case.expect.compare(&outcome)
}

/// Returns the errors, without the note that schema rules were skipped because others failed.
fn errors(response: &ApiResponse) -> Vec<String> {
    let is_error = |text: &String| !text.contains("some validation rules were not checked");
    response.errors().into_iter().filter(is_error).collect()
}

/// Returns the expected operations. Only their effect is visible from outside.
fn operations(patch: &Value) -> Vec<vfleet_plan::admission::PatchOperation> {
    let operation = |operation: &Value| vfleet_plan::admission::PatchOperation::Add {
        path: operation["path"].as_str().unwrap().to_owned(),
        value: operation["value"].clone(),
    };
    patch.as_array().unwrap().iter().map(operation).collect()
}

/// Checks that the stored object has the effect of the patch, in all fields that webhooks change.
fn check_patched(object: &Value, patch: &Value, found: &Value) -> Result<(), String> {
    let mut expected = object.clone();
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
    json_patch::patch(&mut expected, &patch).unwrap();
    let expected = patched_fields(&expected);
    let found = patched_fields(found);
    if expected == found { Ok(()) } else { Err(format!("patched to {found}, expected {expected}")) }
}

fn patched_fields(object: &Value) -> Value {
    let spec = &object["spec"];
    if object["kind"] != "Pod" {
        return json!([spec["priority"], spec["isRdma"]]);
    }
    // The API server adds defaults of its own. Injected resources have a prefix.
    let of = |part: &str| -> BTreeMap<String, String> {
        let entries = spec["containers"][0]["resources"][part].as_object().into_iter().flatten();
        let injected = entries.filter(|(name, _)| name.contains('/'));
        injected.map(|(name, count)| (name.clone(), count.as_str().unwrap_or_default().to_owned())).collect()
    };
    json!([of("requests"), of("limits"), spec["nodeSelector"]])
}

/// Responses are not mixed up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_parallel_requests_get_their_own_responses() {
    let mut cluster = CaseCluster::new("many", Plane::AdmissionCases).await;
    let config = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig",
        "metadata": { "name": "default" }, "spec": { "enableOperatorWebhook": true },
    });
    cluster.replace_objects(&[config]).await;
    let operator = cluster.start_follower(&[]).await;
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
    let responses = futures::future::join_all(networks.iter().map(|network| cluster.create(network))).await;
    let mut codes = BTreeSet::new();
    for (number, response) in responses.iter().enumerate() {
        let [warning] = response.warnings.as_slice() else { panic!("{number}: {response:?}") };
        assert!(warning.contains(&format!("resource r{number}x yet")), "{number}: {response:?}");
        let errors = response.errors();
        if number % 2 == 0 {
            let [error] = errors.as_slice() else { panic!("{number}: {response:?}") };
            assert!(
                error.contains(&format!("cap{number}x ")) && response.is_from_webhook(),
                "{number}: {response:?}"
            );
        } else {
            assert!(errors.is_empty(), "{number}: {response:?}");
            assert_eq!(response.body["metadata"]["name"], format!("net-{number}"));
        }
        codes.insert(response.code);
    }
    assert_eq!(codes, BTreeSet::from([201, 422]));
    cluster.end(operator);
}
