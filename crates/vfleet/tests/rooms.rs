//! The rooms of `ARCHITECTURE.md` and what each may use, compared with what each really uses.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A room, and packages that must not be anywhere below it when it is built alone, without features.
const FORBIDDEN: [(&str, &[&str]); 6] = [
    ("vfleet-api", &["nix", "netlink-sys"]),
    ("vfleet-plan", &["nix", "netlink-sys", "tracing"]),
    ("vfleet-host", &["anyhow", "serde-saphyr"]),
    ("vfleet-cluster", &["vfleet-plan", "vfleet-host", "nix", "netlink-sys"]),
    ("vfleet-operator", &["vfleet-host", "netlink-sys", "netlink-packet-route"]),
    ("vfleet", &["fixture-kube", "fixture-lab", "vfleet-tests", "vfleet-demo"]),
];

/// Rooms that vfleet-cni is built from. Below them is none of [`FORBIDDEN_FOR_CNI`], nor a package that continues its name.
const CNI: [&str; 4] = ["vfleet-api", "vfleet-plan", "vfleet-host", "vfleet-cni"];
const FORBIDDEN_FOR_CNI: &str = include_str!("../../cni/forbidden-packages");

/// A room, its features, and packages that must not be below it even with them.
const FORBIDDEN_WITH_FEATURES: [(&str, &str, &[&str]); 2] = [
    ("vfleet-api", "crds", &["tokio", "hyper", "kube-client", "kube-runtime"]),
    ("vfleet-host", "sim,systemd", &["tokio", "hyper", "kube", "k8s-openapi"]),
];

/// All that the planner may use directly.
const PLANNER_MAY_USE: [&str; 4] = ["serde", "serde_json", "thiserror", "vfleet-api"];

/// As many as a newcomer can keep in mind.
const MOST_ROOMS: usize = 14;

/// The packages that `room` is built with, down to `depth`: as if it were built alone, since in the whole workspace
/// one room's features of a shared package show in all of them.
fn below(room: &str, features: &str, depth: &str) -> BTreeSet<String> {
    let arguments = ["--edges", "normal", "--prefix", "none", "--format", "{p}", "--depth", depth];
    let room_alone = ["tree", "--locked", "--offline", "--package", room, "--features", features];
    let tree = cargo(&[&room_alone, &arguments[..]].concat());
    tree.lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| *name != room)
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
fn no_room_uses_what_it_may_not() {
    for (room, forbidden) in FORBIDDEN {
        assert_none_of(forbidden, room, "");
    }
    for (room, features, forbidden) in FORBIDDEN_WITH_FEATURES {
        assert_none_of(forbidden, room, features);
    }
}

fn assert_none_of(forbidden: &[&str], room: &str, features: &str) {
    let below = below(room, features, "99");
    for package in forbidden {
        assert!(!below.contains(*package), "{room} uses {package}, which ARCHITECTURE.md forbids");
    }
}

/// `tools/check-programs` says the same of the shipped program.
#[test]
fn vfleet_cni_links_planner_and_host_and_stays_small() {
    let forbidden: Vec<&str> = FORBIDDEN_FOR_CNI.lines().filter(|line| !line.starts_with('#')).collect();
    let is_forbidden = |package: &str| {
        let continued =
            |name: &&str| package.strip_prefix(*name).is_some_and(|rest| rest.starts_with(['-', '_']));
        forbidden.iter().any(|name| package == *name || continued(name))
    };
    for room in CNI {
        let found: Vec<_> =
            below(room, "", "99").into_iter().filter(|package| is_forbidden(package)).collect();
        assert!(found.is_empty(), "{room} uses {found:?}, which crates/cni/forbidden-packages forbids");
    }
    let cni = below("vfleet-cni", "", "1");
    assert!(cni.contains("vfleet-plan") && cni.contains("vfleet-host"), "{cni:?}");
    // With its features, vfleet uses all of them: a misspelt name would forbid nothing.
    let vfleet = below("vfleet", "", "99");
    for name in forbidden {
        assert!(vfleet.contains(name), "{name} is no package");
    }
}

#[test]
fn the_planner_uses_nothing_that_could_do_io() {
    let used = below("vfleet-plan", "", "1");
    assert!(used.iter().eq(PLANNER_MAY_USE), "{used:?}: a new dependency of the planner needs a decision");
}

/// With `no_std`, the compiler refuses files, clocks, the environment, processes and sockets.
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
fn there_are_few_rooms() {
    let metadata = cargo(&["metadata", "--format-version", "1", "--locked", "--offline", "--no-deps"]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let members = metadata["workspace_members"].as_array().unwrap().len();
    assert!(members <= MOST_ROOMS, "{members} workspace members: write a decision rather than a new crate");
}
