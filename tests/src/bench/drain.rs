//! Benchmark of a change that requires a drain of every node of a large pool without limit: operator and simulated
//! agents, compared with a bare loop of the same writes and evictions.

mod bare;
mod request_counter;
mod sim;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fixture_kube::ControlPlane;
use kube::Client;

use super::fleet;
use super::operator::median;
use super::process::Memory;
use super::report::{Figure, Limit, Row, Unit};
use super::subject::Subject;
use bare::{BareDrain, Examples};
use request_counter::RequestCounter;
use sim::SimFleet;

/// Namespace of the operator.
const NAMESPACE: &str = "drain";
/// Namespace of the bare loop.
const BARE: &str = "drain-bare";
const RUNS: usize = 3;
/// Numbers of VFs between which the policy changes.
const VFS: [usize; 2] = [4, 6];
const DEADLINE: Duration = Duration::from_mins(30);
const MAX_RATIO: f64 = 1.25;

/// Setup of the benchmark.
pub(crate) struct DrainSetup<'a> {
    pub(crate) plane: &'a ControlPlane,
    /// Client with all rights.
    pub(crate) client: &'a Client,
    /// Client of the bare loop, whose requests are limited and recorded like those of the operator.
    pub(crate) bare_loop: &'a Client,
    pub(crate) vfleet: &'a Path,
    pub(crate) nodes: usize,
}

/// Runs the benchmark.
pub(crate) async fn rows(setup: DrainSetup<'_>, log: impl Fn(&str)) -> Result<Vec<Row>> {
    let nodes = setup.nodes;
    for namespace in [NAMESPACE, BARE] {
        fleet::create_namespace(setup.client, namespace).await?;
        // Pods need this service account, and no controller creates it here.
        let account = ["--namespace", namespace, "create", "serviceaccount", "default"];
        setup.plane.kubectl(&account)?.into_stdout()?;
    }
    log(&format!("creating VFs on {nodes} simulated nodes"));
    let first = Subject::start_vfleet(setup.plane, setup.vfleet, NAMESPACE).await?;
    let mut sim = SimFleet::start(&setup).await?;
    sim.apply_policy(VFS[0]).await?;
    sim.expect_synced(VFS[0], DEADLINE).await.with_context(|| first.log_tail())?;
    drop(first);
    log(&format!("creating {nodes} nodes for the bare loop"));
    let example = sim.example().await?;
    let mut examples = [example.clone(), example];
    let bare = BareDrain::new(&setup, &examples[0]).await?;
    let (mut bare_times, mut times, mut peak_memory) = (Vec::new(), Vec::new(), 0.0_f64);
    for run in 0..RUNS {
        let (from, to) = (run % 2, (run + 1) % 2);
        // Alternate the order, because the API server becomes slower with more objects.
        let vfleet_is_first = run % 2 == 0;
        for is_vfleet in [vfleet_is_first, !vfleet_is_first] {
            if is_vfleet {
                let (time, memory) = drain_all(&setup, &mut sim, VFS[to], &log).await?;
                times.push(time.as_secs_f64());
                peak_memory = peak_memory.max(memory.peak);
                log(&format!("run {run}: vfleet drained all in {:.1} s", times[run]));
                examples[to] = sim.example().await?;
            } else {
                let mut requests = RequestCounter::start(setup.plane)?;
                let change = Examples { before: &examples[from], after: &examples[to] };
                bare_times.push(bare.run(&change).await?.as_secs_f64());
                log(&format!("run {run}: the bare loop drained all in {:.1} s", bare_times[run]));
                requests.print("bare loop", nodes)?;
            }
        }
    }
    let (bare, time) = (median(bare_times), median(times));
    let row = Row {
        what: "drain and configure all nodes",
        nodes,
        unit: Unit::Time,
        bare: Some(bare),
        vfleet: Some(Figure::Is(time)),
        go: None,
        limit: Some(Limit { text: format!("{MAX_RATIO}x bare loop"), maximum: MAX_RATIO * bare }),
    };
    let memory = Row {
        what: "  peak memory of the operator (RSS)",
        unit: Unit::Bytes,
        bare: None,
        vfleet: Some(Figure::Is(peak_memory)),
        limit: None,
        ..row.clone()
    };
    Ok(vec![row, memory])
}

/// Drains all nodes with a new operator, which does not run while the bare loop runs.
async fn drain_all(
    setup: &DrainSetup<'_>,
    sim: &mut SimFleet,
    vfs: usize,
    log: &impl Fn(&str),
) -> Result<(Duration, Memory)> {
    sim.create_pods().await?;
    let operator = Subject::start_vfleet(setup.plane, setup.vfleet, NAMESPACE).await?;
    let (cpu, sim_cpu) = (operator.cpu_time()?, sim.cpu_time()?);
    let mut requests = RequestCounter::start(setup.plane)?;
    let started = Instant::now();
    sim.apply_policy(vfs).await?;
    sim.expect_drained(DEADLINE).await.with_context(|| operator.log_tail())?;
    let time = started.elapsed();
    let cpu = operator.cpu_time()?.saturating_sub(cpu).as_secs_f64();
    let sim_cpu = sim.cpu_time()?.saturating_sub(sim_cpu).as_secs_f64();
    log(&format!("CPU time: {cpu:.1} s of the operator, {sim_cpu:.1} s of the agents"));
    requests.print("vfleet", setup.nodes)?;
    sim.expect_synced(vfs, Duration::from_mins(1)).await?;
    ensure!(sim.pods_left().await? == 0, "pods are left");
    Ok((time, operator.memory()?))
}
