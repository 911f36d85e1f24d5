//! CustomResourceDefinitions in a real API server: it accepts them, accepts valid objects, and rejects invalid objects
//! with an error that names the field.
//!
//! Add a file to `server/accepted/` or `server/refused/` to add a case. The first line of a refused file is `# expect:
//! ` and a part of the error. All files are written by hand; `fixtures/kube/go-operator/files/regenerate --check`
//! verifies that files with the prefix `go-` are objects of the API of the Go operator.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]

use std::path::{Path, PathBuf};
use std::sync::Once;

use fixture_kube::ControlPlane;

fn plane() -> &'static ControlPlane {
    static CRDS: Once = Once::new();
    let plane = ControlPlane::shared();
    CRDS.call_once(|| plane.apply_crds(&root().join("deploy/crds")).expect("every CRD is accepted"));
    plane
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Creates an object in a dry run and returns the response or the error.
fn create_dry_run(plane: &ControlPlane, file: &Path) -> Result<String, String> {
    let file = file.to_str().unwrap();
    let output = plane.kubectl(&["create", "--dry-run=server", "-o", "json", "-f", file]).unwrap();
    // A warning ("unknown field", "unrecognized format") means that a part of the object is lost.
    if output.status.success() && output.stderr.is_empty() { Ok(output.stdout) } else { Err(output.stderr) }
}

#[test]
fn accepts_objects_of_the_go_api_and_of_the_designs() {
    let plane = plane();
    let refused: Vec<_> = cases("accepted")
        .into_iter()
        .filter_map(|file| {
            create_dry_run(plane, &file).err().map(|error| format!("{}: {error}", file.display()))
        })
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// The three workflows, each with operator config, policy and network.
#[test]
fn accepts_the_objects_of_the_page_about_bridges() {
    let plane = plane();
    let page = std::fs::read_to_string(root().join("docs/bridges.md")).unwrap();
    let file = plane.directory().join("bridges.yaml");
    let mut kinds = Vec::new();
    let blocks = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    // NetworkAttachmentDefinitions belong to the API of Multus.
    for block in blocks.filter(|block| !block.contains("kind: NetworkAttachmentDefinition")) {
        // The namespace of the operator does not exist here.
        std::fs::write(&file, block.replace("  namespace: sriov-network-operator\n", "")).unwrap();
        let created = create_dry_run(plane, &file).unwrap_or_else(|error| panic!("{error}\n{block}"));
        let created: serde_json::Value = serde_json::from_str(&created).unwrap();
        kinds.push(created["kind"].as_str().unwrap().to_owned());
    }
    let count = |kind| kinds.iter().filter(|found| *found == kind).count();
    let counts = [count("SriovOperatorConfig"), count("SriovNetworkNodePolicy")];
    assert_eq!((counts, count("OVSNetwork"), count("BridgeNetwork")), ([3, 4], 2, 2), "{kinds:?}");
}

#[test]
fn rejects_invalid_values_and_names_the_field() {
    let plane = plane();
    let wrong: Vec<_> = cases("refused").into_iter().filter_map(|file| find_mismatch(plane, &file)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn find_mismatch(plane: &ControlPlane, file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let expected =
        text.lines().next().unwrap().strip_prefix("# expect: ").expect("first line: # expect: ...");
    match create_dry_run(plane, file) {
        Ok(_) => Some(format!("{}: accepted", file.display())),
        Err(error) if error.contains(expected) => None,
        Err(error) => Some(format!("{}: expected {expected:?} in: {error}", file.display())),
    }
}

#[test]
fn defaults_are_those_of_the_go_api() {
    let plane = plane();
    let accepted = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/accepted");
    let object = |name: &str| -> serde_json::Value {
        serde_json::from_str(&create_dry_run(plane, &accepted.join(name)).unwrap()).unwrap()
    };
    assert_eq!(object("go-policy-minimal.yaml")["spec"]["deviceType"], "netdevice");
    assert!(object("go-policy-minimal.yaml")["spec"]["priority"].is_null());
    assert!(object("seed-000-pool.yaml")["spec"]["maxUnavailable"].is_null());
    assert!(object("go-pool.yaml")["spec"]["drainConfig"].is_null());
    assert!(object("go-node-state-without-spec.yaml")["spec"].is_object());
}

#[test]
fn every_kind_can_be_explained_and_listed() {
    let plane = plane();
    for crd in vfleet_api::crds::all() {
        let plural = crd.spec.names.plural;
        let text = plane.kubectl(&["explain", &format!("{plural}.spec")]).unwrap().into_stdout().unwrap();
        assert!(text.contains("DESCRIPTION") && !text.contains("<no description>"), "{plural}: {text}");
        let conditions = plane.kubectl(&["explain", &format!("{plural}.status.conditions")]).unwrap();
        assert!(conditions.status.success(), "{plural}: {}", conditions.stderr);
        let list = plane.kubectl(&["get", &plural, "-A"]).unwrap();
        assert!(list.status.success(), "{plural}: {}", list.stderr);
    }
}
