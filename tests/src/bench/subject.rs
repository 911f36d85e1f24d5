//! Operator under measurement.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fixture_kube::{ControlPlane, GoOperator, Request, Requests};
use tokio::time::{Instant, interval};

use super::process::{self, Memory};

/// Service account of the operator of vfleet.
pub(crate) const VFLEET: &str = "vfleet-operator";
/// User of the Go operator.
pub(crate) const GO: &str = "sriov-network-operator";

/// Interval of checks whether an operator is idle, which causes no event.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

enum Program {
    Vfleet { child: Child, log: PathBuf },
    Go(GoOperator),
}

/// Running operator with its requests to the API server since the last check.
pub(crate) struct Subject {
    program: Program,
    user: String,
    requests: Requests,
    /// The operator is idle after this time without a request.
    quiet: Duration,
}

impl Subject {
    /// Starts the operator of vfleet with its own rights, and waits until it is idle.
    pub(crate) async fn start_vfleet(plane: &ControlPlane, program: &Path, namespace: &str) -> Result<Self> {
        grant_roles(plane, program, namespace)?;
        let log = plane.directory().join(format!("logs/vfleet-{namespace}.log"));
        let output = File::create(&log)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .arg("operator")
            .args(flags_without_servers(program)?);
        command.env("KUBECONFIG", plane.kubeconfig_for_service_account(namespace, VFLEET, None)?);
        command.env("NAMESPACE", namespace);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().context("could not start vfleet")?;
        let user = format!("system:serviceaccount:{namespace}:{VFLEET}");
        // Longer than the operator collects changes before it writes.
        Self::wait_until_started(plane, Program::Vfleet { child, log }, user, Duration::from_secs(2)).await
    }

    /// Starts the Go operator, and waits until it is idle.
    pub(crate) async fn start_go(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let program = Program::Go(plane.go_operator(namespace)?);
        // The Go operator waits for a second before it starts, and sends no requests while it computes.
        Self::wait_until_started(plane, program, GO.to_owned(), Duration::from_secs(5)).await
    }

    async fn wait_until_started(
        plane: &ControlPlane,
        program: Program,
        user: String,
        quiet: Duration,
    ) -> Result<Self> {
        let mut requests = plane.requests();
        requests.read()?; // Skip earlier requests of others.
        let mut subject = Self { program, user, requests, quiet };
        subject.wait_for_first_request().await?;
        subject.settle().await?;
        Ok(subject)
    }

    async fn wait_for_first_request(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_mins(1);
        let mut ticks = interval(POLL_INTERVAL);
        while self.requests.clone().read()?.iter().all(|request| request.user() != self.user) {
            ensure!(Instant::now() < deadline, "{} sends no request\n{}", self.user, self.log_tail());
            self.ensure_running()?;
            ticks.tick().await;
        }
        Ok(())
    }

    /// Waits until the operator is idle; returns its requests except watches and leases.
    pub(crate) async fn settle(&mut self) -> Result<Vec<Request>> {
        let mut requests = Vec::new();
        let mut last = Instant::now();
        let deadline = last + Duration::from_hours(1);
        let mut ticks = interval(POLL_INTERVAL);
        while last.elapsed() < self.quiet {
            ensure!(Instant::now() < deadline, "{} does not become idle\n{}", self.user, self.log_tail());
            ticks.tick().await;
            self.ensure_running()?;
            let new = self.new_requests()?;
            if !new.is_empty() {
                last = Instant::now();
            }
            requests.extend(new);
        }
        Ok(requests)
    }

    /// Returns the requests of the operator within this time, except watches and leases.
    pub(crate) async fn observe(&mut self, time: Duration) -> Result<Vec<Request>> {
        self.new_requests()?;
        let mut ticks = interval(time);
        ticks.tick().await; // The first tick completes immediately.
        ticks.tick().await;
        self.ensure_running()?;
        self.new_requests()
    }

    fn new_requests(&mut self) -> Result<Vec<Request>> {
        let is_ignored = |request: &Request| request.verb == "watch" || request.resource() == "leases";
        let new = self.requests.read()?.into_iter();
        Ok(new.filter(|request| request.user() == self.user && !is_ignored(request)).collect())
    }

    /// Returns the CPU time so far.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pid())
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        process::memory(self.pid())
    }

    fn pid(&self) -> u32 {
        match &self.program {
            Program::Vfleet { child, .. } => child.id(),
            Program::Go(operator) => operator.pid(),
        }
    }

    fn ensure_running(&mut self) -> Result<()> {
        match &mut self.program {
            Program::Go(operator) => operator.ensure_running(),
            Program::Vfleet { child, .. } => match child.try_wait()? {
                Some(status) => bail!("vfleet ended unexpectedly ({status})\n{}", self.log_tail()),
                None => Ok(()),
            },
        }
    }

    pub(crate) fn log_tail(&self) -> String {
        match &self.program {
            Program::Go(operator) => operator.log_tail(),
            Program::Vfleet { log, .. } => {
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<_> = text.lines().rev().take(20).collect();
                lines.into_iter().rev().collect::<Vec<_>>().join("\n")
            }
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Program::Vfleet { child, .. } = &mut self.program {
            // Both fail only if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Applies the shipped service accounts and roles for this namespace.
pub(crate) fn grant_roles(plane: &ControlPlane, program: &Path, namespace: &str) -> Result<()> {
    let directory = plane.directory().join(format!("deploy-{namespace}"));
    std::fs::create_dir_all(&directory)?;
    let mut command = Command::new(program);
    command.args(["manifests", "--namespace", namespace, "--dir"]).arg(&directory);
    ensure!(command.status()?.success(), "vfleet manifests failed");
    let roles = directory.join("rbac.yaml").display().to_string();
    plane.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &roles])?.into_stdout()?;
    Ok(())
}

/// Returns the flags that switch servers off, as far as this version supports them.
fn flags_without_servers(program: &Path) -> Result<Vec<String>> {
    let help = Command::new(program).args(["operator", "--help"]).output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let flags = ["--metrics-bind-address", "--health-probe-bind-address", "--webhook-bind-address"];
    Ok(flags.into_iter().filter(|flag| help.contains(flag)).map(|flag| format!("{flag}=0")).collect())
}
