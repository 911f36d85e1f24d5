//! The run: one API server, fleets of growing size, on each of them the bare loop and the operators.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fixture_kube::{ControlPlane, network_attachment_crds};
use kube::Client;

use super::admission;
use super::bare::{self, BareLoop};
use super::drain;
use super::fleet::{self, Cards};
use super::node::{self, Programs};
use super::process::Memory;
use super::report::{Report, Row};
use super::rows::{self, Size};
use super::scenario::{BareTimes, Figures, Scenario, Tries};
use super::subject::{GO, Subject};
use super::watched::Watched;

/// Fewer nodes than this are too few for all parts.
const SMALLEST: usize = 20;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// The vfleet program.
    pub vfleet: PathBuf,
    /// The program that runs in the lab's machine.
    pub in_lab: PathBuf,
    /// What of it all.
    pub parts: Vec<Part>,
    /// How many nodes are drained.
    pub drained: usize,
    /// Fleet sizes.
    pub sizes: Vec<usize>,
    /// The Go operator is measured on fleets up to this size.
    pub go_up_to: usize,
    /// When to stop waiting for what the Go operator finds only in its resync.
    pub go_late: Duration,
}

/// A part of the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The operator, on fleets of growing size.
    Operator,
    /// The agent, on one machine.
    Node,
    /// Operator and agents, in a change that needs drains.
    Drain,
    /// Policies at admission, in a large fleet.
    Admission,
}

struct Bench {
    plane: ControlPlane,
    /// As the administrator.
    client: Client,
    /// As somebody whose requests are treated and recorded as the operators' are.
    bare_loop: Client,
    options: Options,
    started: Instant,
}

/// Measures, and gives the table and how many limits were missed.
pub async fn run(options: Options) -> Result<(String, usize)> {
    ensure!(
        options.sizes.iter().all(|size| *size >= SMALLEST),
        "a fleet has to have {SMALLEST} nodes at least: some of them play a part of their own"
    );
    let bench = Bench::new(options).await?;
    let mut rows = Vec::new();
    if bench.options.parts.contains(&Part::Node) {
        let Options { vfleet, in_lab, .. } = &bench.options;
        rows.extend(node::rows(&bench.plane, Programs { vfleet, in_lab }, |what| bench.say(what)).await?);
    }
    if bench.options.parts.contains(&Part::Drain) {
        rows.extend(bench.drain().await?);
    }
    if bench.options.parts.contains(&Part::Admission) {
        rows.extend(bench.admission().await?);
    }
    if bench.options.parts.contains(&Part::Operator) {
        rows.extend(bench.operator().await?);
    }
    bench.say("done");
    let report = Report(rows);
    Ok((report.to_string(), report.missed()))
}

impl Bench {
    async fn new(options: Options) -> Result<Self> {
        let plane = tokio::task::block_in_place(prepare)?;
        let (client, bare_loop) = clients(&plane).await?;
        Ok(Self { plane, client, bare_loop, options, started: Instant::now() })
    }

    fn say(&self, what: &str) {
        eprintln!("bench: {:4} s: {what}", self.started.elapsed().as_secs());
    }

    /// On an API server of its own: the others' nodes are not drained.
    async fn drain(&self) -> Result<Vec<Row>> {
        let plane = tokio::task::block_in_place(prepare)?;
        let (client, bare_loop) = clients(&plane).await?;
        let scene = drain::Scene {
            plane: &plane,
            client: &client,
            bare_loop: &bare_loop,
            vfleet: &self.options.vfleet,
            nodes: self.options.drained,
        };
        drain::rows(scene, |what| self.say(what)).await
    }

    /// On an API server of its own: it asks about objects.
    async fn admission(&self) -> Result<Vec<Row>> {
        let plane = tokio::task::block_in_place(prepare)?;
        let (client, _) = clients(&plane).await?;
        let nodes = self.options.sizes.iter().copied().max().unwrap_or(SMALLEST);
        let scene = admission::Scene { plane: &plane, client: &client, vfleet: &self.options.vfleet, nodes };
        admission::rows(scene, |what| self.say(what)).await
    }

    async fn operator(&self) -> Result<Vec<Row>> {
        let mut sizes = self.options.sizes.clone();
        sizes.sort_unstable();
        let mut measured = Vec::new();
        let mut nodes = 0;
        for size in sizes {
            self.say(&format!("{size} nodes: creating them"));
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
        let vfleet = self.vfleet(nodes).await?;
        let go = if nodes <= self.options.go_up_to { Some(self.go(nodes).await?) } else { None };
        Ok(Size { nodes, vfleet, go })
    }

    async fn vfleet(&self, nodes: usize) -> Result<Figures> {
        let (namespace, alone) = (format!("vfleet-{nodes}"), format!("bare-{nodes}"));
        self.create_states(&namespace, nodes, Cards::FEW).await?;
        self.create_states(&alone, nodes, Cards::FEW).await?;
        let mut watched = Watched::new(self.client.clone(), &namespace, nodes).await?;
        let bare = BareLoop::new(self.bare_loop.clone(), self.client.clone(), alone, nodes).await?;
        self.say(&format!("{nodes} nodes: vfleet and the bare loop, in turns"));
        let mut subject = Subject::start_vfleet(&self.plane, &self.options.vfleet, &namespace).await?;
        let mut scenario = Scenario {
            client: &self.client,
            namespace: &namespace,
            nodes,
            subject: &mut subject,
            watched: &mut watched,
            bare: Some((bare, BareTimes::default())),
        };
        let figures = scenario.measure(tries(nodes)).await?;
        scenario.compare_with_the_bare_loop().await?;
        Ok(figures)
    }

    async fn go(&self, nodes: usize) -> Result<Figures> {
        let namespace = format!("go-{nodes}");
        self.create_states(&namespace, nodes, Cards::FEW).await?;
        let mut watched = Watched::new(self.client.clone(), &namespace, nodes).await?;
        self.say(&format!("{nodes} nodes: the Go operator (usually about {} s)", 60 + nodes / 5));
        let mut subject = Subject::start_go(&self.plane, &namespace).await?;
        let mut scenario = Scenario {
            client: &self.client,
            namespace: &namespace,
            nodes,
            subject: &mut subject,
            watched: &mut watched,
            bare: None,
        };
        scenario.measure(Tries { all: 1, small: 1, late: self.options.go_late }).await
    }

    async fn create_states(&self, namespace: &str, nodes: usize, cards: Cards) -> Result<()> {
        self.say(&format!("{nodes} nodes: node states of {namespace}"));
        fleet::create_namespace(&self.client, namespace).await?;
        fleet::create_states(&self.client, namespace, nodes, cards).await
    }

    async fn memory_with_many_cards(&self, nodes: usize) -> Result<Memory> {
        let namespace = "many-cards";
        self.create_states(namespace, nodes, Cards::MANY).await?;
        let mut watched = Watched::new(self.client.clone(), namespace, nodes).await?;
        self.say(&format!(
            "{nodes} nodes: memory of vfleet with many cards (usually about {} s)",
            10 + nodes / 40
        ));
        let mut subject = Subject::start_vfleet(&self.plane, &self.options.vfleet, namespace).await?;
        let started = Instant::now();
        fleet::create_policy(&self.client, namespace, fleet::policy_for_all()).await?;
        let changes = watched.changes(started, fleet::names(nodes), Duration::from_mins(30)).await?;
        changes.with_context(|| format!("node states are not written\n{}", subject.log_tail()))?;
        subject.settle().await?;
        subject.memory()
    }
}

/// The administrator's, and the bare loop's.
async fn clients(plane: &ControlPlane) -> Result<(Client, Client)> {
    let bare_loop = plane.client_for_service_account("default", bare::ACCOUNT, None).await?;
    Ok((plane.client().await?, bare_loop))
}

/// The API server with all definitions, and an account for the bare loop: one like the operator's, since the API
/// server gives each kind of user its own share.
fn prepare() -> Result<ControlPlane> {
    let plane = ControlPlane::start_measured(&[GO])?;
    plane.apply_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds"))?;
    plane.apply_crds(network_attachment_crds())?;
    plane.kubectl(&["--namespace=default", "create", "serviceaccount", bare::ACCOUNT])?.into_stdout()?;
    let account = format!("--serviceaccount=default:{}", bare::ACCOUNT);
    let binding = ["create", "clusterrolebinding", bare::ACCOUNT, "--clusterrole=cluster-admin", &account];
    plane.kubectl(&binding)?.into_stdout()?;
    Ok(plane)
}

/// What is quick is tried more often.
fn tries(nodes: usize) -> Tries {
    let all = match nodes {
        ..=200 => 7,
        201..=2000 => 3,
        _ => 1,
    };
    Tries { all, small: 5, late: Duration::from_secs(30) }
}
