//! `make demo`: a real control plane, the real operator, five simulated nodes; a policy becomes VFs, live.

mod fleet_view;
mod programs;
mod screen;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use fixture_kube::{ControlPlane, Options};
use futures::StreamExt;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::keys::DEFAULT_NAMESPACE;

use fleet_view::FleetView;
use programs::Programs;
use screen::Screen;

const NODES: [&str; 5] = ["node-a", "node-b", "node-c", "node-d", "node-e"];
const PF: &str = "ens1f0";
const WANTED_VFS: usize = 8;

/// A roll-out takes seconds; a demo that stands still for so long is broken and must say so.
const DEADLINE: Duration = Duration::from_mins(1);

/// Shows a policy become VFs on five simulated nodes.
#[derive(Parser)]
struct Arguments {
    /// Leave everything running at the end.
    #[arg(long)]
    keep: bool,
    /// End what an earlier demo left running, and do nothing else.
    #[arg(long)]
    stop: bool,
    /// Where a demo that is left running keeps its state.
    #[arg(long)]
    dir: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = if arguments.stop { stop(&arguments) } else { show(&arguments) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn stop(arguments: &Arguments) -> anyhow::Result<()> {
    Programs::stop_kept(&arguments.dir)?;
    ControlPlane::stop_detached(&arguments.dir)
}

const POLICIES: &str = "sriovnetworknodepolicies";

fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut screen = Screen::new();
    stop(arguments).context("cannot end an earlier demo that was left running")?;

    screen.say("starting a Kubernetes control plane on loopback (about 5 s)");
    let plane = ControlPlane::start(Options { keep: arguments.keep.then(|| arguments.dir.clone()) })?;
    let programs = tell(&mut screen, &plane, arguments).inspect_err(|_| {
        if arguments.keep {
            eprintln!("demo: what was started is still there; `make demo-stop` ends it");
        }
    })?;

    let seconds = started.elapsed().as_secs();
    if arguments.keep {
        programs.keep();
        screen.say(&format!("done in {seconds} s; the cluster is left running, `make demo-stop` ends it"));
        screen.say("to look around:");
        let kubectl = fixture_kube::assets()?.join("kubectl");
        screen.print(&format!(
            "    export KUBECONFIG={}\n    {} -n {DEFAULT_NAMESPACE} get sriovnetworknodestates,sriovnetworknodepolicies\n",
            plane.kubeconfig().display(),
            kubectl.display()
        ));
    } else {
        screen.say(&format!("done in {seconds} s; `KEEP=1 make demo` leaves the cluster running"));
    }
    Ok(())
}

/// The story of the demo.
fn tell(screen: &mut Screen, plane: &ControlPlane, arguments: &Arguments) -> anyhow::Result<Programs> {
    screen.say("installing the CustomResourceDefinitions and roles");
    plane.apply_crds(&programs::project().join("deploy/crds"))?;
    for file in ["deploy/rbac.yaml", "deploy/node-scope.yaml", "deploy/sim-rbac.yaml"] {
        apply(plane, file)?;
    }

    screen.say("starting the operator and five simulated nodes, each with two SR-IOV ports");
    let mut programs = Programs::new(plane, arguments.keep)?;
    // The ports for metrics and probes may be somebody else's on this machine.
    let operator = ["operator", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"];
    programs.start("operator", "vfleet-operator", &operator)?;
    let machine = programs::project().join("demo/machine.yaml").display().to_string();
    let names = NODES.join(",");
    programs.start(
        "sim",
        "vfleet-sim",
        &["sim", "--names", &names, "--machine", &machine, "--step-time", "100"],
    )?;

    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(watch_until(plane, screen, "the nodes report their cards", FleetView::all_report))?;

    screen.say("applying demo/policies.yaml: 8 VFs on the first port, half for the kernel, half for DPDK");
    apply(plane, "demo/policies.yaml")?;
    runtime.block_on(watch_until(plane, screen, "all nodes have their VFs", FleetView::all_done))?;

    screen.say("what kubectl shows:");
    let policies =
        ["-n", DEFAULT_NAMESPACE, "wait", "--for=condition=Ready", "--timeout=30s", "--all", POLICIES];
    plane.kubectl(&policies)?.into_stdout()?;
    for kind in [POLICIES, "sriovnetworknodestates"] {
        screen.print(&plane.kubectl(&["-n", DEFAULT_NAMESPACE, "get", kind])?.into_stdout()?);
    }
    screen.say("the VFs of node-a:");
    screen.print(&vf_list(plane)?);
    Ok(programs)
}

fn apply(plane: &ControlPlane, file: &str) -> anyhow::Result<()> {
    let path = programs::project().join(file).display().to_string();
    plane.kubectl(&["apply", "--server-side", "-f", &path])?.into_stdout().map(drop)
}

/// Follows the node states on the screen until `done`.
async fn watch_until(
    plane: &ControlPlane,
    screen: &mut Screen,
    what: &str,
    done: fn(&FleetView) -> bool,
) -> anyhow::Result<()> {
    let states: Api<SriovNetworkNodeState> = Api::namespaced(plane.client().await?, DEFAULT_NAMESPACE);
    let mut changes = watcher(states, watcher::Config::default()).default_backoff().boxed();
    let mut view = FleetView::new(&NODES, PF, WANTED_VFS);
    let follow = async {
        while !done(&view) {
            let Some(event) = changes.next().await else { bail!("the watch ended") };
            // The watcher goes on after an error by itself.
            if let Some(line) = event.ok().and_then(|event| view.take(event)) {
                screen.update(&line, &view.table());
            }
        }
        screen.finish_table();
        Ok(())
    };
    tokio::time::timeout(DEADLINE, follow).await.unwrap_or_else(|_| {
        bail!("after {} s not yet: {what}\n{}", DEADLINE.as_secs(), programs::logs(plane))
    })
}

fn vf_list(plane: &ControlPlane) -> anyhow::Result<String> {
    let columns = concat!(
        "jsonpath={range .status.interfaces[0].Vfs[*]}",
        "{'    VF '}{.vfID}{'  '}{.pciAddress}{'  '}{.driver}{'\\t'}{.mac}{'  '}{.name}{'\\n'}{end}"
    )
    .replace('\'', "\"");
    plane
        .kubectl(&["-n", DEFAULT_NAMESPACE, "get", "sriovnetworknodestates", NODES[0], "-o", &columns])?
        .into_stdout()
}
