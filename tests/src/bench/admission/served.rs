//! An operator that serves admission, and how quickly it answers by its own count.

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
use super::{NAMESPACE, Scene, candidate};
use crate::ports::own_ports;

/// A running operator.
pub(super) struct Served {
    child: Child,
    metrics: u16,
}

/// How many answers there were.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers {
    pub(super) all: usize,
    /// Those that took more than 5 ms.
    pub(super) slow: usize,
}

impl Answers {
    pub(super) fn since(self, before: &Self) -> Self {
        Self { all: self.all - before.all, slow: self.slow - before.slow }
    }
}

impl Served {
    /// Starts it, and waits until the API server asks it and all nodes are planned.
    pub(super) async fn start(scene: &Scene<'_>) -> Result<Self> {
        grant_roles(scene.plane, scene.vfleet, NAMESPACE)?;
        let manifest = scene.plane.directory().join(format!("deploy-{NAMESPACE}/admission.yaml"));
        let manifest = manifest.display().to_string();
        scene
            .plane
            .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &manifest])?
            .into_stdout()?;
        let [webhook, metrics] = own_ports()?;
        let output = File::create(scene.plane.directory().join("logs/vfleet-admission.log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(scene.vfleet).arg("operator");
        command.args(["--health-probe-bind-address", "0"]);
        command.args(["--metrics-bind-address", &format!("127.0.0.1:{metrics}")]);
        command.args(["--webhook-bind-address", &format!("127.0.0.1:{webhook}")]);
        command.args(["--webhook-url", &format!("https://127.0.0.1:{webhook}")]);
        command.env("KUBECONFIG", scene.plane.kubeconfig_for_service_account(NAMESPACE, VFLEET, None)?);
        command.env("NAMESPACE", NAMESPACE).env("POD_NAME", "bench");
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut served = Self { child: command.spawn().context("vfleet does not start")?, metrics };
        served.asked(scene).await?;
        Ok(served)
    }

    /// That the API server has heard of the webhooks comes without an event.
    async fn asked(&mut self, scene: &Scene<'_>) -> Result<()> {
        let policies: Api<SriovNetworkNodePolicy> = Api::namespaced(scene.client.clone(), NAMESPACE);
        let parameters = PostParams { dry_run: true, ..Default::default() };
        let probe = serde_json::from_value(candidate(0))?;
        let deadline = Instant::now() + Duration::from_mins(5);
        let mut looks = interval(Duration::from_millis(200));
        loop {
            looks.tick().await;
            if let Some(status) = self.child.try_wait()? {
                bail!("vfleet has ended ({status})");
            }
            ensure!(Instant::now() < deadline, "the API server never asks");
            // One before is still to be replaced: nobody answers there.
            let is_admitted = policies.create(&parameters, &probe).await.is_ok();
            if is_admitted && self.answers().is_ok_and(|answers| answers.all > 0) && self.is_idle()? {
                return Ok(());
            }
        }
    }

    /// How much memory it has.
    pub(super) fn memory(&self) -> Result<Memory> {
        memory(self.child.id())
    }

    /// How many answers it has given so far.
    pub(super) fn answers(&self) -> Result<Answers> {
        let text = self.metrics()?;
        let number = |start: &str| -> Result<usize> {
            let line = text.lines().find(|line| line.starts_with(start));
            let line = line.with_context(|| format!("there is no metric {start}"))?;
            Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
        };
        let all = number("vfleet_admission_duration_seconds_count")?;
        let quick = number("vfleet_admission_duration_seconds_bucket{le=\"0.005\"")?;
        Ok(Answers { all, slow: all - quick })
    }

    /// Whether nothing is to be written.
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

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only when it has already ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
