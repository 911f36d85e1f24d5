//! The lab's machine, as those who measure see it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fixture_kube::ControlPlane;
use fixture_lab::{Job, Options, RunningJob, Vm};

use super::Programs;
use super::inside::Times;
use crate::bench::report::{Figure, Limit, Row, Unit};
use crate::bench::scenario::median;

const ROUNDS: usize = 5;

pub(super) struct Machine {
    vm: Vm,
    vfleet: String,
    in_lab: String,
    kubeconfig: String,
}

/// A process of the machine that has nothing to do.
pub(super) struct Idle {
    /// Memory that is its own, in bytes.
    pub(super) memory: f64,
    /// How often it woke up.
    pub(super) wake_ups: f64,
}

impl Machine {
    pub(super) fn boot(plane: &ControlPlane, programs: Programs<'_>) -> Result<Self> {
        let vm = Vm::boot(&Options { api_port: Some(plane.port()), ..Options::default() })?;
        let (vfleet, in_lab) = (vm.put(programs.vfleet)?, vm.put(programs.in_lab)?);
        let kubeconfig = plane.kubeconfig_at("https://10.0.2.100:6443", plane.kubeconfig())?;
        std::fs::write(vm.share().join("kubeconfig"), kubeconfig)?;
        vm.run(&Job::shell("ip link set enp1s0 up && ip link set enp2s0 up"))?.success()?;
        Ok(Self { vm, vfleet, in_lab, kubeconfig: "/mnt/kubeconfig".to_owned() })
    }

    pub(super) fn make_vfs(&self) -> Result<Row> {
        let job = Job::new(&self.in_lab).args(["make-vfs", "--rounds", &ROUNDS.to_string()]);
        let output = self.vm.run(&job)?.success()?;
        let times: Times = serde_json::from_str(&output).with_context(|| output.clone())?;
        let bare = median(times.bare);
        Ok(Row {
            what: "2 real cards of 7 VFs, from none to bound and verified",
            nodes: 1,
            unit: Unit::Time,
            bare: Some(bare),
            vfleet: Some(Figure::Is(median(times.vfleet))),
            go: None,
            limit: Some(Limit { says: "1.5x bare writes".to_owned(), most: 1.5 * bare }),
        })
    }

    /// The agent; its process is known as `agent`.
    pub(super) fn start_agent(&self, namespace: &str, node: &str) -> Result<RunningJob> {
        let words = format!("{} agent --node {node} --namespace {namespace}", self.vfleet);
        self.start("agent", &words)
    }

    /// The bare client; its process is known as `watch`.
    pub(super) fn start_watch(&self, namespace: &str, node: &str) -> Result<RunningJob> {
        let words = format!("{} watch --node {node} --namespace {namespace}", self.in_lab);
        self.start("watch", &words)
    }

    fn start(&self, name: &str, words: &str) -> Result<RunningJob> {
        let script = format!("echo $$ >/run/{name}.pid; exec {words} >/run/{name}.log 2>&1");
        self.vm.spawn(&Job::shell(script).env("KUBECONFIG", &self.kubeconfig))
    }

    /// Looks at a process for a while, when it has come to rest: threads that wait for more work end after 10 s.
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
