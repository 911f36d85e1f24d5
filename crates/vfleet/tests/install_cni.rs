//! Tests of `vfleet install-cni`: what it prints, and its exit status. The files are tested in `crates/host`.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use vfleet_plan::cni::programs::MARKER;

/// Returns the program under test: the shipped one in `make test`.
fn vfleet() -> OsString {
    std::env::var_os("VFLEET_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_vfleet").into())
}

/// Root file system of a host.
struct HostTree(TempDir);

impl HostTree {
    fn new() -> Self {
        let tree = Self(TempDir::new().unwrap());
        tree.write("new/vfleet-cni", format!("\x7fELF {MARKER}").as_bytes());
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Runs the command; returns its exit status, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(vfleet());
        command.args(["install-cni", "--dir", "/opt/cni/bin", "--host-root"]).arg(self.0.path());
        let output = command.args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn install(&self, arguments: &[&str]) -> (i32, String, String) {
        self.install_program(&self.path("new/vfleet-cni"), arguments)
    }

    fn install_program(&self, program: &Path, arguments: &[&str]) -> (i32, String, String) {
        self.run(&[&["--program", program.to_str().unwrap()], arguments].concat())
    }

    fn has(&self, name: &str) -> bool {
        self.path("opt/cni/bin").join(name).exists()
    }
}

#[test]
fn plugins_are_installed_and_removed() {
    let host = HostTree::new();
    let (status, out, error) = host.install(&["--skip", "rdma"]);
    assert_eq!((status, error.as_str()), (0, ""));
    let expected =
        ["sriov", "ib-sriov", "vfleet-cni"].map(|name| format!("/opt/cni/bin/{name}: installed\n"));
    assert_eq!(out, expected.concat());
    assert!(host.has("sriov") && !host.has("rdma"));
    let (status, out, _) = host.install(&[]);
    assert!(status == 0 && out.contains("sriov: up to date\n") && out.contains("rdma: installed\n"), "{out}");
    let (status, out, error) = host.run(&["--remove"]);
    assert!(status == 0 && error.is_empty() && out.lines().all(|line| line.ends_with(": removed")), "{out}");
    assert!(!host.has("sriov") && !host.has("vfleet-cni"));
}

#[test]
fn a_foreign_program_is_left_and_reported_after_the_others_are_installed() {
    let host = HostTree::new();
    host.write("opt/cni/bin/sriov", b"#!/bin/sh\n");
    let (status, _, error) = host.install(&[]);
    assert_eq!(status, 3);
    assert!(
        error.starts_with("vfleet: /opt/cni/bin/sriov was left") && error.contains("--skip sriov"),
        "{error}"
    );
    assert!(host.has("rdma"));
    assert_eq!(fs::read(host.path("opt/cni/bin/sriov")).unwrap(), b"#!/bin/sh\n");
    let (status, _, tolerated) = host.install(&["--tolerate-foreign"]);
    assert_eq!((status, tolerated), (0, error));
    assert_eq!(host.run(&["--remove"]).0, 0, "nothing else was to be removed");
}

#[test]
fn plugins_stay_while_pods_are_attached() {
    let host = HostTree::new();
    host.install(&[]);
    host.write("var/lib/cni/vfleet/sriov:0123456789abcdef:net1:0000:3b:00.2", b"{}");
    let (status, out, error) = host.run(&["--remove"]);
    assert_eq!((status, out.as_str()), (3, ""));
    assert!(
        error.contains("nothing was removed") && error.contains("net1 of container 0123456789ab ("),
        "{error}"
    );
    assert!(host.has("sriov"));
}

#[test]
fn only_the_program_of_the_same_release_is_installed() {
    let host = HostTree::new();
    // vfleet contains the code that searches for the marker, and is not vfleet-cni.
    let (status, _, error) = host.install_program(Path::new(&vfleet()), &[]);
    assert!(status == 1 && error.contains("is another program, not vfleet-cni"), "{error}");
    host.write("new/vfleet-cni", b"\x7fELF <vfleet-cni program, version 0.0.1>");
    let (status, _, error) = host.install(&[]);
    assert!(status == 1 && error.contains("is vfleet-cni 0.0.1, not"), "{error}");
    assert!(!host.has("sriov"));
}

#[test]
fn an_invalid_command_line_is_refused() {
    let host = HostTree::new();
    for line in [&["--skip", "bridge"][..], &["--skip", "vfleet-cni"], &["--remove", "--skip", "sriov"]] {
        assert_eq!(host.install(line).0, 2, "{line:?}");
    }
    let output = Command::new(vfleet()).args(["install-cni", "--dir", "bin"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "a relative path");
}
