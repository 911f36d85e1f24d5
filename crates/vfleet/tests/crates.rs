//! Dependency rules of `ARCHITECTURE.md`, compared with the packages that each crate really uses.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Crates, and packages that must not be among their direct or indirect dependencies without features.
const FORBIDDEN: [(&str, &[&str]); 6] = [
    ("vfleet-api", &["nix", "netlink-sys"]),
    ("vfleet-plan", &["nix", "netlink-sys", "tracing"]),
    ("vfleet-host", &["anyhow", "serde-saphyr"]),
    ("vfleet-cluster", &["vfleet-plan", "vfleet-host", "vfleet-cni", "nix", "netlink-sys"]),
    ("vfleet-operator", &["vfleet-host", "vfleet-cni", "netlink-sys", "netlink-packet-route"]),
    ("vfleet", &["fixture-kube", "fixture-lab", "vfleet-tests", "vfleet-demo"]),
];

/// Crates that vfleet-cni is built from. They do not depend on packages of [`FORBIDDEN_FOR_CNI`], nor on packages whose
/// names continue one of those.
const CNI: [&str; 4] = ["vfleet-api", "vfleet-plan", "vfleet-host", "vfleet-cni"];
const FORBIDDEN_FOR_CNI: &str = include_str!("../../cni/forbidden-packages");

/// Crates with features, and packages that must not be among their dependencies with these features.
const FORBIDDEN_WITH_FEATURES: [(&str, &str, &[&str]); 2] = [
    ("vfleet-api", "crds", &["tokio", "hyper", "kube-client", "kube-runtime"]),
    ("vfleet-host", "sim,systemd", &["tokio", "hyper", "kube", "k8s-openapi"]),
];

/// Direct dependencies of the planner.
const PLANNER_DEPENDENCIES: [&str; 4] = ["serde", "serde_json", "thiserror", "vfleet-api"];

/// Largest number of workspace members.
const MAX_MEMBERS: usize = 14;

/// Returns the dependencies of `name` down to `depth`. The crate is resolved alone: in the whole workspace, features
/// that one crate enables apply to all.
fn dependencies(name: &str, features: &str, depth: &str) -> BTreeSet<String> {
    let arguments = ["--edges", "normal", "--prefix", "none", "--format", "{p}", "--depth", depth];
    let crate_alone = ["tree", "--locked", "--offline", "--package", name, "--features", features];
    let tree = cargo(&[&crate_alone, &arguments[..]].concat());
    tree.lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|package| *package != name)
        .map(str::to_owned)
        .collect()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn no_crate_has_a_forbidden_dependency() {
    for (name, forbidden) in FORBIDDEN {
        assert_no_dependency(name, "", forbidden);
    }
    for (name, features, forbidden) in FORBIDDEN_WITH_FEATURES {
        assert_no_dependency(name, features, forbidden);
    }
}

fn assert_no_dependency(name: &str, features: &str, forbidden: &[&str]) {
    let dependencies = dependencies(name, features, "99");
    for package in forbidden {
        assert!(
            !dependencies.contains(*package),
            "{name} depends on {package}, which ARCHITECTURE.md forbids"
        );
    }
}

/// `tools/check-programs` checks the same for the shipped program.
#[test]
fn vfleet_cni_depends_on_planner_and_host_and_on_no_forbidden_package() {
    let forbidden: Vec<&str> = FORBIDDEN_FOR_CNI.lines().filter(|line| !line.starts_with('#')).collect();
    let is_forbidden = |package: &str| {
        let continued =
            |name: &&str| package.strip_prefix(*name).is_some_and(|rest| rest.starts_with(['-', '_']));
        forbidden.iter().any(|name| package == *name || continued(name))
    };
    for name in CNI {
        let found: Vec<_> =
            dependencies(name, "", "99").into_iter().filter(|package| is_forbidden(package)).collect();
        assert!(found.is_empty(), "{name} depends on {found:?}, which crates/cni/forbidden-packages forbids");
    }
    let cni = dependencies("vfleet-cni", "", "1");
    assert!(cni.contains("vfleet-plan") && cni.contains("vfleet-host"), "{cni:?}");
    // vfleet uses all of them with its features: a misspelled name would forbid nothing.
    let vfleet = dependencies("vfleet", "", "99");
    for name in forbidden {
        assert!(vfleet.contains(name), "{name} is not a package");
    }
}

#[test]
fn the_planner_depends_on_nothing_that_does_io() {
    let used = dependencies("vfleet-plan", "", "1");
    assert!(
        used.iter().eq(PLANNER_DEPENDENCIES),
        "{used:?}: a new dependency of the planner needs a decision"
    );
}

/// `no_std` excludes files, clocks, the environment, processes and sockets.
#[test]
fn the_planner_is_compiled_without_the_standard_library() {
    let source = root().join("crates/plan/src");
    let lib = std::fs::read_to_string(source.join("lib.rs")).unwrap();
    assert!(lib.lines().any(|line| line == "#![no_std]"), "crates/plan/src/lib.rs must say #![no_std]");
    for file in rust_files(&source) {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("extern crate std"), "{}: the planner does no I/O", file.display());
    }
}

fn rust_files(directory: &Path) -> Vec<std::path::PathBuf> {
    let (folders, files): (Vec<_>, Vec<_>) = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .partition(|path| path.is_dir());
    folders.iter().flat_map(|folder| rust_files(folder)).chain(files).collect()
}

#[test]
fn there_are_few_workspace_members() {
    let metadata = cargo(&["metadata", "--format-version", "1", "--locked", "--offline", "--no-deps"]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let members = metadata["workspace_members"].as_array().unwrap().len();
    assert!(members <= MAX_MEMBERS, "{members} workspace members: write a decision rather than a new crate");
}
