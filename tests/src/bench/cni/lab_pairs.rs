//! Measurement of ADD and DEL in the machine of the lab: by the plugin, and by the bare client, alternately.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::bare_client;
use super::lab_vf::{LabVf, Pod, settle};
use super::runtime::Runtime;

/// Times in seconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PairTimes {
    /// Calls of the plugin that only start it.
    pub(super) version: Vec<f64>,
    pub(super) vfleet: AttachTimes,
    pub(super) bare: AttachTimes,
}

/// Times of attachments in seconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct AttachTimes {
    pub(super) add: Vec<f64>,
    pub(super) delete: Vec<f64>,
}

/// Attaches VFs to pods, one after the other, and releases them. All VFs have their turn.
pub(crate) fn attach_in_pairs(plugin: &Path, rounds: usize) -> Result<PairTimes> {
    let runtime = Runtime { plugin };
    let vfs = LabVf::list()?;
    let mut times = PairTimes::default();
    // Both stay until the end, because the kernel removes a namespace in the background.
    let (pod, bare_pod) = (Pod::create("pod")?, Pod::create("bare-pod")?);
    for vf in vfs.iter().cycle().take(rounds) {
        times.version.push(measure(|| runtime.version(&pod, vf).map(drop))?);
        times.vfleet.add.push(measure(|| runtime.add(&pod, vf).map(drop))?);
        vf.check_attached(&pod)?;
        times.vfleet.delete.push(measure(|| runtime.delete(&pod, vf).map(drop))?);
        vf.check_restored()?;
        let index = vf.index()?;
        times.bare.add.push(measure(|| bare_client::add(&bare_pod, vf, index))?);
        vf.check_attached(&bare_pod)?;
        times.bare.delete.push(measure(|| bare_client::delete(&bare_pod, vf, index))?);
        vf.check_restored()?;
    }
    Ok(times)
}

/// Returns the duration of `work` in seconds.
fn measure(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    settle()?;
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64())
}
