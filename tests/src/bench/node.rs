//! Benchmarks of the agent: creating VFs and bridges, many cards in parallel, and an idle agent.

mod idle;
mod lab;
mod lab_bridges;
mod lab_program;
mod sim;

use std::path::Path;

use anyhow::Result;
use fixture_kube::ControlPlane;

use super::report::Row;
pub use lab_program::LabCommand;

/// Programs that run in the machine of the lab.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LabPrograms<'a> {
    /// The program under measurement.
    pub(crate) vfleet: &'a Path,
    /// The measuring program ([`LabCommand`]).
    pub(crate) in_lab: &'a Path,
}

/// Runs the benchmarks of the agent.
pub(crate) async fn rows(
    plane: &ControlPlane,
    programs: LabPrograms<'_>,
    log: impl Fn(&str),
) -> Result<Vec<Row>> {
    log("8 simulated cards of 64 VFs (usually 15 s)");
    let mut rows = vec![tokio::task::block_in_place(sim::row)?];
    if let Some(reason) = fixture_lab::unavailable() {
        anyhow::bail!(
            "the node part needs the VM lab, which cannot run here ({reason}): leave it out with --parts operator"
        );
    }
    log("2 real cards: VFs created by vfleet and by bare writes (usually 3 min)");
    let machine = tokio::task::block_in_place(|| lab::Machine::boot(plane, programs))?;
    rows.push(tokio::task::block_in_place(|| machine.measure_creating_vfs())?);
    log("4 real cards in switchdev mode: bridges by vfleet and by a bare client (usually 90 s)");
    rows.extend(tokio::task::block_in_place(|| lab::measure_creating_bridges(programs))?);
    log("2 real cards: idle agent (usually 90 s)");
    rows.extend(idle::rows(plane, &machine).await?);
    Ok(rows)
}
