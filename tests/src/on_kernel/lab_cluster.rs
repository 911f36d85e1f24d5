//! Cluster whose node is the machine of the lab.

use fixture_lab::{Job, RunningJob, Vm};

use super::Programs;
use super::guest::{AGENT_LOG, Guest};
use crate::cluster::{Cluster, NodeStateView, Program};
use crate::plane::Plane;

pub(super) const NODE: &str = "lab";
/// First card of the machine.
pub(super) const PF: &str = "enp1s0";
/// Second card of the machine.
pub(super) const OTHER_PF: &str = "enp2s0";
/// Address of the node, which is not on any of its cards.
const NODE_ADDRESS: &str = "192.0.2.1";
pub(super) const PF_ADDRESS: &str = "0000:01:00.0";
pub(super) const OTHER_PF_ADDRESS: &str = "0000:02:00.0";

/// Cluster with a running operator whose only node is the machine of the lab.
pub(super) struct LabCluster<'a> {
    pub(super) cluster: Cluster,
    pub(super) guest: Guest<'a>,
    pub(super) programs: Programs,
    kubeconfig: String,
    _operator: Program,
}

impl<'a> LabCluster<'a> {
    /// Cleans the machine, creates the cluster and starts the operator.
    pub(super) async fn start(vm: &'a Vm, programs: Programs) -> Self {
        Guest::new(vm).clean();
        Self::join(vm, programs).await
    }

    /// Creates the cluster and starts the operator. Leaves the machine as it is.
    pub(super) async fn join(vm: &'a Vm, programs: Programs) -> Self {
        let cluster = Cluster::new("lab", Plane::Lab).await;
        // The operator of the previous scenario may have ended in the middle of a drain.
        cluster.remove_worker(NODE).await;
        cluster.create_worker(NODE).await;
        let kubeconfig = cluster.write_kubeconfig_to_lab(vm, NODE);
        let operator = cluster.start_operator();
        Self { guest: Guest::new(vm), programs, kubeconfig, cluster, _operator: operator }
    }

    /// Checks that no VFs are left, and sets the links down for the next scenario.
    pub(super) fn finish(self) {
        let vfs = self.guest.run("cat /sys/bus/pci/devices/*/sriov_numvfs");
        assert_eq!(vfs, "0\n0", "VFs are left");
        self.guest.run(&format!("ip link set {PF} down; ip link set {OTHER_PF} down"));
    }

    /// Starts the agent with an empty log.
    pub(super) fn start_agent(&self) -> RunningJob {
        self.start_agent_with(&[])
    }

    /// Starts the agent with additional environment variables.
    pub(super) fn start_agent_with(&self, environment: &[(&str, &str)]) -> RunningJob {
        let vfleet = self.guest.install(self.programs.vfleet);
        let script = format!("exec {vfleet} agent --node {NODE} >{AGENT_LOG} 2>&1");
        self.start_script(&script, environment)
    }

    /// Starts a script with the environment of the agent.
    pub(super) fn start_script(&self, script: &str, environment: &[(&str, &str)]) -> RunningJob {
        let mut job = Job::shell(script)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NAMESPACE", self.cluster.namespace())
            .env("HOST_IPS", NODE_ADDRESS)
            .env("RUST_LOG", "info,vfleet_agent=debug");
        for (name, value) in environment {
            job = job.env(*name, *value);
        }
        self.guest.vm.spawn(&job).expect("the script starts")
    }

    /// Starts the agent and waits until it has rebooted the machine.
    pub(super) fn wait_for_reboot_by_agent(&self, environment: &[(&str, &str)]) {
        self.wait_for_reboot(|| self.start_agent_with(environment));
    }

    /// Starts an agent with `start` and waits until it has rebooted the machine.
    pub(super) fn wait_for_reboot(&self, start: impl FnOnce() -> RunningJob) {
        let vm = self.guest.vm;
        let next = vm.boots() + 1;
        let _agent = start();
        if let Err(error) = vm.wait_for_boot(next) {
            panic!("the agent did not reboot the machine: {error:#}\n{}", self.guest.agent_log());
        }
    }

    /// Waits for a node state that meets `condition`. A timeout shows the log of the agent.
    pub(super) async fn wait(&self, what: &str, condition: impl Fn(&NodeStateView) -> bool) -> NodeStateView {
        self.cluster.wait_with_log(NODE, what, condition, || self.guest.agent_log()).await
    }

    /// Waits until the node is synced and the VFs of a card are bound to these drivers.
    pub(super) async fn wait_for_drivers(&self, pf: &str, drivers: &[&str]) -> NodeStateView {
        let what = format!("VFs of {pf} with {drivers:?}");
        let condition = |state: &NodeStateView| {
            let found = || state.vfs(pf).into_iter().map(|vf| vf.driver.unwrap_or_default());
            state.is_synced() && found().eq(drivers.iter().copied())
        };
        let state = self.wait(&what, condition).await;
        assert_eq!(self.guest.drivers(pf), drivers, "drivers in sysfs");
        state
    }

    /// Waits until a card has no VFs, and checks that no record is left.
    pub(super) async fn wait_for_no_vfs(&self, pf: &str) {
        self.wait_for_drivers(pf, &[]).await;
        assert_eq!(
            self.guest.run("ls /etc/sriov-operator/vfleet/pci 2>/dev/null || true"),
            "",
            "a record is left"
        );
    }
}

/// Kills a job with SIGKILL, as at a power failure.
pub(super) fn kill(job: RunningJob) {
    job.kill().expect("the job can be killed");
    let _ = job.wait();
}
