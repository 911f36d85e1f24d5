//! Operator that serves admission, with its response times from metrics.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Api;
use kube::api::PostParams;
use tokio::time::{Instant, interval};
use vfleet_api::SriovNetworkNodePolicy;

use super::super::process::{Memory, memory};
use super::super::subject::{VFLEET, grant_roles};
use super::{AdmissionSetup, NAMESPACE, candidate};
use crate::ports::reserve_ports;

/// Running operator.
pub(super) struct AdmissionServer {
    child: Child,
    metrics: u16,
}

/// Number of responses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Responses {
    pub(super) all: usize,
    /// Responses that took more than 5 ms.
    pub(super) slow: usize,
}

impl Responses {
    pub(super) fn since(self, before: &Self) -> Self {
        Self { all: self.all - before.all, slow: self.slow - before.slow }
    }
}

impl AdmissionServer {
    /// Starts the operator and waits until the API server calls its webhook and all nodes are planned.
    pub(super) async fn start(setup: &AdmissionSetup<'_>) -> Result<Self> {
        grant_roles(setup.plane, setup.vfleet, NAMESPACE)?;
        let manifest = setup.plane.directory().join(format!("deploy-{NAMESPACE}/admission.yaml"));
        let manifest = manifest.display().to_string();
        setup
            .plane
            .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &manifest])?
            .into_stdout()?;
        let [webhook, metrics] = reserve_ports()?;
        let output = File::create(setup.plane.directory().join("logs/vfleet-admission.log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(setup.vfleet).arg("operator");
        command.args(["--health-probe-bind-address", "0"]);
        command.args(["--metrics-bind-address", &format!("127.0.0.1:{metrics}")]);
        command.args(["--webhook-bind-address", &format!("127.0.0.1:{webhook}")]);
        command.args(["--webhook-url", &format!("https://127.0.0.1:{webhook}")]);
        command.env("KUBECONFIG", setup.plane.kubeconfig_for_service_account(NAMESPACE, VFLEET, None)?);
        command.env("NAMESPACE", NAMESPACE).env("POD_NAME", "bench");
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut server = Self { child: command.spawn().context("could not start vfleet")?, metrics };
        server.wait_until_called(setup).await?;
        Ok(server)
    }

    /// Waits until the API server calls the webhook, which causes no event.
    async fn wait_until_called(&mut self, setup: &AdmissionSetup<'_>) -> Result<()> {
        let policies: Api<SriovNetworkNodePolicy> = Api::namespaced(setup.client.clone(), NAMESPACE);
        let parameters = PostParams { dry_run: true, ..Default::default() };
        let probe = serde_json::from_value(candidate(0))?;
        let deadline = Instant::now() + Duration::from_mins(5);
        let mut ticks = interval(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            if let Some(status) = self.child.try_wait()? {
                bail!("vfleet ended unexpectedly ({status})");
            }
            ensure!(Instant::now() < deadline, "timed out waiting for the API server to call the webhook");
            // The configuration of a previous operator may still be active, and its address does not respond.
            let is_admitted = policies.create(&parameters, &probe).await.is_ok();
            if is_admitted && self.answers().is_ok_and(|answers| answers.all > 0) && self.is_idle()? {
                return Ok(());
            }
        }
    }

    /// Reads the memory of the operator.
    pub(super) fn memory(&self) -> Result<Memory> {
        memory(self.child.id())
    }

    /// Reads the number of responses so far.
    pub(super) fn answers(&self) -> Result<Responses> {
        let text = self.metrics()?;
        let number = |start: &str| -> Result<usize> {
            let line = text.lines().find(|line| line.starts_with(start));
            let line = line.with_context(|| format!("there is no metric {start}"))?;
            Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
        };
        let all = number("vfleet_admission_duration_seconds_count")?;
        let quick = number("vfleet_admission_duration_seconds_bucket{le=\"0.005\"")?;
        Ok(Responses { all, slow: all - quick })
    }

    /// Returns whether all work queues are empty.
    fn is_idle(&self) -> Result<bool> {
        let text = self.metrics()?;
        let depths = text.lines().filter(|line| line.starts_with("vfleet_queue_depth{"));
        Ok(depths.clone().count() > 0 && depths.into_iter().all(|line| line.ends_with(" 0")))
    }

    fn metrics(&self) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics))?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for AdmissionServer {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
