//! A change that needs a drain of every node of a large pool without limit: operator and simulated agents beside a bare
//! loop of the same writes and evictions.

mod asked;
mod bare;
mod sim;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fixture_kube::ControlPlane;
use kube::Client;

use super::fleet;
use super::process::Memory;
use super::report::{Figure, Limit, Row, Unit};
use super::scenario::median;
use super::subject::Subject;
use asked::Asked;
use bare::{BareDrain, Examples};
use sim::SimFleet;

/// Of the operator's namespace.
const NAMESPACE: &str = "drain";
/// Of the bare loop's.
const BARE: &str = "drain-bare";
const RUNS: usize = 3;
/// The change is from the one number of VFs to the other, and back.
const VFS: [usize; 2] = [4, 6];
const LONGEST: Duration = Duration::from_mins(30);
const MOST: f64 = 1.25;

/// What is measured, and where.
pub(crate) struct Scene<'a> {
    pub(crate) plane: &'a ControlPlane,
    /// As the administrator.
    pub(crate) client: &'a Client,
    /// As somebody whose requests are treated and recorded as the operator's are.
    pub(crate) bare_loop: &'a Client,
    pub(crate) vfleet: &'a Path,
    pub(crate) nodes: usize,
}

/// Measures it.
pub(crate) async fn rows(scene: Scene<'_>, say: impl Fn(&str)) -> Result<Vec<Row>> {
    let nodes = scene.nodes;
    for namespace in [NAMESPACE, BARE] {
        fleet::create_namespace(scene.client, namespace).await?;
        // No controller makes it, and no pod is made without it.
        let account = ["--namespace", namespace, "create", "serviceaccount", "default"];
        scene.plane.kubectl(&account)?.into_stdout()?;
    }
    say(&format!("{nodes} simulated nodes get VFs"));
    let first = Subject::start_vfleet(scene.plane, scene.vfleet, NAMESPACE).await?;
    let mut sim = SimFleet::start(&scene).await?;
    sim.change(VFS[0]).await?;
    sim.expect_synced(VFS[0], LONGEST).await.with_context(|| first.log_tail())?;
    drop(first);
    say(&format!("{nodes} nodes for the bare loop"));
    let example = sim.example().await?;
    let mut examples = [example.clone(), example];
    let bare = BareDrain::new(&scene, &examples[0]).await?;
    let (mut bare_times, mut times, mut most_memory) = (Vec::new(), Vec::new(), 0.0_f64);
    for run in 0..RUNS {
        let (from, to) = (run % 2, (run + 1) % 2);
        // Not always the same one first: an API server that has more to keep is slower.
        let vfleet_is_first = run % 2 == 0;
        for is_vfleets_turn in [vfleet_is_first, !vfleet_is_first] {
            if is_vfleets_turn {
                let (time, memory) = drain_all(&scene, &mut sim, VFS[to], &say).await?;
                times.push(time.as_secs_f64());
                most_memory = most_memory.max(memory.most);
                say(&format!("run {run}: vfleet drained all in {:.1} s", times[run]));
                examples[to] = sim.example().await?;
            } else {
                let mut asked = Asked::from_now(scene.plane)?;
                let change = Examples { before: &examples[from], after: &examples[to] };
                bare_times.push(bare.run(&change).await?.as_secs_f64());
                say(&format!("run {run}: the bare loop drained all in {:.1} s", bare_times[run]));
                asked.tell("bare loop", nodes)?;
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
        limit: Some(Limit { says: format!("{MOST}x bare loop"), most: MOST * bare }),
    };
    let memory = Row {
        what: "  the operator's most memory (RSS)",
        unit: Unit::Memory,
        bare: None,
        vfleet: Some(Figure::Is(most_memory)),
        limit: None,
        ..row.clone()
    };
    Ok(vec![row, memory])
}

/// A new operator each time: it does not look at what the bare loop does meanwhile.
async fn drain_all(
    scene: &Scene<'_>,
    sim: &mut SimFleet,
    vfs: usize,
    say: &impl Fn(&str),
) -> Result<(Duration, Memory)> {
    sim.make_pods().await?;
    let operator = Subject::start_vfleet(scene.plane, scene.vfleet, NAMESPACE).await?;
    let (cpu, sim_cpu) = (operator.cpu_time()?, sim.cpu_time()?);
    let mut asked = Asked::from_now(scene.plane)?;
    let started = Instant::now();
    sim.change(vfs).await?;
    sim.expect_drained(LONGEST).await.with_context(|| operator.log_tail())?;
    let time = started.elapsed();
    let cpu = operator.cpu_time()?.saturating_sub(cpu).as_secs_f64();
    let sim_cpu = sim.cpu_time()?.saturating_sub(sim_cpu).as_secs_f64();
    say(&format!("CPU time: {cpu:.1} s of the operator, {sim_cpu:.1} s of the agents"));
    asked.tell("vfleet", scene.nodes)?;
    sim.expect_synced(vfs, Duration::from_mins(1)).await?;
    ensure!(sim.pods_left().await? == 0, "pods are still there");
    Ok((time, operator.memory()?))
}
