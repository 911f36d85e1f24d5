//! An operator that is measured.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fixture_kube::{ControlPlane, GoOperator, Request, Requests};
use tokio::time::{Instant, interval};

use super::process::{self, Memory};

/// The service account that vfleet's operator is.
pub(crate) const VFLEET: &str = "vfleet-operator";
/// The user that the Go operator is.
pub(crate) const GO: &str = "sriov-network-operator";

/// That a program has nothing to do any more comes without an event: this is how often it is asked.
const LOOK: Duration = Duration::from_millis(100);

enum Program {
    Vfleet { child: Child, log: PathBuf },
    Go(GoOperator),
}

/// A running operator, and what it asked the API server since the last time it was looked at.
pub(crate) struct Subject {
    program: Program,
    user: String,
    requests: Requests,
    /// So long without a request means that it is done.
    quiet: Duration,
}

impl Subject {
    /// Starts vfleet's operator with its own rights, and waits until it has nothing to do.
    pub(crate) async fn start_vfleet(plane: &ControlPlane, program: &Path, namespace: &str) -> Result<Self> {
        grant_roles(plane, program, namespace)?;
        let log = plane.directory().join(format!("logs/vfleet-{namespace}.log"));
        let output = File::create(&log)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).arg("operator").args(nothing_served(program)?);
        command.env("KUBECONFIG", plane.kubeconfig_for_service_account(namespace, VFLEET, None)?);
        command.env("NAMESPACE", namespace);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().context("vfleet does not start")?;
        let user = format!("system:serviceaccount:{namespace}:{VFLEET}");
        // Whatever it gathers before it writes, it gathers it for less than this.
        Self::started(plane, Program::Vfleet { child, log }, user, Duration::from_secs(2)).await
    }

    /// Starts the Go operator, and waits until it has nothing to do.
    pub(crate) async fn start_go(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let program = Program::Go(plane.go_operator(namespace)?);
        // It waits for a second before it begins, and asks for nothing while it works out what to write.
        Self::started(plane, program, GO.to_owned(), Duration::from_secs(5)).await
    }

    async fn started(plane: &ControlPlane, program: Program, user: String, quiet: Duration) -> Result<Self> {
        let mut requests = plane.requests();
        requests.read()?; // those of others before it
        let mut subject = Self { program, user, requests, quiet };
        subject.first_request().await?;
        subject.settle().await?;
        Ok(subject)
    }

    async fn first_request(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_mins(1);
        let mut looks = interval(LOOK);
        while self.requests.clone().read()?.iter().all(|request| request.user() != self.user) {
            ensure!(Instant::now() < deadline, "{} asks for nothing\n{}", self.user, self.log_tail());
            self.ensure_running()?;
            looks.tick().await;
        }
        Ok(())
    }

    /// Waits until it has nothing to do; gives what it asked for meanwhile, but watches and its lease.
    pub(crate) async fn settle(&mut self) -> Result<Vec<Request>> {
        let mut asked = Vec::new();
        let mut last = Instant::now();
        let deadline = last + Duration::from_hours(1);
        let mut looks = interval(LOOK);
        while last.elapsed() < self.quiet {
            ensure!(Instant::now() < deadline, "{} does not come to rest\n{}", self.user, self.log_tail());
            looks.tick().await;
            self.ensure_running()?;
            let new = self.asked()?;
            if !new.is_empty() {
                last = Instant::now();
            }
            asked.extend(new);
        }
        Ok(asked)
    }

    /// What it asks for within this time, but watches and its lease.
    pub(crate) async fn observe(&mut self, time: Duration) -> Result<Vec<Request>> {
        self.asked()?;
        let mut looks = interval(time);
        looks.tick().await; // the first one is at once
        looks.tick().await;
        self.ensure_running()?;
        self.asked()
    }

    fn asked(&mut self) -> Result<Vec<Request>> {
        let expected = |request: &Request| request.verb == "watch" || request.resource() == "leases";
        let new = self.requests.read()?.into_iter();
        Ok(new.filter(|request| request.user() == self.user && !expected(request)).collect())
    }

    /// CPU time so far.
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
                Some(status) => bail!("vfleet has ended ({status})\n{}", self.log_tail()),
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
            // Both fail only when it has already ended, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The shipped accounts and roles, for this namespace.
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

/// The flags that switch servers off, of those that this version has.
fn nothing_served(program: &Path) -> Result<Vec<String>> {
    let help = Command::new(program).args(["operator", "--help"]).output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let flags = ["--metrics-bind-address", "--health-probe-bind-address", "--webhook-bind-address"];
    Ok(flags.into_iter().filter(|flag| help.contains(flag)).map(|flag| format!("{flag}=0")).collect())
}
