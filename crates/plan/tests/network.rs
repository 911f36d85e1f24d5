//! A network gives this NetworkAttachmentDefinition, to the byte. Add a file to `networks/` to add a test.
//!
//! - `as-go/*.yaml` with a `.txt` beside it: what the Go operator v1.6.0 makes of it. The texts are written by its own
//!   code and templates, with `RESOURCE_PREFIX=openshift.io`: after a change of a `.yaml`, run
//!   `fixtures/kube/go-operator/files/regenerate`. Never write them by any other means.
//! - `ours/*.yaml` with a `.txt`: where the Go operator has no such kind, or breaks what the user wrote. Written by
//!   `UPDATE_CASES=1 cargo test -p vfleet-plan --test network`; read them before committing.
//! - `faults/*.yaml` with a `.txt`: what is said about a network that cannot be followed. Written in the same way.

use std::path::Path;

use serde_json::Value;
use vfleet_plan::network::{Nad, NetworkFault, NetworkId, NetworkKind, NetworkSpec, plan_nad};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const OPERATOR_NAMESPACE: &str = "sriov-network-operator";

fn as_go(file: &Path) -> TestResult {
    let (id, nad) = outcome(file)?;
    let nad = nad.map_err(|faults| told(&faults))?;
    // The Go operator of that version has no owner annotation yet; the next one has.
    assert_eq!(nad.owner, id.to_string());
    assert_eq!(nad.owner_reference, nad.namespace == id.namespace);
    compare(&file.with_extension("txt"), &shown(&nad))
}

fn ours(file: &Path) -> TestResult {
    let (_, nad) = outcome(file)?;
    written(file, &shown(&nad.map_err(|faults| told(&faults))?))
}

fn fault(file: &Path) -> TestResult {
    let (_, nad) = outcome(file)?;
    let faults = nad.err().ok_or("a NetworkAttachmentDefinition was made of it")?;
    let lines = faults.iter().map(|fault| format!("{}: {fault}\n", fault.reason()));
    written(file, &lines.collect::<String>())
}

fn written(file: &Path, found: &str) -> TestResult {
    let expected = file.with_extension("txt");
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(&expected, found)?;
    }
    compare(&expected, found)
}

fn compare(expected: &Path, found: &str) -> TestResult {
    let wanted = std::fs::read_to_string(expected)?;
    if found == wanted {
        return Ok(());
    }
    Err(format!("{} does not match:\n--- expected\n{wanted}\n--- found\n{found}", expected.display()).into())
}

fn told(faults: &[NetworkFault]) -> String {
    format!("it cannot be followed: {faults:?}")
}

type Outcome = (NetworkId, Result<Nad, Vec<NetworkFault>>);

fn outcome(file: &Path) -> Result<Outcome, Box<dyn std::error::Error>> {
    let object: Value = serde_saphyr::from_str(&std::fs::read_to_string(file)?)?;
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let spec = object["spec"].clone();
    let (kind, spec) = match text("/kind").as_str() {
        "SriovNetwork" => (NetworkKind::Sriov, NetworkSpec::Sriov(serde_json::from_value(spec)?)),
        "SriovIBNetwork" => (NetworkKind::InfiniBand, NetworkSpec::InfiniBand(serde_json::from_value(spec)?)),
        "OVSNetwork" => (NetworkKind::Ovs, NetworkSpec::Ovs(serde_json::from_value(spec)?)),
        "BridgeNetwork" => (NetworkKind::Bridge, NetworkSpec::Bridge(serde_json::from_value(spec)?)),
        other => return Err(format!("{other} is no kind of network").into()),
    };
    let id = NetworkId { kind, namespace: text("/metadata/namespace"), name: text("/metadata/name") };
    let nad = plan_nad(&id, &spec, "openshift.io", OPERATOR_NAMESPACE);
    Ok((id, nad))
}

fn shown(nad: &Nad) -> String {
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
