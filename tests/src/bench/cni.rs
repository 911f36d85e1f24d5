//! Benchmarks of the CNI plugins: start of the program, ADD and DEL of a VF, and many attachments at the same time.

mod bare_client;
mod lab;
mod lab_pairs;
mod lab_turns;
mod lab_vf;
mod runtime;
mod start;

use std::path::Path;

use anyhow::{Result, bail};

use super::report::Row;
pub(super) use lab_pairs::attach_in_pairs;
pub(super) use lab_turns::attach_in_turns;

/// Programs of these benchmarks.
#[derive(Debug, Clone, Copy)]
pub(super) struct CniPrograms<'a> {
    /// The program under measurement.
    pub(super) vfleet_cni: &'a Path,
    /// The measuring program ([`super::LabCommand`]).
    pub(super) in_lab: &'a Path,
}

/// Runs the benchmarks of the CNI plugins.
pub(super) fn rows(programs: CniPrograms<'_>, log: impl Fn(&str)) -> Result<Vec<Row>> {
    log("the plugin program: VERSION, alternating with /bin/true");
    let mut rows = start::rows(programs.vfleet_cni)?;
    if let Some(reason) = fixture_lab::unavailable() {
        bail!(
            "the cni part needs the VM lab, which cannot run here ({reason}): leave it out with --parts operator"
        );
    }
    log("VFs of 2 real cards: attached to pods by the plugin and by a bare client (usually 3 min)");
    rows.extend(lab::rows(programs, log)?);
    Ok(rows)
}
