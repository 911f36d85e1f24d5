//! What is in `deploy/` is what the code says.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn files(dir: &Path) -> BTreeMap<PathBuf, String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.file_name().unwrap().into(), std::fs::read_to_string(&path).unwrap()))
        .collect()
}

fn generated(command: &str) -> BTreeMap<PathBuf, String> {
    let fresh = tempfile::tempdir().unwrap();
    // The shipped program in `make test`.
    let vfleet = std::env::var_os("VFLEET_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_vfleet").into());
    let status = Command::new(vfleet).arg(command).arg("--dir").arg(fresh.path()).status();
    assert!(status.unwrap().success());
    files(fresh.path())
}

fn kept(directory: &str) -> BTreeMap<PathBuf, String> {
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory))
}

#[test]
fn deployed_crds_are_up_to_date() {
    assert!(
        kept("deploy/crds") == generated("crds"),
        "deploy/crds is not what crates/api says: run `make crds` and commit"
    );
}

#[test]
fn manifests_are_up_to_date() {
    assert!(
        kept("deploy") == generated("manifests"),
        "deploy/*.yaml is not what the code says: run `make manifests` and commit"
    );
}
