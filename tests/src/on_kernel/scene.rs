use fixture_lab::{Job, RunningJob, Vm};

use super::Programs;
use super::guest::{AGENT_LOG, Guest};
use crate::cluster::{Cluster, Program, State};
use crate::plane::Plane;

pub(super) const NODE: &str = "lab";
/// The machine's cards.
pub(super) const PF: &str = "enp1s0";
pub(super) const OTHER_PF: &str = "enp2s0";
/// The node's own address, which is on none of its cards.
const NODE_ADDRESS: &str = "192.0.2.1";
pub(super) const PF_ADDRESS: &str = "0000:01:00.0";

/// A cluster with an operator, of which the lab's machine is a node.
pub(super) struct Scene<'a> {
    pub(super) cluster: Cluster,
    pub(super) guest: Guest<'a>,
    pub(super) programs: Programs,
    kubeconfig: String,
    _operator: Program,
}

impl<'a> Scene<'a> {
    pub(super) async fn set(vm: &'a Vm, programs: Programs) -> Self {
        let cluster = Cluster::new("lab", Plane::Lab).await;
        // The operator of the story before may have ended in the middle of a drain.
        cluster.remove_worker(NODE).await;
        cluster.create_worker(NODE).await;
        let kubeconfig = cluster.kubeconfig_in_the_lab(vm, NODE);
        let guest = Guest::new(vm);
        guest.clean();
        let operator = cluster.operator();
        Self { guest, programs, kubeconfig, cluster, _operator: operator }
    }

    /// Leaves the machine as the next one expects it.
    pub(super) fn strike(self) {
        let vfs = self.guest.run("cat /sys/bus/pci/devices/*/sriov_numvfs");
        assert_eq!(vfs, "0\n0", "VFs are left");
        self.guest.run(&format!("ip link set {PF} down; ip link set {OTHER_PF} down"));
    }

    /// The agent. Its log begins anew.
    pub(super) fn start_agent(&self) -> RunningJob {
        self.start_agent_with(&[])
    }

    /// The agent, with more in its environment.
    pub(super) fn start_agent_with(&self, environment: &[(&str, &str)]) -> RunningJob {
        let vfleet = self.guest.install(self.programs.vfleet);
        let script = format!("exec {vfleet} agent --node {NODE} >{AGENT_LOG} 2>&1");
        self.start(&script, environment)
    }

    /// A script that finds its way to the cluster as the agent does.
    pub(super) fn start(&self, script: &str, environment: &[(&str, &str)]) -> RunningJob {
        let mut job = Job::shell(script)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NAMESPACE", self.cluster.namespace())
            .env("HOST_IPS", NODE_ADDRESS)
            .env("RUST_LOG", "info,vfleet_agent=debug");
        for (name, value) in environment {
            job = job.env(*name, *value);
        }
        self.guest.vm.spawn(&job).expect("it starts")
    }

    /// The agent, until it has rebooted the machine.
    pub(super) fn reboot_by_the_agent(&self, environment: &[(&str, &str)]) {
        self.until_rebooted(|| self.start_agent_with(environment));
    }

    /// An agent that is started like this, until it has rebooted the machine.
    pub(super) fn until_rebooted(&self, start: impl FnOnce() -> RunningJob) {
        let vm = self.guest.vm;
        let next = vm.boots() + 1;
        let _agent = start();
        if let Err(error) = vm.wait_for_boot(next) {
            panic!("the agent does not reboot the machine: {error:#}\n{}", self.guest.agent_log());
        }
    }

    /// Waits for a node state like this; what the agent said is part of the complaint.
    pub(super) async fn wait(&self, what: &str, like: impl Fn(&State) -> bool) -> State {
        self.cluster.wait_telling(NODE, what, like, || self.guest.agent_log()).await
    }

    /// Waits until the node is as wanted, with VFs on a card that are bound to these drivers.
    pub(super) async fn wait_for_drivers(&self, pf: &str, drivers: &[&str]) -> State {
        let what = format!("VFs of {pf} with {drivers:?}");
        let is_so = |state: &State| {
            let found = || state.vfs(pf).into_iter().map(|vf| vf.driver.unwrap_or_default());
            state.is_synced() && found().eq(drivers.iter().copied())
        };
        let state = self.wait(&what, is_so).await;
        assert_eq!(self.guest.drivers(pf), drivers, "as the kernel shows it");
        state
    }

    /// Waits until no card has VFs, as a policy wants none any more.
    pub(super) async fn wait_for_no_vfs(&self, pf: &str) {
        self.wait_for_drivers(pf, &[]).await;
        assert_eq!(
            self.guest.run("ls /etc/sriov-operator/vfleet/pci 2>/dev/null || true"),
            "",
            "no record is left"
        );
    }
}

/// As if the power had failed.
pub(super) fn kill(agent: RunningJob) {
    agent.kill().expect("it can be killed");
    let _ = agent.wait();
}
