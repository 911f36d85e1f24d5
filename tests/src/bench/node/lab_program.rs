//! Program that runs in the machine of the lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use futures::TryStreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::json;
use vfleet_agent::apply::{ApplyContext, Planner, apply_plan, survey};
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};
use vfleet_host::{Host, HostRoot, LinuxHost};
use vfleet_plan::plan_node;

use crate::bench::cni;

const CARDS: [&str; 2] = ["0000:01:00.0", "0000:02:00.0"];
const VFS: usize = 7;
const DEVICES: &str = "/sys/bus/pci/devices";
const DRIVER: &str = "igbvf";

/// Measurement in the machine of the lab, which is discarded afterwards.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Create VFs on both cards of this machine, by vfleet and by bare writes alternately; print the times in JSON.
    CreateVfs {
        /// Number of repetitions.
        #[arg(long)]
        rounds: usize,
    },
    /// Create an Open vSwitch bridge for each of four cards in switchdev mode, by vfleet and by a bare client
    /// alternately; print the times in JSON.
    CreateBridges {
        /// Number of repetitions.
        #[arg(long)]
        rounds: usize,
    },
    /// Attach VFs to pods and release them, by a CNI plugin and by a bare client alternately; print the times in JSON.
    AttachInPairs {
        /// Plugin `sriov`.
        #[arg(long)]
        plugin: PathBuf,
        /// Number of repetitions.
        #[arg(long)]
        rounds: usize,
    },
    /// Attach pods with a CNI plugin at the same time, more than there are VFs, in turns; print the failures in JSON.
    AttachInTurns {
        /// Plugin `sriov`.
        #[arg(long)]
        plugin: PathBuf,
        /// Number of pods.
        #[arg(long)]
        pods: usize,
    },
    /// Watch a node state and do nothing else, as a minimal client.
    Watch {
        /// Namespace of the node state.
        #[arg(long)]
        namespace: String,
        /// Name of the node state.
        #[arg(long)]
        node: String,
    },
}

/// Times in seconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) bare: Vec<f64>,
    pub(crate) vfleet: Vec<f64>,
}

impl LabCommand {
    /// Runs the measurement; returns the output.
    pub fn run(&self) -> Result<String> {
        match self {
            Self::CreateVfs { rounds } => Ok(serde_json::to_string(&create_vfs(*rounds)?)?),
            Self::CreateBridges { rounds } => {
                Ok(serde_json::to_string(&super::lab_bridges::create_bridges(*rounds)?)?)
            }
            Self::AttachInPairs { plugin, rounds } => {
                Ok(serde_json::to_string(&cni::attach_in_pairs(plugin, *rounds)?)?)
            }
            Self::AttachInTurns { plugin, pods } => {
                Ok(serde_json::to_string(&cni::attach_in_turns(plugin, *pods)?)?)
            }
            Self::Watch { namespace, node } => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(watch(namespace, node))?;
                Ok(String::new())
            }
        }
    }
}

/// Measures creating VFs. The cards must be up, because otherwise their VFs have no link.
fn create_vfs(rounds: usize) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..rounds {
        times.vfleet.push(measure(|| create_by_vfleet(VFS))?.as_secs_f64());
        create_by_vfleet(0)?;
        times.bare.push(measure(create_by_bare_writes)?.as_secs_f64());
        for card in CARDS {
            write(card, "sriov_numvfs", "0")?;
        }
    }
    Ok(times)
}

fn measure(create: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let started = Instant::now();
    create()?;
    let duration = started.elapsed();
    let bound = CARDS.iter().map(|card| bound_vfs(card)).sum::<usize>();
    ensure!(bound == CARDS.len() * VFS, "{bound} VFs are bound");
    Ok(duration)
}

/// Configures both cards with this number of VFs.
fn create_by_vfleet(vfs: usize) -> Result<()> {
    let host = LinuxHost::new(HostRoot::default());
    let interface = |card: &&str| {
        json!({
            "pciAddress": card, "numVfs": vfs,
            "vfGroups": [{
                "resourceName": "all", "deviceType": "netdevice", "vfRange": format!("0-{}", VFS - 1),
                "policyName": "all",
            }],
        })
    };
    let interfaces: Vec<_> = CARDS.iter().filter(|_| vfs > 0).map(interface).collect();
    let spec: SriovNetworkNodeStateSpec = serde_json::from_value(json!({ "interfaces": interfaces }))?;
    configure(&host, &|facts| plan_node(&spec, facts))
}

/// Surveys, plans, executes and verifies, as the agent does.
pub(super) fn configure(host: &dyn Host, planner: Planner<'_>) -> Result<()> {
    let context = ApplyContext { host, node: "lab", planner, one_card_at_a_time: false, listener: &|_| {} };
    let (facts, plan) = survey(context.host, context.planner)?;
    let outcome = apply_plan(&context, facts, plan);
    ensure!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    Ok(())
}

/// Does only the same writes to sysfs, one after the other.
fn create_by_bare_writes() -> Result<()> {
    for card in CARDS {
        write(card, "sriov_drivers_autoprobe", "0")?;
        write(card, "sriov_numvfs", &VFS.to_string())?;
        write(card, "sriov_drivers_autoprobe", "1")?;
        for vf in 0..VFS {
            let address = fs::read_link(vf_path(card, vf)).context("link of the VF")?;
            let address = address.file_name().context("address of the VF")?.to_string_lossy().into_owned();
            fs::write("/sys/bus/pci/drivers_probe", &address).context(address)?;
        }
    }
    Ok(())
}

fn bound_vfs(card: &str) -> usize {
    let is_bound = |vf: &usize| {
        let driver = fs::read_link(vf_path(card, *vf).join("driver")).ok();
        driver.is_some_and(|driver| driver.ends_with(DRIVER))
    };
    (0..VFS).filter(is_bound).count()
}

fn vf_path(card: &str, vf: usize) -> PathBuf {
    Path::new(DEVICES).join(card).join(format!("virtfn{vf}"))
}

fn write(card: &str, file: &str, text: &str) -> Result<()> {
    let path = Path::new(DEVICES).join(card).join(file);
    fs::write(&path, text).with_context(|| path.display().to_string())
}

async fn watch(namespace: &str, node: &str) -> Result<()> {
    let api: Api<SriovNetworkNodeState> = Api::namespaced(Client::try_default().await?, namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    watcher(api, config).default_backoff().touched_objects().try_for_each(async |_| Ok(())).await?;
    Ok(())
}
