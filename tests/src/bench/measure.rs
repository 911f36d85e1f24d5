//! Run of the benchmarks: one API server, fleets of growing size, and on each fleet the bare loop and the operators.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fixture_kube::{ControlPlane, network_attachment_crds};
use kube::Client;

use super::admission;
use super::bare::{self, BareLoop};
use super::cni::{self, CniPrograms};
use super::drain;
use super::fleet::{self, Cards};
use super::node::{self, LabPrograms};
use super::operator::{BareTimes, Figures, OperatorBenchmark, Repetitions};
use super::process::Memory;
use super::report::{Report, Row};
use super::rows::{self, Size};
use super::spec_watch::SpecWatch;
use super::subject::{GO, Subject};

/// Minimum number of nodes of a fleet.
const MIN_NODES: usize = 20;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The vfleet program.
    pub vfleet: PathBuf,
    /// The vfleet-cni program.
    pub vfleet_cni: PathBuf,
    /// Program that runs in the machine of the lab.
    pub in_lab: PathBuf,
    /// Parts to measure.
    pub parts: Vec<Part>,
    /// Number of nodes to drain.
    pub drained: usize,
    /// Fleet sizes.
    pub sizes: Vec<usize>,
    /// The Go operator is measured on fleets up to this size.
    pub go_up_to: usize,
    /// Deadline for changes that the Go operator finds only in its resync.
    pub go_late: Duration,
}

/// Part of the benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The operator, on fleets of growing size.
    Operator,
    /// The agent, on one machine.
    Node,
    /// Operator and agents, with a change that requires drains.
    Drain,
    /// Policies at admission, in a large fleet.
    Admission,
    /// The CNI plugins, on this machine and in the lab.
    Cni,
}

struct BenchmarkRun {
    plane: ControlPlane,
    /// Client with all rights.
    client: Client,
    /// Client of the bare loop, whose requests are limited and recorded like those of operators.
    bare_loop: Client,
    options: Options,
    started: Instant,
}

/// Runs the benchmarks; returns the table and the number of missed limits.
pub async fn run(options: Options) -> Result<(String, usize)> {
    ensure!(
        options.sizes.iter().all(|size| *size >= MIN_NODES),
        "a fleet needs at least {MIN_NODES} nodes: set --sizes accordingly"
    );
    let started = Instant::now();
    let mut rows = Vec::new();
    // Before an API server is started, which would disturb times of less than a millisecond.
    if options.parts.contains(&Part::Cni) {
        let programs = CniPrograms { vfleet_cni: &options.vfleet_cni, in_lab: &options.in_lab };
        rows.extend(tokio::task::block_in_place(|| cni::rows(programs, |what| log(started, what)))?);
    }
    if options.parts.iter().any(|part| *part != Part::Cni) {
        rows.extend(measure_with_api_server(options, started).await?);
    }
    log(started, "done");
    let report = Report(rows);
    Ok((report.to_string(), report.count_missed()))
}

async fn measure_with_api_server(options: Options, started: Instant) -> Result<Vec<Row>> {
    let bench = BenchmarkRun::new(options, started).await?;
    let mut rows = Vec::new();
    if bench.options.parts.contains(&Part::Node) {
        let Options { vfleet, in_lab, .. } = &bench.options;
        rows.extend(node::rows(&bench.plane, LabPrograms { vfleet, in_lab }, |what| bench.log(what)).await?);
    }
    if bench.options.parts.contains(&Part::Drain) {
        rows.extend(bench.measure_drain().await?);
    }
    if bench.options.parts.contains(&Part::Admission) {
        rows.extend(bench.measure_admission().await?);
    }
    if bench.options.parts.contains(&Part::Operator) {
        rows.extend(bench.measure_operator().await?);
    }
    Ok(rows)
}

fn log(started: Instant, what: &str) {
    eprintln!("bench: {:4} s: {what}", started.elapsed().as_secs());
}

impl BenchmarkRun {
    async fn new(options: Options, started: Instant) -> Result<Self> {
        let plane = tokio::task::block_in_place(start_plane)?;
        let (client, bare_loop) = create_clients(&plane).await?;
        Ok(Self { plane, client, bare_loop, options, started })
    }

    fn log(&self, what: &str) {
        log(self.started, what);
    }

    /// Measures drains, on a separate API server so that other nodes are not drained.
    async fn measure_drain(&self) -> Result<Vec<Row>> {
        let plane = tokio::task::block_in_place(start_plane)?;
        let (client, bare_loop) = create_clients(&plane).await?;
        let setup = drain::DrainSetup {
            plane: &plane,
            client: &client,
            bare_loop: &bare_loop,
            vfleet: &self.options.vfleet,
            nodes: self.options.drained,
        };
        drain::rows(setup, |what| self.log(what)).await
    }

    /// Measures admission, on a separate API server because the webhooks affect all writes.
    async fn measure_admission(&self) -> Result<Vec<Row>> {
        let plane = tokio::task::block_in_place(start_plane)?;
        let (client, _) = create_clients(&plane).await?;
        let nodes = self.options.sizes.iter().copied().max().unwrap_or(MIN_NODES);
        let setup =
            admission::AdmissionSetup { plane: &plane, client: &client, vfleet: &self.options.vfleet, nodes };
        admission::rows(setup, |what| self.log(what)).await
    }

    async fn measure_operator(&self) -> Result<Vec<Row>> {
        let mut sizes = self.options.sizes.clone();
        sizes.sort_unstable();
        let mut measured = Vec::new();
        let mut nodes = 0;
        for size in sizes {
            self.log(&format!("creating {size} nodes"));
            fleet::create_nodes(&self.client, nodes..size).await?;
            nodes = size;
            measured.push(self.measure(size).await?);
        }
        let memory = self.memory_with_many_cards(nodes).await?;
        let mut rows = rows::rows(&measured);
        rows.extend(rows::many_cards(nodes, memory));
        Ok(rows)
    }

    async fn measure(&self, nodes: usize) -> Result<Size> {
        let vfleet = self.measure_vfleet(nodes).await?;
        let go = if nodes <= self.options.go_up_to { Some(self.measure_go(nodes).await?) } else { None };
        Ok(Size { nodes, vfleet, go })
    }

    async fn measure_vfleet(&self, nodes: usize) -> Result<Figures> {
        let (namespace, bare_namespace) = (format!("vfleet-{nodes}"), format!("bare-{nodes}"));
        self.create_states(&namespace, nodes, Cards::FEW).await?;
        self.create_states(&bare_namespace, nodes, Cards::FEW).await?;
        let mut watch = SpecWatch::new(self.client.clone(), &namespace, nodes).await?;
        let bare = BareLoop::new(self.bare_loop.clone(), self.client.clone(), bare_namespace, nodes).await?;
        self.log(&format!("{nodes} nodes: vfleet and the bare loop, alternating"));
        let mut subject = Subject::start_vfleet(&self.plane, &self.options.vfleet, &namespace).await?;
        let mut benchmark = OperatorBenchmark {
            client: &self.client,
            namespace: &namespace,
            nodes,
            subject: &mut subject,
            watch: &mut watch,
            bare: Some((bare, BareTimes::default())),
        };
        let figures = benchmark.measure(repetitions(nodes)).await?;
        benchmark.compare_with_bare_loop().await?;
        Ok(figures)
    }

    async fn measure_go(&self, nodes: usize) -> Result<Figures> {
        let namespace = format!("go-{nodes}");
        self.create_states(&namespace, nodes, Cards::FEW).await?;
        let mut watch = SpecWatch::new(self.client.clone(), &namespace, nodes).await?;
        self.log(&format!("{nodes} nodes: the Go operator (usually about {} s)", 60 + nodes / 5));
        let mut subject = Subject::start_go(&self.plane, &namespace).await?;
        let mut benchmark = OperatorBenchmark {
            client: &self.client,
            namespace: &namespace,
            nodes,
            subject: &mut subject,
            watch: &mut watch,
            bare: None,
        };
        benchmark.measure(Repetitions { all: 1, small: 1, late: self.options.go_late }).await
    }

    async fn create_states(&self, namespace: &str, nodes: usize, cards: Cards) -> Result<()> {
        self.log(&format!("{nodes} nodes: node states of {namespace}"));
        fleet::create_namespace(&self.client, namespace).await?;
        fleet::create_states(&self.client, namespace, nodes, cards).await
    }

    async fn memory_with_many_cards(&self, nodes: usize) -> Result<Memory> {
        let namespace = "many-cards";
        self.create_states(namespace, nodes, Cards::MANY).await?;
        let mut watch = SpecWatch::new(self.client.clone(), namespace, nodes).await?;
        self.log(&format!(
            "{nodes} nodes: memory of vfleet with many cards (usually about {} s)",
            10 + nodes / 40
        ));
        let mut subject = Subject::start_vfleet(&self.plane, &self.options.vfleet, namespace).await?;
        let started = Instant::now();
        fleet::create_policy(&self.client, namespace, fleet::policy_for_all()).await?;
        let changes = watch.changes(started, fleet::names(nodes), Duration::from_mins(30)).await?;
        changes.with_context(|| format!("timed out waiting for node states\n{}", subject.log_tail()))?;
        subject.settle().await?;
        subject.memory()
    }
}

/// Returns the clients of the administrator and of the bare loop.
async fn create_clients(plane: &ControlPlane) -> Result<(Client, Client)> {
    let bare_loop = plane.client_for_service_account("default", bare::ACCOUNT, None).await?;
    Ok((plane.client().await?, bare_loop))
}

/// Starts an API server with all CRDs and a service account for the bare loop. Like the operator it uses a service
/// account, because the API server has separate limits for each kind of user.
fn start_plane() -> Result<ControlPlane> {
    let plane = ControlPlane::start_measured(&[GO])?;
    plane.apply_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds"))?;
    plane.apply_crds(network_attachment_crds())?;
    plane.kubectl(&["--namespace=default", "create", "serviceaccount", bare::ACCOUNT])?.into_stdout()?;
    let account = format!("--serviceaccount=default:{}", bare::ACCOUNT);
    let binding = ["create", "clusterrolebinding", bare::ACCOUNT, "--clusterrole=cluster-admin", &account];
    plane.kubectl(&binding)?.into_stdout()?;
    Ok(plane)
}

/// Returns the number of repetitions, which is higher for small fleets.
fn repetitions(nodes: usize) -> Repetitions {
    let all = match nodes {
        ..=200 => 7,
        201..=2000 => 3,
        _ => 1,
    };
    Repetitions { all, small: 5, late: Duration::from_secs(30) }
}
