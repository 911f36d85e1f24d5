//! Generated files in `deploy/`, compared with the code.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

fn files(dir: &Path) -> BTreeMap<PathBuf, String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.file_name().unwrap().into(), std::fs::read_to_string(&path).unwrap()))
        .collect()
}

fn generated(command: &str) -> BTreeMap<PathBuf, String> {
    generated_with(command, &[])
}

fn generated_with(command: &str, arguments: &[&str]) -> BTreeMap<PathBuf, String> {
    let fresh = tempfile::tempdir().unwrap();
    // `make test` sets it to the shipped program.
    let vfleet = std::env::var_os("VFLEET_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_vfleet").into());
    let status = Command::new(vfleet).arg(command).args(arguments).arg("--dir").arg(fresh.path()).status();
    assert!(status.unwrap().success());
    files(fresh.path())
}

fn committed(directory: &str) -> BTreeMap<PathBuf, String> {
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory))
}

#[test]
fn deployed_crds_are_up_to_date() {
    assert!(
        committed("deploy/crds") == generated("crds"),
        "deploy/crds differs from crates/api: run `make crds` and commit"
    );
}

#[test]
fn manifests_are_up_to_date() {
    assert!(
        committed("deploy") == generated("manifests"),
        "deploy/*.yaml differs from the code: run `make manifests` and commit"
    );
}

const POLICIES: &str = "network-policies.yaml";

fn objects(yaml: &str) -> Vec<Value> {
    yaml.split("---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// Returns the pod template and the container of the operator's Deployment.
fn operator(files: &BTreeMap<PathBuf, String>) -> (Value, Value) {
    let mut objects = objects(&files[Path::new("operator.yaml")]).into_iter();
    let pod = objects.find(|object| object["kind"] == "Deployment").unwrap()["spec"]["template"].take();
    let container = pod["spec"]["containers"][0].clone();
    (pod, container)
}

#[test]
fn network_policies_allow_webhooks_and_metrics_of_the_operators_pods() {
    let files = generated("manifests");
    let (pod, container) = operator(&files);
    let port = |name: &str| {
        let mut ports = container["ports"].as_array().unwrap().iter();
        let number = &ports.find(|port| port["name"] == name).unwrap()["containerPort"];
        json!([{ "port": number, "protocol": "TCP" }])
    };
    let policies = objects(&files[Path::new(POLICIES)]);
    assert_eq!(policies.len(), 1);
    assert_eq!(
        policies[0]["spec"],
        json!({
            "podSelector": { "matchLabels": pod["metadata"]["labels"] },
            // Egress is not restricted.
            "policyTypes": ["Ingress"],
            "ingress": [
                { "ports": port("webhook") },
                { "from": [{ "namespaceSelector": {} }], "ports": port("metrics") },
            ],
        })
    );
}

#[test]
fn the_directory_of_cni_plugins_depends_on_the_type_of_cluster() {
    for (cluster_type, directory) in [("kubernetes", "/opt/cni/bin"), ("openshift", "/var/lib/cni/bin")] {
        let (_, container) = operator(&generated_with("manifests", &["--cluster-type", cluster_type]));
        let variables = container["env"].as_array().unwrap();
        for (name, value) in [("CLUSTER_TYPE", cluster_type), ("SRIOV_CNI_BIN_PATH", directory)] {
            assert!(variables.contains(&json!({ "name": name, "value": value })), "{variables:?}");
        }
    }
}

#[test]
fn metrics_can_be_restricted_to_monitoring_namespaces() {
    let named = ["--monitoring-namespace", "monitoring", "--monitoring-namespace", "more"];
    let files = generated_with("manifests", &named);
    let from = &objects(&files[Path::new(POLICIES)])[0]["spec"]["ingress"][1]["from"];
    let expected = json!([{
        "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["monitoring", "more"],
    }]);
    assert_eq!(*from, json!([{ "namespaceSelector": { "matchExpressions": expected } }]));
}

#[test]
fn network_policies_can_be_omitted() {
    let mut all = generated("manifests");
    all.remove(Path::new(POLICIES)).unwrap();
    assert!(all == generated_with("manifests", &["--no-network-policies"]));
}
