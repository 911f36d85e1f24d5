//! The node's part: VFs from nothing to bound and verified, many cards at once, and an agent with nothing to do.

mod idle;
mod inside;
mod lab;
mod sim;

use std::path::Path;

use anyhow::Result;
use fixture_kube::ControlPlane;

use super::report::Row;
pub use inside::Inside;

/// The programs that run in the lab's machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Programs<'a> {
    /// What is measured.
    pub(crate) vfleet: &'a Path,
    /// What it is measured by ([`Inside`]).
    pub(crate) in_lab: &'a Path,
}

/// Measures all of it.
pub(crate) async fn rows(
    plane: &ControlPlane,
    programs: Programs<'_>,
    say: impl Fn(&str),
) -> Result<Vec<Row>> {
    say("8 simulated cards of 64 VFs (usually 15 s)");
    let mut rows = vec![tokio::task::block_in_place(sim::row)?];
    if let Some(reason) = fixture_lab::unavailable() {
        anyhow::bail!(
            "the node's part needs the virtual machine lab: {reason}; leave it out with --parts operator"
        );
    }
    say("a machine with two cards: VFs by vfleet and by a bare program (usually 3 min)");
    let machine = tokio::task::block_in_place(|| lab::Machine::boot(plane, programs))?;
    rows.push(tokio::task::block_in_place(|| machine.make_vfs())?);
    say("the same machine: an agent with nothing to do (usually 90 s)");
    rows.extend(idle::rows(plane, &machine).await?);
    Ok(rows)
}
