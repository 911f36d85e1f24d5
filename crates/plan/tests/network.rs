//! NetworkAttachmentDefinitions of networks, compared byte by byte. Add a file to `networks/` to add a test.
//!
//! - `as-go/*.yaml` with a `.txt`: the NetworkAttachmentDefinition of the Go operator v1.6.0. The texts are written by the
//!   code and templates of the Go operator, with `RESOURCE_PREFIX=openshift.io`: after a change of a `.yaml`, run
//!   `fixtures/kube/go-operator/files/regenerate`. Do not write them by other means.
//! - `ours/*.yaml` with a `.txt`: networks that the Go operator does not support or renders incorrectly. Written by
//!   `UPDATE_CASES=1 cargo test -p vfleet-plan --test network`; read them before committing.
//! - `faults/*.yaml` with a `.txt`: faults of invalid networks. Written in the same way.

use std::path::Path;

use serde_json::Value;
use vfleet_plan::network::{DesiredNad, NetworkFault, NetworkId, NetworkKind, NetworkSpec, plan_nad};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const OPERATOR_NAMESPACE: &str = "sriov-network-operator";

fn as_go(file: &Path) -> TestResult {
    let (id, nad) = plan_file(file)?;
    let nad = nad.map_err(|faults| describe(&faults))?;
    // The Go operator of that version has no owner annotation yet; the next one has.
    assert_eq!(nad.owner, id.to_string());
    assert_eq!(nad.owner_reference, nad.namespace == id.namespace);
    compare(&file.with_extension("txt"), &format_nad(&nad))
}

fn ours(file: &Path) -> TestResult {
    let (_, nad) = plan_file(file)?;
    compare_or_update(file, &format_nad(&nad.map_err(|faults| describe(&faults))?))
}

fn fault(file: &Path) -> TestResult {
    let (_, nad) = plan_file(file)?;
    let faults = nad.err().ok_or("the network is valid")?;
    let lines = faults.iter().map(|fault| format!("{}: {fault}\n", fault.reason()));
    compare_or_update(file, &lines.collect::<String>())
}

fn compare_or_update(file: &Path, found: &str) -> TestResult {
    let expected = file.with_extension("txt");
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(&expected, found)?;
    }
    compare(&expected, found)
}

fn compare(expected: &Path, found: &str) -> TestResult {
    let text = std::fs::read_to_string(expected)?;
    if found == text {
        return Ok(());
    }
    Err(format!("{} does not match:\n--- expected\n{text}\n--- found\n{found}", expected.display()).into())
}

fn describe(faults: &[NetworkFault]) -> String {
    format!("the network is invalid: {faults:?}")
}

type PlannedNetwork = (NetworkId, Result<DesiredNad, Vec<NetworkFault>>);

fn plan_file(file: &Path) -> Result<PlannedNetwork, Box<dyn std::error::Error>> {
    let object: Value = serde_saphyr::from_str(&std::fs::read_to_string(file)?)?;
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let spec = object["spec"].clone();
    let (kind, spec) = match text("/kind").as_str() {
        "SriovNetwork" => (NetworkKind::Sriov, NetworkSpec::Sriov(serde_json::from_value(spec)?)),
        "SriovIBNetwork" => (NetworkKind::InfiniBand, NetworkSpec::InfiniBand(serde_json::from_value(spec)?)),
        "OVSNetwork" => (NetworkKind::Ovs, NetworkSpec::Ovs(serde_json::from_value(spec)?)),
        "BridgeNetwork" => (NetworkKind::Bridge, NetworkSpec::Bridge(serde_json::from_value(spec)?)),
        other => return Err(format!("{other} is not a kind of network").into()),
    };
    let id = NetworkId { kind, namespace: text("/metadata/namespace"), name: text("/metadata/name") };
    let nad = plan_nad(&id, &spec, "openshift.io", OPERATOR_NAMESPACE);
    Ok((id, nad))
}

fn format_nad(nad: &DesiredNad) -> String {
    format!(
        "name: {}\nnamespace: {}\nannotation k8s.v1.cni.cncf.io/resourceName: {}\nconfig:\n{}\n",
        nad.name, nad.namespace, nad.resource, nad.config
    )
}

datatest_stable::harness! {
    { test = as_go, root = "tests/networks/as-go", pattern = r"\.yaml$" },
    { test = ours, root = "tests/networks/ours", pattern = r"\.yaml$" },
    { test = fault, root = "tests/networks/faults", pattern = r"\.yaml$" },
}
