//! The CustomResourceDefinitions in `deploy/crds/` are those of `crates/api`.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn files(dir: &Path) -> BTreeMap<PathBuf, String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().into(), std::fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn deployed_crds_are_up_to_date() {
    let fresh = tempfile::tempdir().unwrap();
    let status =
        Command::new(env!("CARGO_BIN_EXE_vfleet")).arg("crds").arg("--dir").arg(fresh.path()).status();
    assert!(status.unwrap().success());
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    assert!(
        files(&kept) == files(fresh.path()),
        "deploy/crds is not what crates/api says: run `make crds` and commit"
    );
}
