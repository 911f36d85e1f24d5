//! Tests of `tools/check-programs`: which `vfleet-cni` it rejects, and whether it notices a check without effect.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use vfleet_plan::cni::programs::MARKER;

const PACKAGES: &str = "serde_json 1.0.1 default,std\nvfleet-host 0.1.0\nvfleet-plan 0.1.0\n";
const TRACE: &str = "/registry/src/index/tokio-1.54.1/src/runtime/mod.rs";

/// Returns the faults that the tool finds in a script with this name, text and list of packages. The fault that a
/// script is not a static program is omitted.
fn faults(name: &str, words: &str, packages: Option<&str>) -> Vec<String> {
    faults_without_marker(name, &format!("{words} {MARKER}"), packages)
}

fn faults_without_marker(name: &str, words: &str, packages: Option<&str>) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join(name);
    let script = format!(
        "#!/bin/sh\n# {words}\n[ \"$1\" = --version ] && echo 1 && exit\necho '{{\"code\":4,\"msg\":\"\"}}'; exit 1\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    if let Some(packages) = packages {
        fs::write(folder.path().join(format!("{name}.packages")), packages).unwrap();
    }
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/check-programs");
    let output = Command::new(tool).arg(&program).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("check-programs: "));
    let faults: Vec<_> =
        lines.map(|line| line.replace(&format!("{}/", folder.path().display()), "")).collect();
    assert!(faults[0].contains("could not read"), "{text}");
    faults[1..].to_vec()
}

#[track_caller]
fn assert_one(faults: &[String], expected: &str) {
    assert!(matches!(faults, [fault] if fault.contains(expected)), "{faults:?} is not one with {expected:?}");
}

#[test]
fn a_valid_program_has_no_fault() {
    assert_eq!(faults("vfleet-cni", "", Some(PACKAGES)), Vec::<String>::new());
    // Names that are only similar.
    let similar = format!("{PACKAGES}hyperloop 1.0.0\nmy-tokio 1.0.0\n");
    assert_eq!(faults("vfleet-cni", "/my-tokio-1.0.0/src/lib.rs", Some(&similar)), Vec::<String>::new());
}

#[test]
fn forbidden_packages_are_found() {
    for package in
        ["tokio", "tokio-util", "kube", "kube-client", "k8s-openapi", "schemars", "hyper", "zbus_utils"]
    {
        let packages = format!("{PACKAGES}{package} 1.2.3 default\n");
        assert_one(&faults("vfleet-cni", "", Some(&packages)), &format!("is built from {package} 1.2.3: "));
    }
}

#[test]
fn code_of_packages_that_are_not_listed_is_found() {
    assert_one(&faults("vfleet-cni", TRACE, Some(PACKAGES)), "vfleet-cni contains code of tokio");
}

#[test]
fn an_incomplete_list_of_packages_is_found() {
    for packages in [None, Some("")] {
        assert_one(&faults("vfleet-cni", "", packages), "vfleet-cni.packages is missing or empty");
    }
    let without_host = PACKAGES.replace("vfleet-host", "other");
    assert_one(&faults("vfleet-cni", "", Some(&without_host)), "is built without vfleet-host");
}

#[test]
fn a_missing_marker_is_found() {
    assert_one(&faults_without_marker("vfleet-cni", "", Some(PACKAGES)), "vfleet-cni has no marker");
}

/// vfleet contains all forbidden packages. If their traces are not found in vfleet, the check has no effect.
#[test]
fn missing_traces_are_found() {
    let names = ["hyper", "k8s-openapi", "kube-client", "schemars", "tokio", "zbus"];
    let traces = |names: &[&str]| {
        names.iter().map(|name| format!("/{name}-1.2.3/src/lib.rs")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(faults("vfleet", &traces(&names), None), Vec::<String>::new());
    assert_one(&faults("vfleet", &traces(&names[1..]), None), "vfleet has no trace of hyper");
}
