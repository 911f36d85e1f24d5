//! Attachments of pods on a machine whose file tree is mounted, as in the pod of an agent. VFs with a driver for userspace
//! need no interface, and so no privilege.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use vfleet_api::PciAddress;
use vfleet_host::attachment::{AttachmentHost, LockSubject};
use vfleet_host::{HostRoot, LinuxHost, MachineLock};

use super::{report, runs_as_root, vfleet};

const PF: &str = "0000:01:00.0";
const JOURNALS: &str = "var/lib/cni/vfleet";
const ALLOCATIONS: &str = "var/lib/cni/sriov/pci";

/// File tree of a machine with one card, all of whose VFs have the driver `vfio-pci`.
struct Tree(TempDir);

/// Returns the address of a VF.
fn vf(index: usize) -> String {
    format!("0000:01:10.{index}")
}

/// Returns the ID of the container whose pod has the VF with this index.
fn container(index: usize) -> String {
    format!("{index}123456789abcdef")
}

impl Tree {
    /// Creates a machine with this number of VFs.
    fn new(vfs: usize) -> Self {
        let tree = Self(TempDir::new().unwrap());
        let device = |address: &str| format!("sys/bus/pci/devices/{address}");
        let pf = device(PF);
        for (name, text) in
            [("sriov_totalvfs", "8"), ("sriov_numvfs", &vfs.to_string()), ("net/lo/ifindex", "1")]
        {
            tree.write(&format!("{pf}/{name}"), text);
        }
        let functions = (0..vfs).map(|index| device(&vf(index)));
        for (name, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x10ca")] {
            for function in functions.clone().chain([pf.clone()]) {
                tree.write(&format!("{function}/{name}"), text);
            }
        }
        for (index, function) in functions.enumerate() {
            tree.link(&format!("../{PF}"), &format!("{function}/physfn"));
            tree.link("../../drivers/vfio-pci", &format!("{function}/driver"));
            tree.link(&format!("../{}", vf(index)), &format!("{pf}/virtfn{index}"));
        }
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, target: &str, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn root(&self) -> HostRoot {
        HostRoot::new(self.0.path())
    }

    /// Writes the journal of a pod `shop/pod-INDEX` that has a VF, with more keys of its network. Its network namespace
    /// does not exist.
    fn attach(&self, index: usize, phase: &str, network: &Value) {
        let (device, container) = (vf(index), container(index));
        let mut config =
            json!({ "cniVersion": "1.0.0", "name": "blue", "type": "sriov", "deviceID": device });
        config.as_object_mut().unwrap().extend(network.as_object().unwrap().clone());
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let journal = json!({
            "version": 1,
            "key": { "plugin": "sriov", "containerId": container, "interface": "net1", "device": device },
            "network": "blue",
            "namespace": { "path": format!("/var/run/netns/pod-{index}"), "id": { "device": 4, "inode": 1 } },
            "bootId": boot_id.trim(),
            "phase": phase,
            "pod": { "namespace": "shop", "name": format!("pod-{index}"), "uid": "" },
            "config": config,
            "cniPath": "/opt/cni/bin",
            "changes": {
                "kind": "sriov", "vf": { "pf": PF, "index": index }, "changed": {}, "original": {},
                "interface": null,
            },
        });
        self.write(&journal_path(index), &journal.to_string());
        self.write(&format!("{ALLOCATIONS}/{device}"), &format!("/var/run/netns/pod-{index}"));
    }

    /// Gives a pod that has a VF a network namespace: that of this process.
    fn start_pod(&self, index: usize) {
        self.link(&format!("/proc/{}/ns/net", std::process::id()), &format!("run/netns/pod-{index}"));
        let namespace = fs::metadata("/proc/self/ns/net").unwrap();
        let mut journal: Value =
            serde_json::from_str(&fs::read_to_string(self.path(&journal_path(index))).unwrap()).unwrap();
        journal["namespace"]["id"] = json!({ "device": namespace.dev(), "inode": namespace.ino() });
        self.write(&journal_path(index), &journal.to_string());
    }

    /// Runs `vfleet node pods`.
    fn pods(&self, arguments: &[&str]) -> Output {
        self.node("pods", arguments)
    }

    /// Runs a command of `vfleet node`.
    fn node(&self, command: &str, arguments: &[&str]) -> Output {
        let mut node = Command::new(vfleet());
        node.args(["node", command]).args(arguments).arg("--host-root").arg(self.0.path()).output().unwrap()
    }

    /// Returns the phase in a journal; `None` without a journal.
    fn phase(&self, index: usize) -> Option<String> {
        let text = fs::read_to_string(self.path(&journal_path(index))).ok()?;
        let journal: Value = serde_json::from_str(&text).unwrap();
        Some(journal["phase"].as_str().unwrap().to_owned())
    }
}

fn journal_path(index: usize) -> String {
    format!("{JOURNALS}/sriov:{}:net1:{}", container(index), vf(index))
}

fn states(report: &Value) -> Vec<&str> {
    report["attachments"].as_array().unwrap().iter().map(|line| line["state"].as_str().unwrap()).collect()
}

fn with_ipam() -> Value {
    json!({ "ipam": { "type": "host-local" } })
}

/// Returns a machine with a running pod, one that is gone, one that is gone and had an address, and a damaged journal.
fn machine() -> Tree {
    let tree = Tree::new(4);
    tree.attach(0, "attached", &json!({}));
    tree.start_pod(0);
    tree.attach(1, "attached", &json!({}));
    tree.attach(2, "attached", &with_ipam());
    tree.attach(3, "attached", &json!({}));
    tree.write(&journal_path(3), "{");
    tree
}

#[test]
fn attachments_are_listed_as_table_and_as_json() {
    let tree = machine();
    let output = tree.pods(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("POD") && lines[0].ends_with("STATE"), "{text}");
    let words = ["shop/pod-0", "0123456789abc ", "net1", "0000:01:10.0", "lo 0", "sriov", "blue"];
    assert!(words.iter().all(|word| lines[1].contains(word)) && lines[1].ends_with("attached"), "{text}");
    assert!(lines[2].starts_with("shop/pod-1") && lines[2].ends_with("namespace gone"), "{text}");
    assert!(lines[4].contains("0000:01:10.3") && lines[4].contains("is damaged: delete the pod"), "{text}");
    let summary = "4 attachments, 3 NOT as they should be: release what is left behind with `vfleet node pods --repair`";
    assert_eq!(lines.last(), Some(&summary), "{text}");

    let output = tree.pods(&["-o", "json"]);
    let parsed = report(&output);
    assert_eq!((output.status.code(), &parsed["exit"]), (Some(1), &json!("failed")), "{parsed}");
    assert_eq!(states(&parsed), ["attached", "namespaceGone", "namespaceGone", "unreadable"]);
    assert_eq!(parsed["attachments"][0]["namespace"], "/var/run/netns/pod-0");
    assert!(parsed["repairs"].is_null(), "{parsed}");
}

#[test]
fn nothing_is_wrong_with_running_pods_or_without_pods() {
    let tree = Tree::new(1);
    let output = tree.pods(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), text.as_str()), (Some(0), "no pod has a device of a CNI plugin\n"));
    tree.attach(0, "attached", &json!({}));
    tree.start_pod(0);
    let output = tree.pods(&["--format", "json"]);
    let parsed = report(&output);
    assert_eq!((output.status.code(), states(&parsed)), (Some(0), vec!["attached"]), "{parsed}");
}

#[test]
fn a_device_that_another_process_has_locked_is_in_progress() {
    if !runs_as_root() {
        return;
    }
    let tree = Tree::new(1);
    tree.attach(0, "attaching", &json!({}));
    tree.start_pod(0);
    assert_eq!(states(&report(&tree.pods(&["-o", "json"]))), ["interrupted"]);
    let device: PciAddress = vf(0).parse().unwrap();
    let host = LinuxHost::new(tree.root());
    let _lock = host.lock(&LockSubject::Device(device), "ADD of plugin sriov", Duration::ZERO).unwrap();
    let output = tree.pods(&["-o", "json"]);
    let parsed = report(&output);
    assert_eq!((output.status.code(), states(&parsed)), (Some(0), vec!["inProgress"]), "{parsed}");
    let message = format!("in progress: ADD of plugin sriov (process {})", std::process::id());
    assert_eq!(parsed["attachments"][0]["says"], message);
}

/// IPAM plugins of a mounted tree cannot be run, so that addresses are left to the container runtime.
#[test]
fn a_repair_runs_beside_an_agent_and_releases_devices_but_no_addresses() {
    if !runs_as_root() {
        return;
    }
    let tree = machine();
    let started = tree.path("started");
    tree.write("opt/cni/bin/host-local", &format!("#!/bin/sh\ntouch {}\n", started.display()));
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(tree.path("opt/cni/bin/host-local"), executable).unwrap();
    let _agent = MachineLock::for_agent(&tree.root(), "vfleet agent of node a").unwrap();
    let _apply = MachineLock::for_run(&tree.root(), "vfleet node apply").unwrap();
    for _ in 0..2 {
        let output = tree.pods(&["--repair", "-o", "json"]);
        let parsed = report(&output);
        assert_eq!(output.status.code(), Some(1), "{parsed}");
        assert_eq!(states(&parsed), ["attached", "addressesLeft", "unreadable"], "{parsed}");
        let repairs = parsed["repairs"].as_array().unwrap();
        let left = repairs.last().unwrap();
        assert_eq!((&left["device"], &left["isReleased"]), (&json!(vf(2)), &json!(false)), "{parsed}");
        let message = left["says"].as_str().unwrap();
        let words =
            ["the device is released", "cannot be run", "DEL or GC of the container runtime", "--host-root"];
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        let phases = [0, 1, 2].map(|index| tree.phase(index));
        assert_eq!(phases, [Some("attached".to_owned()), None, Some("returned".to_owned())]);
        let allocation = |index: usize| tree.path(&format!("{ALLOCATIONS}/{}", vf(index))).exists();
        assert_eq!([0, 1, 2].map(allocation), [true, false, false]);
        assert!(!started.exists(), "the plugin was started");
    }
    let text = String::from_utf8(tree.pods(&["--repair"]).stdout).unwrap();
    assert!(text.starts_with("REPAIRED DEVICE"), "{text}");
    assert!(
        text.ends_with("3 attachments, 2 NOT as they should be\n"),
        "no remedy that does not help: {text}"
    );

    fs::remove_file(tree.path(&journal_path(3))).unwrap();
    tree.attach(2, "attached", &json!({}));
    let output = tree.pods(&["--repair"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.lines().nth(1).unwrap().ends_with(" released"), "{text}");
}

#[test]
fn files_that_cannot_be_read_are_not_no_attachments() {
    for directory in [JOURNALS, ALLOCATIONS] {
        let tree = Tree::new(1);
        let shown = report(&tree.node("show", &["-o", "json"]));
        assert!(shown["notes"].is_null() && shown["cards"][0]["pciAddress"] == PF, "{shown}");
        tree.write(directory, "a file in place of a directory");
        let output = tree.pods(&[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{stderr}");
        assert!(stderr.contains(directory) && stderr.contains("Not a directory"), "{stderr}");
        let output = tree.node("show", &["-o", "json"]);
        let shown = report(&output);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        let note = shown["notes"][0].as_str().unwrap();
        assert!(note.contains(directory) && note.contains("no VF counts as free"), "{note}");
    }
}
