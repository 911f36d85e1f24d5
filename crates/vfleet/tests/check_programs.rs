//! What `tools/check-programs` refuses in a `vfleet-cni`, and that it notices when it could not refuse anything.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const PACKAGES: &str = "serde_json 1.0.1 default,std\nvfleet-host 0.1.0\nvfleet-plan 0.1.0\n";
const TRACE: &str = "/registry/src/index/tokio-1.54.1/src/runtime/mod.rs";

/// Returns the faults of a script with this name, these words in it and this list of packages beside it. That a script is
/// no static program is found, too, and left out.
fn faults(name: &str, words: &str, packages: Option<&str>) -> Vec<String> {
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
    assert!(faults[0].contains("cannot be read"), "{text}");
    faults[1..].to_vec()
}

#[track_caller]
fn assert_one(faults: &[String], expected: &str) {
    assert!(matches!(faults, [fault] if fault.contains(expected)), "{faults:?} is not one with {expected:?}");
}

#[test]
fn a_good_one_has_no_fault() {
    assert_eq!(faults("vfleet-cni", "", Some(PACKAGES)), Vec::<String>::new());
    // Names that only look alike.
    let alike = format!("{PACKAGES}hyperloop 1.0.0\nmy-tokio 1.0.0\n");
    assert_eq!(faults("vfleet-cni", "/my-tokio-1.0.0/src/lib.rs", Some(&alike)), Vec::<String>::new());
}

#[test]
fn packages_that_it_must_not_be_built_from() {
    for package in
        ["tokio", "tokio-util", "kube", "kube-client", "k8s-openapi", "schemars", "hyper", "zbus_utils"]
    {
        let packages = format!("{PACKAGES}{package} 1.2.3 default\n");
        assert_one(&faults("vfleet-cni", "", Some(&packages)), &format!("is built from {package} 1.2.3: "));
    }
}

#[test]
fn code_that_no_list_names() {
    assert_one(&faults("vfleet-cni", TRACE, Some(PACKAGES)), "vfleet-cni contains code of tokio");
}

#[test]
fn a_list_that_proves_nothing() {
    for packages in [None, Some("")] {
        assert_one(&faults("vfleet-cni", "", packages), "vfleet-cni.packages is missing or empty");
    }
    let without_host = PACKAGES.replace("vfleet-host", "other");
    assert_one(&faults("vfleet-cni", "", Some(&without_host)), "is built without vfleet-host");
}

/// vfleet is built from all the packages: where their traces are not found in it, they would not be found in vfleet-cni.
#[test]
fn traces_that_cannot_be_found() {
    let names = ["hyper", "k8s-openapi", "kube-client", "schemars", "tokio", "zbus"];
    let traces = |names: &[&str]| {
        names.iter().map(|name| format!("/{name}-1.2.3/src/lib.rs")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(faults("vfleet", &traces(&names), None), Vec::<String>::new());
    assert_one(&faults("vfleet", &traces(&names[1..]), None), "vfleet has no trace of hyper");
}
