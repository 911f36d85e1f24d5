//! Namespaces of a host and of a pod, for tests with the kernel. One end of a veth pair is the interface of a VF, the
//! other one, `wire`, the network.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use serde_json::Value;
use vfleet_api::PciAddress;
use vfleet_plan::cni::facts::{Namespace, NamespaceId};
use vfleet_plan::cni::step::{CniStep, SwitchStep};

use super::namespace::{OpenedPath, read_cookie};
use super::steps;
use crate::format_error_chain;
use crate::linux::netlink::rtnl::Rtnl;
use crate::linux::test_namespace::{iproute, run_in_namespace, shell};
use crate::linux::test_tree::TestTree;

/// Address of the VF.
const VF: &str = "0000:01:10.0";
/// Path of the namespace of the pod.
pub(super) const PATH: &str = "/run/netns/pod";

/// Host with a VF, and a pod.
pub(super) struct TestPod {
    pub(super) tree: TestTree,
    pub(super) namespace: Namespace,
    /// Directory of the thread in `/proc`, through which the namespace is open.
    task: PathBuf,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

/// Runs a test in the namespace of a host with an interface `port` and a pod.
pub(super) fn run_with_pod(test: impl FnOnce(&mut TestPod) + Send) {
    run_in_namespace(|| {
        shell(
            "ip link set lo up; ip link add port type veth peer name wire; ip link set wire up; \
             ip link set port address 02:00:00:00:00:09; ip link set port up",
        );
        let mut pod = TestPod::new();
        pod.show_in_sysfs("port");
        test(&mut pod);
    });
}

pub(super) fn vf() -> PciAddress {
    VF.parse().unwrap()
}

impl TestPod {
    fn new() -> Self {
        let (ready, task) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ready.send(format!("/proc/{}/task/{}", std::process::id(), gettid())).unwrap();
            let _ = ended.recv();
        });
        let tree = TestTree::new();
        fs::create_dir_all(tree.path("/run/netns")).unwrap();
        let task = PathBuf::from(task.recv().unwrap());
        symlink(task.join("ns/net"), tree.path(PATH)).unwrap();
        let OpenedPath::Namespace(opened) = OpenedPath::open(tree.root(), PATH) else {
            panic!("no namespace")
        };
        let cookie = opened.run(read_cookie).unwrap();
        let namespace = Namespace { path: PATH.to_owned(), id: NamespaceId { cookie, ..opened.id } };
        Self { tree, namespace, task, thread: Some((end, thread)) }
    }

    /// Ends the namespace of the pod.
    pub(super) fn delete(&mut self) {
        let (end, running) = self.thread.take().unwrap();
        drop(end);
        running.join().unwrap();
        // The kernel wakes the thread that joins before it has removed the other one.
        while self.task.exists() {
            thread::yield_now();
        }
    }

    /// Shows an interface of the host as that of the VF in sysfs.
    pub(super) fn show_in_sysfs(&self, name: &str) {
        let index = iproute(name).unwrap()["ifindex"].to_string();
        self.hide_in_sysfs();
        self.tree.write(&format!("/sys/bus/pci/devices/{VF}/net/{name}/ifindex"), &index);
    }

    /// Shows no interface of the VF in sysfs, as for one in another namespace.
    pub(super) fn hide_in_sysfs(&self) {
        let _ = fs::remove_dir_all(self.tree.path(&format!("/sys/bus/pci/devices/{VF}/net")));
    }

    /// Runs a script in the namespace of the pod.
    pub(super) fn shell(&self, script: &str) -> String {
        let OpenedPath::Namespace(opened) = OpenedPath::open(self.tree.root(), PATH) else {
            panic!("no namespace")
        };
        opened.run(|| Ok(shell(script))).unwrap()
    }

    /// Returns a connection to the namespace of the pod.
    pub(super) fn open_rtnl(&self) -> Rtnl {
        let OpenedPath::Namespace(opened) = OpenedPath::open(self.tree.root(), PATH) else {
            panic!("no namespace")
        };
        opened.run(Rtnl::open).unwrap()
    }

    /// Returns what iproute2 says about an interface of the pod.
    pub(super) fn iproute(&self, name: &str) -> Option<Value> {
        let links: Vec<Value> = serde_json::from_str(&self.shell("ip -d -j link")).unwrap();
        links.into_iter().find(|link| link["ifname"] == name)
    }

    #[track_caller]
    pub(super) fn execute(&self, step: &CniStep) {
        if let Err(error) = steps::execute(self.tree.root(), step) {
            panic!("{step:?}: {}", format_error_chain(&error));
        }
    }

    #[track_caller]
    pub(super) fn execute_switch(&self, step: &SwitchStep) {
        self.execute(&step.clone().into());
    }

    /// Executes a step that fails; returns the reason and the text of the error.
    pub(super) fn switch_refusal(&self, step: &SwitchStep) -> (&'static str, String) {
        self.refusal(&step.clone().into())
    }

    /// Executes a step that fails; returns the reason and the text of the error.
    pub(super) fn refusal(&self, step: &CniStep) -> (&'static str, String) {
        let error = steps::execute(self.tree.root(), step).unwrap_err();
        (error.reason(), format_error_chain(&error))
    }
}

impl Drop for TestPod {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.delete();
        }
    }
}
