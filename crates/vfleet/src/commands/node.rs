//! `vfleet node`: one machine, without a cluster. The same planner and the same executor as in a cluster.

mod act;
mod exit;
mod late;
mod machine;
mod policies;
mod report;
mod tables;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use exit::Exit;
use machine::MachineArguments;
use policies::Source;
pub(crate) use policies::{label, wanted_spec};
use report::Report;

/// Look after the network cards of this machine by hand, without a cluster.
///
/// Exit status: 0 when all is as wanted, 1 when something failed, cannot be, cannot be read or is not as it was last
/// wanted, 2 for a mistake on the command line, 3 when nothing was done because somebody would be disturbed, 4 when the
/// machine restarts now, after which the same command is to be run again.
#[derive(Parser)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the cards what policies want. PFs that no policy in the file selects are given back.
    Apply {
        #[command(flatten)]
        wish: WishArguments,
        #[command(flatten)]
        consent: Consent,
        /// How long to wait for cards that are wanted and not there, in seconds: at boot, drivers are loaded meanwhile. 60,
        /// or 0 with --sim.
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u64>,
        /// Only show what would be done, as `vfleet node plan` does.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Show what `apply` would do, and do nothing.
    Plan {
        #[command(flatten)]
        wish: WishArguments,
        #[command(flatten)]
        common: Common,
    },
    /// Show the cards, their VFs, and what is not as it was last wanted.
    Show {
        #[command(flatten)]
        common: Common,
    },
    /// Give back every PF that vfleet configured: without VFs, and without what vfleet changed of the rest.
    Reset {
        #[command(flatten)]
        consent: Consent,
        #[command(flatten)]
        common: Common,
    },
}

/// What is wanted.
#[derive(clap::Args)]
struct WishArguments {
    /// A YAML file of SriovNetworkNodePolicy documents; - for the standard input.
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// A label of this machine, for the policies' nodeSelector. Without any, every nodeSelector matches.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = policies::label)]
    labels: Vec<(String, String)>,
}

/// What may happen to those who use the machine.
#[derive(Clone, Copy, clap::Args)]
pub(super) struct Consent {
    /// Go on also when VFs that exist go away or change under those who use them.
    #[arg(long)]
    pub(super) force: bool,
    /// Restart the machine where that is needed (kernel arguments, firmware).
    #[arg(long)]
    pub(super) allow_reboot: bool,
}

#[derive(clap::Args)]
struct Common {
    #[command(flatten)]
    machine: MachineArguments,
    /// How the result is written.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// For people, or for programs.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Table,
    Json,
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    if std::env::var_os("RUST_LOG").is_some() {
        crate::log::start(crate::log::Format::Text);
    }
    let result = match &arguments.command {
        Command::Apply { wish, common, dry_run: true, .. } | Command::Plan { wish, common } => {
            plan(wish, common)
        }
        Command::Apply { wish, consent, common, wait, dry_run: false } => {
            let patience = wait.map_or_else(|| common.machine.patience(), Duration::from_secs);
            apply(wish, *consent, patience, common)
        }
        Command::Show { common } => show(common),
        Command::Reset { consent, common } => reset(*consent, common),
    };
    result.unwrap_or_else(|error| {
        eprintln!("vfleet: {error:#}");
        Exit::Failed
    })
}

fn plan(wish: &WishArguments, common: &Common) -> anyhow::Result<Exit> {
    let host = common.machine.open()?;
    let source = Source::read(&wish.file, &wish.labels)?;
    print(&act::plan(&*host, &source)?, common.format)
}

fn apply(
    wish: &WishArguments,
    consent: Consent,
    patience: Duration,
    common: &Common,
) -> anyhow::Result<Exit> {
    let (host, _lock) = common.machine.open_to_change("vfleet node apply")?;
    let source = Source::read(&wish.file, &wish.labels)?;
    late::wait(&*host, &source, patience)?;
    print(&act::apply(&*host, &source, consent)?, common.format)
}

fn show(common: &Common) -> anyhow::Result<Exit> {
    let host = common.machine.open()?;
    print(&act::show(&*host)?, common.format)
}

fn reset(consent: Consent, common: &Common) -> anyhow::Result<Exit> {
    let (host, _lock) = common.machine.open_to_change("vfleet node reset")?;
    print(&act::reset(&*host, consent)?, common.format)
}

fn print(report: &Report, format: Format) -> anyhow::Result<Exit> {
    let text = match format {
        Format::Table => tables::text(report),
        Format::Json => serde_json::to_string_pretty(report)? + "\n",
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(report.exit)
}
