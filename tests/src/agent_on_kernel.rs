//! The real agent on a real kernel: it runs in the lab's machine, against the API server on the host.

#![allow(clippy::expect_used, clippy::panic, reason = "in a test a failed expectation is the point")]

use fixture_lab::{Job, RunningJob, Vm};
use serde_json::{Value, json};

use crate::cluster::{Cluster, State};

const NODE: &str = "lab";
const PF: &str = "enp1s0";

/// A policy becomes VFs that the kernel shows, VFs that somebody removes come again, a change, an impossible wish,
/// a restart with nothing to do, and an end that leaves the card as it was.
///
/// # Panics
/// When one of these does not hold.
pub async fn a_policy_becomes_vfs_on_a_real_kernel(vm: &Vm, program: &'static str) {
    let cluster = Cluster::new("lab", program).await;
    cluster.create_worker(NODE).await;
    let _operator = cluster.operator();
    let guest = Guest { vm, kubeconfig: cluster.kubeconfig_in_the_lab(vm, NODE) };
    let agent = guest.start_agent(&cluster);

    cluster
        .wait(NODE, "the real card is reported", |state| {
            state.is_synced() && state.card(PF).totalvfs == Some(7)
        })
        .await;

    guest.run("modprobe vfio-pci");
    let groups = |count: u32| json!({ "numVfs": count, "mtu": 2000, "nicSelector": { "pfNames": [PF] } });
    cluster.apply_policy("kernel", groups(4)).await;
    let made = |state: &State| state.is_synced() && state.vfs(PF).len() == 4;
    cluster.wait(NODE, "4 VFs", made).await;
    assert_eq!(guest.drivers(), ["igbvf"; 4]);
    assert_eq!(guest.mtu(PF), 2000);
    // udev renames new interfaces; the agent reports the new names as it hears of them.
    let names = guest.vf_names();
    let has_them =
        |state: &State| state.vfs(PF).into_iter().filter_map(|vf| vf.name).eq(names.iter().cloned());
    let state = cluster.wait(NODE, "the VFs' names", has_them).await;
    for (vf, name) in state.vfs(PF).iter().zip(&names) {
        assert_eq!(guest.mtu(name), 2000, "{name}");
        assert_eq!(guest.address(name), vf.mac.clone().expect("an address"), "{name}");
    }
    let addresses: Vec<_> = names.iter().map(|name| guest.address(name)).collect();

    guest.run(&format!("echo 0 >/sys/class/net/{PF}/device/sriov_numvfs"));
    guest.until(
        "four VFs are bound again",
        &format!("test $(ls -d /sys/class/net/{PF}/device/virtfn*/driver | wc -l) = 4"),
    );
    let again = cluster.wait(NODE, "4 VFs again", made).await;
    assert_eq!(guest.drivers(), ["igbvf"; 4]);
    let macs: Vec<_> = again.vfs(PF).into_iter().map(|vf| vf.mac.expect("an address")).collect();
    assert_eq!(macs, addresses, "VFs keep their addresses");

    let dpdk =
        json!({ "numVfs": 4, "deviceType": "vfio-pci", "nicSelector": { "pfNames": [format!("{PF}#2-3")] } });
    cluster.apply_policy("dpdk", merge(dpdk, json!({ "resourceName": "dpdk", "priority": 10 }))).await;
    cluster
        .apply_policy("kernel", json!({ "numVfs": 4, "nicSelector": { "pfNames": [format!("{PF}#0-1")] } }))
        .await;
    let split = |state: &State| {
        let drivers: Vec<_> = state.vfs(PF).into_iter().filter_map(|vf| vf.driver).collect();
        state.is_synced() && drivers == ["igbvf", "igbvf", "vfio-pci", "vfio-pci"]
    };
    cluster.wait(NODE, "two VFs for the kernel, two for DPDK", split).await;
    assert_eq!(guest.drivers(), ["igbvf", "igbvf", "vfio-pci", "vfio-pci"]);

    agent.kill().expect("the agent can be killed");
    let agent = guest.start_agent(&cluster);
    guest.until("the agent has looked", "grep -q 'nothing to do' /run/agent.log");
    assert!(
        !guest.run("cat /run/agent.log").contains("executing"),
        "a restart with nothing to do does nothing"
    );

    cluster.delete_policy("dpdk").await;
    cluster.apply_policy("kernel", groups(8)).await;
    let state = cluster.wait(NODE, "Failed", |state| state.sync_status() == "Failed").await;
    assert!(state.error().contains("at most 7"), "{}", state.error());

    cluster.delete_policy("kernel").await;
    let gone =
        |state: &State| state.is_synced() && state.vfs(PF).is_empty() && state.card(PF).mtu == Some(1500);
    cluster.wait(NODE, "the card is as it was", gone).await;
    assert_eq!(guest.drivers(), [""; 0]);
    assert_eq!(guest.run("find /etc/sriov-operator -type f"), "");
    agent.kill().expect("the agent can be killed");
    guest.run(&format!("ip link set {PF} down"));
}

fn merge(mut into: Value, from: Value) -> Value {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
    into
}

/// The lab's machine, looked at with its own tools.
struct Guest<'a> {
    vm: &'a Vm,
    kubeconfig: String,
}

impl Guest<'_> {
    fn start_agent(&self, cluster: &Cluster) -> RunningJob {
        let agent = self.vm.put(cluster.program()).expect("the program reaches the machine");
        let script = format!("exec {agent} agent --node {NODE} >/run/agent.log 2>&1");
        let job = Job::shell(script)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NAMESPACE", cluster.namespace())
            .env("RUST_LOG", "info,vfleet_agent=debug");
        self.vm.spawn(&job).expect("the agent starts")
    }

    fn run(&self, script: &str) -> String {
        let output = self.vm.run(&Job::shell(script)).expect("the machine runs jobs");
        output.success().unwrap_or_else(|error| panic!("{script}: {error:#}")).trim().to_owned()
    }

    /// Waits until a command succeeds in the machine.
    fn until(&self, what: &str, command: &str) {
        let script =
            format!("for try in $(seq 1200); do if {command}; then exit 0; fi; sleep 0.1; done; exit 1");
        let output = self.vm.run(&Job::shell(script)).expect("the machine runs jobs");
        assert_eq!(output.status, 0, "never: {what}\n{}", self.run("cat /run/agent.log"));
    }

    fn drivers(&self) -> Vec<String> {
        let script = format!(
            "for vf in $(ls -dv /sys/class/net/{PF}/device/virtfn* 2>/dev/null); do basename $(readlink $vf/driver); done"
        );
        self.run(&script).lines().map(str::to_owned).collect()
    }

    /// The VFs' interfaces, after udev has finished with them.
    fn vf_names(&self) -> Vec<String> {
        let script = format!(
            "udevadm settle; for vf in $(ls -dv /sys/class/net/{PF}/device/virtfn*); do ls $vf/net; done"
        );
        self.run(&script).lines().map(str::to_owned).collect()
    }

    fn link(&self, name: &str) -> Value {
        let links: Value =
            serde_json::from_str(&self.run(&format!("ip -json link show {name}"))).expect("ip speaks JSON");
        links[0].clone()
    }

    fn mtu(&self, name: &str) -> u64 {
        self.link(name)["mtu"].as_u64().expect("an MTU")
    }

    fn address(&self, name: &str) -> String {
        self.link(name)["address"].as_str().expect("an address").to_owned()
    }
}
