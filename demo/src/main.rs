//! `make demo`: a real control plane, the real operator, five simulated nodes in two pools. They get VFs, pods use them,
//! and changes that take VFs from pods wait for their turn, live.

mod drawing;
mod fleet;
mod picture;
mod programs;
mod screen;
mod story;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Parser;
use fixture_kube::{ControlPlane, Options};

use programs::Programs;
use screen::Screen;

/// Shows five simulated nodes in two pools get VFs, and be drained for other ones.
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

fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut screen = Screen::new();
    stop(arguments).context("cannot end an earlier demo that was left running")?;

    screen.say("starting a Kubernetes control plane on loopback (about 5 s)");
    let plane = ControlPlane::start(Options { keep: arguments.keep.then(|| arguments.dir.clone()) })?;
    let told = tokio::runtime::Runtime::new()?.block_on(story::tell(&mut screen, &plane, arguments.keep));
    let programs = told.inspect_err(|_| {
        eprintln!("{}", programs::logs(&plane));
        if arguments.keep {
            eprintln!("demo: what was started is still there; `make demo-stop` ends it");
        }
    })?;

    let seconds = started.elapsed().as_secs();
    if arguments.keep {
        programs.keep();
        screen.say(&format!("done in {seconds} s; the cluster is left running, `make demo-stop` ends it"));
        screen.print(&story::what_to_try(&plane)?);
    } else {
        screen.say(&format!("done in {seconds} s; `KEEP=1 make demo` leaves the cluster running"));
    }
    Ok(())
}
