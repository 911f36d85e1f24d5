//! `vfleet node`: configuration of one machine without a cluster, with the planner and the executor of the agent.

mod actions;
mod exit;
mod machine;
mod missing_cards;
mod pods;
mod policies;
mod report;
mod tables;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use exit::ExitStatus;
use machine::MachineArguments;
use policies::PolicySource;
pub(crate) use policies::{desired_spec, parse_label};
use report::Report;
use serde::Serialize;

/// Text after the options.
const EXIT_STATUS: &str = "\
Exit status:
  0  all cards are configured as the policies request; pods: every pod has its devices, and nothing is left behind
  1  a step failed, a policy cannot be followed, a card cannot be read, or a card differs from its last configuration;
     pods: something is left behind of a pod, or an attachment cannot be read
  2  invalid command line
  3  refused: VFs in use would change or the machine would reboot (see --force and --allow-reboot)
  4  the machine reboots now: run the command again afterwards";

/// Configure the network cards of this machine without a cluster
#[derive(Parser)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct NodeArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Configure the cards as policies request, and reset the PFs that no policy selects any more
    Apply {
        #[command(flatten)]
        policies: PolicyArguments,
        /// Seconds to wait for missing cards, whose drivers may still be loaded at boot [default: 60, or 0 with --sim]
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u64>,
        /// Print the steps without executing them, like vfleet node plan
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        allowed: AllowedDisruption,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Print the steps that apply would execute
    Plan {
        #[command(flatten)]
        policies: PolicyArguments,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Print the cards, their VFs, and differences from their last configuration
    Show {
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Print which pod has which VF with which settings, and what is left behind of pods that are gone
    Pods {
        /// Release what is left behind: devices and IP addresses of pods that are gone, and of plugins that were killed
        ///
        /// Also beside an agent: it changes nothing that a running pod has, or that another process works on.
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Reset every PF that vfleet configured: remove its VFs and restore its original settings
    Reset {
        #[command(flatten)]
        allowed: AllowedDisruption,
        #[command(flatten)]
        common: CommonArguments,
    },
}

/// Policies and labels.
#[derive(clap::Args)]
struct PolicyArguments {
    /// YAML file with SriovNetworkNodePolicy documents; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Label of this machine for nodeSelector, may be repeated; without labels every nodeSelector matches
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = policies::parse_label)]
    labels: Vec<(String, String)>,
}

/// Disruption that the user allows.
#[derive(Clone, Copy, clap::Args)]
#[command(next_help_heading = "Disruption")]
pub(super) struct AllowedDisruption {
    /// Execute steps that change or remove VFs which may be in use
    #[arg(long)]
    pub(super) force: bool,
    /// Reboot the machine if that is needed (kernel arguments, firmware)
    #[arg(long)]
    pub(super) allow_reboot: bool,
}

/// Options of all subcommands.
#[derive(clap::Args)]
struct CommonArguments {
    #[command(flatten)]
    machine: MachineArguments,
    /// Output format
    #[arg(short = 'o', long, value_name = "FORMAT", help_heading = "Output", value_enum, default_value_t)]
    format: OutputFormat,
}

impl CommonArguments {
    fn read_policies(&self, policies: &PolicyArguments) -> anyhow::Result<PolicySource> {
        let source = PolicySource::read(&policies.file, &policies.labels)?;
        Ok(source.with_bridges(self.machine.options().manage_bridges))
    }
}

/// Format of the report.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum OutputFormat {
    #[default]
    Table,
    Json,
}

pub(crate) fn run(arguments: &NodeArguments) -> ExitStatus {
    if std::env::var_os("RUST_LOG").is_some() {
        crate::log::start(crate::log::LogFormat::Text);
    }
    let result = match &arguments.command {
        Command::Apply { policies, common, dry_run: true, .. } | Command::Plan { policies, common } => {
            plan(policies, common)
        }
        Command::Apply { policies, allowed, common, wait, dry_run: false } => {
            let timeout = wait.map_or_else(|| common.machine.card_timeout(), Duration::from_secs);
            apply(policies, *allowed, timeout, common)
        }
        Command::Show { common } => show(common),
        Command::Pods { repair, common } => pods(*repair, common),
        Command::Reset { allowed, common } => reset(*allowed, common),
    };
    result.unwrap_or_else(|error| {
        eprintln!("vfleet: {error:#}");
        ExitStatus::Failed
    })
}

fn plan(policies: &PolicyArguments, common: &CommonArguments) -> anyhow::Result<ExitStatus> {
    let host = common.machine.open()?;
    let source = common.read_policies(policies)?;
    print(&actions::plan(&*host, &source, common.machine.options())?, common.format)
}

fn apply(
    policies: &PolicyArguments,
    allowed: AllowedDisruption,
    timeout: Duration,
    common: &CommonArguments,
) -> anyhow::Result<ExitStatus> {
    let (host, _lock) = common.machine.open_to_change("vfleet node apply")?;
    let source = common.read_policies(policies)?;
    missing_cards::wait(&*host, &source, timeout)?;
    print(&actions::apply(&*host, &source, common.machine.options(), allowed)?, common.format)
}

fn show(common: &CommonArguments) -> anyhow::Result<ExitStatus> {
    let host = common.machine.open()?;
    print(&actions::show(&*host)?, common.format)
}

fn pods(repair: bool, common: &CommonArguments) -> anyhow::Result<ExitStatus> {
    let report = if repair {
        pods::repair(&*common.machine.open_to_repair()?, common.machine.runs_programs())?
    } else {
        pods::list(&*common.machine.open()?)?
    };
    print_as(&report, tables::format_pods, common.format)?;
    Ok(report.exit)
}

fn reset(allowed: AllowedDisruption, common: &CommonArguments) -> anyhow::Result<ExitStatus> {
    let (host, _lock) = common.machine.open_to_change("vfleet node reset")?;
    print(&actions::reset(&*host, allowed)?, common.format)
}

fn print(report: &Report, format: OutputFormat) -> anyhow::Result<ExitStatus> {
    print_as(report, tables::format_report, format)?;
    Ok(report.exit)
}

fn print_as<T: Serialize>(
    report: &T,
    to_tables: impl FnOnce(&T) -> String,
    format: OutputFormat,
) -> anyhow::Result<()> {
    let text = match format {
        OutputFormat::Table => to_tables(report),
        OutputFormat::Json => serde_json::to_string_pretty(report)? + "\n",
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
