//! `make demo`: a real control plane, the real operator, and five simulated nodes in two pools. The nodes get VFs, pods use
//! them, and later changes drain the nodes within the limits of their pools.

mod fleet;
mod fleet_view;
mod programs;
mod scenario;
mod screen;
mod tables;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Parser;
use fixture_kube::{ControlPlane, Options};

use programs::Programs;
use screen::Screen;

/// Show how five simulated nodes in two pools get VFs, and are drained for changes
#[derive(Parser)]
struct Arguments {
    /// Leave everything running at the end
    #[arg(long)]
    keep: bool,
    /// Only stop what an earlier demo left running
    #[arg(long)]
    stop: bool,
    /// Directory for the state of a demo that is left running
    #[arg(long, value_name = "DIRECTORY")]
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

fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut screen = Screen::new();
    stop(arguments).context("cannot stop an earlier demo that was left running")?;

    screen.print_step("starting a Kubernetes control plane on loopback (about 5 s)");
    let plane = ControlPlane::start(Options { keep: arguments.keep.then(|| arguments.dir.clone()) })?;
    let result = tokio::runtime::Runtime::new()?.block_on(scenario::run(&mut screen, &plane, arguments.keep));
    let programs = result.inspect_err(|_| {
        eprintln!("{}", programs::logs(&plane));
        if arguments.keep {
            eprintln!("demo: the cluster is still running; `make demo-stop` stops it");
        }
    })?;

    let seconds = started.elapsed().as_secs();
    if arguments.keep {
        programs.keep();
        screen.print_step(&format!(
            "done in {seconds} s; the cluster is left running, `make demo-stop` stops it"
        ));
        screen.print(&scenario::suggestions(&plane)?);
    } else {
        screen.print_step(&format!("done in {seconds} s; `KEEP=1 make demo` leaves the cluster running"));
    }
    Ok(())
}
