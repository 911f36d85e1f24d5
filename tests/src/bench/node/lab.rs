//! Machine of the lab for benchmarks.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fixture_kube::ControlPlane;
use fixture_lab::{Job, Options, RunningJob, Vm};

use super::LabPrograms;
use super::lab_bridges::BridgeTimes;
use super::lab_program::Times;
use crate::bench::operator::median;
use crate::bench::report::{Figure, Limit, Row, Unit};

const ROUNDS: usize = 5;
/// Bridges are created in a fraction of a second, which varies more.
const BRIDGE_ROUNDS: usize = 15;
/// Sets up four cards with an eswitch, and Open vSwitch.
const PREPARE_BRIDGES: &str = "set -e
    for card in 1 2 3 4; do ip link set enp${card}s0 up; done
    modprobe labswitch
    udevadm settle
    systemctl start openvswitch-switch";

/// Measures creating bridges, in a machine of its own: the others have two cards.
pub(super) fn measure_creating_bridges(programs: LabPrograms<'_>) -> Result<[Row; 2]> {
    let vm = Vm::boot(&Options { pfs: 4, ..Options::default() })?;
    let in_lab = vm.put(programs.in_lab)?;
    vm.run(&Job::shell(PREPARE_BRIDGES))?.success()?;
    let job = Job::new(&in_lab).args(["create-bridges", "--rounds", &BRIDGE_ROUNDS.to_string()]);
    let output = vm.run(&job)?.success()?;
    let times: BridgeTimes = serde_json::from_str(&output).with_context(|| output.clone())?;
    let bare = median(times.bare);
    let row = |what, times| Row {
        what,
        nodes: 1,
        unit: Unit::Time,
        bare: Some(bare),
        vfleet: Some(Figure::Is(median(times))),
        go: None,
        limit: Some(Limit { text: "1.3x bare transactions".to_owned(), maximum: 1.3 * bare }),
    };
    Ok([
        row("4 cards in switchdev mode: bridges created and verified", times.first),
        row("  created again after they were deleted", times.again),
    ])
}

pub(super) struct Machine {
    vm: Vm,
    vfleet: String,
    in_lab: String,
    kubeconfig: String,
}

/// Idle process of the machine.
pub(super) struct Idle {
    /// Private memory in bytes.
    pub(super) memory: f64,
    /// Number of wake-ups.
    pub(super) wake_ups: f64,
}

impl Machine {
    pub(super) fn boot(plane: &ControlPlane, programs: LabPrograms<'_>) -> Result<Self> {
        let vm = Vm::boot(&Options { api_port: Some(plane.port()), ..Options::default() })?;
        let (vfleet, in_lab) = (vm.put(programs.vfleet)?, vm.put(programs.in_lab)?);
        let kubeconfig = plane.kubeconfig_at("https://10.0.2.100:6443", plane.kubeconfig())?;
        std::fs::write(vm.share().join("kubeconfig"), kubeconfig)?;
        vm.run(&Job::shell("ip link set enp1s0 up && ip link set enp2s0 up"))?.success()?;
        Ok(Self { vm, vfleet, in_lab, kubeconfig: "/mnt/kubeconfig".to_owned() })
    }

    pub(super) fn measure_creating_vfs(&self) -> Result<Row> {
        let job = Job::new(&self.in_lab).args(["create-vfs", "--rounds", &ROUNDS.to_string()]);
        let output = self.vm.run(&job)?.success()?;
        let times: Times = serde_json::from_str(&output).with_context(|| output.clone())?;
        let bare = median(times.bare);
        Ok(Row {
            what: "2 real cards of 7 VFs: created, bound and verified",
            nodes: 1,
            unit: Unit::Time,
            bare: Some(bare),
            vfleet: Some(Figure::Is(median(times.vfleet))),
            go: None,
            limit: Some(Limit { text: "1.5x bare writes".to_owned(), maximum: 1.5 * bare }),
        })
    }

    /// Starts the agent as process `agent`.
    pub(super) fn start_agent(&self, namespace: &str, node: &str) -> Result<RunningJob> {
        let command = format!("{} agent --node {node} --namespace {namespace}", self.vfleet);
        self.start("agent", &command)
    }

    /// Starts the minimal client as process `watch`.
    pub(super) fn start_watch(&self, namespace: &str, node: &str) -> Result<RunningJob> {
        let command = format!("{} watch --node {node} --namespace {namespace}", self.in_lab);
        self.start("watch", &command)
    }

    fn start(&self, name: &str, command: &str) -> Result<RunningJob> {
        let script = format!("echo $$ >/run/{name}.pid; exec {command} >/run/{name}.log 2>&1");
        self.vm.spawn(&Job::shell(script).env("KUBECONFIG", &self.kubeconfig))
    }

    /// Observes an idle process. Waits first, because threads that wait for more work end after 10 s.
    pub(super) fn observe(&self, name: &str, time: Duration) -> Result<Idle> {
        let script = format!(
            r"set -eo pipefail
            pid=$(cat /run/{name}.pid)
            switches() {{ cat /proc/$pid/task/*/status | awk '/^voluntary_ctxt_switches/ {{ n += $2 }} END {{ print n }}'; }}
            sleep 15
            before=$(switches)
            sleep {}
            after=$(switches)
            echo $((after - before)) $(awk '/^RssAnon/ {{ print $2 }}' /proc/$pid/status)",
            time.as_secs()
        );
        let output = self.vm.run(&Job::shell(script))?.success()?;
        let numbers = output.split_whitespace().map(str::parse::<f64>).collect::<Result<Vec<_>, _>>();
        let numbers = numbers.with_context(|| output.clone())?;
        ensure!(numbers.len() == 2, "{output}");
        Ok(Idle { wake_ups: numbers[0], memory: numbers[1] * 1024.0 })
    }

    pub(super) fn log(&self, name: &str) -> String {
        let log = self.vm.run(&Job::shell(format!("tail -n 20 /run/{name}.log")));
        log.map_or_else(|error| error.to_string(), |log| log.output)
    }
}
