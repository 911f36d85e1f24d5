//! `vfleet install-cni`: installs the CNI plugins in the directory of the container runtime, or removes them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use clap::builder::PossibleValuesParser;
use vfleet_host::{
    CniDirectory, HostRoot, ProgramChange, ProgramOutcome, ProgramRemoval, format_error_chain,
};
use vfleet_plan::cni::programs::{PLUGIN_NAMES, PROGRAM, ProgramOrigin};

/// Executable of this process.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Text after the options.
const EXIT_STATUS: &str = "\
Exit status:
  0  all programs are installed, or removed
  1  a file could not be read, written or removed; the others are installed or removed
  2  invalid command line
  3  programs of other projects were left (see --tolerate-foreign), or pods still need the programs (--remove)";

/// Install the CNI plugins on this machine, or remove them
///
/// Installs vfleet-cni under the name of each plugin and under its own. Each file is replaced at once, also while the old
/// one is running, and is left alone if it is up to date. Programs of the Go projects (sriov-cni, ib-sriov-cni, rdma-cni,
/// ovs-cni, accelerated-bridge-cni) with these names are replaced, other programs are left.
#[derive(Parser)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct InstallCniArguments {
    /// Directory of CNI plugins on the host
    #[arg(long, value_name = "DIRECTORY", value_parser = parse_directory)]
    dir: String,
    /// Remove the programs of vfleet instead, unless a pod is attached that only they can detach
    #[arg(long, conflicts_with_all = ["program", "skip", "tolerate_foreign"])]
    remove: bool,
    /// Program to install [default: vfleet-cni beside this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Plugin that is not installed, because another program provides it; may be repeated
    #[arg(long, value_name = "PLUGIN", value_parser = PossibleValuesParser::new(PLUGIN_NAMES))]
    skip: Vec<String>,
    /// Exit with 0 if programs of other projects were left; the agent of the node reports them
    #[arg(long)]
    tolerate_foreign: bool,
    /// Directory where the root file system of the host is mounted
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    host_root: PathBuf,
}

fn parse_directory(text: &str) -> Result<String, &'static str> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("expected an absolute path") }
}

/// Exit status, the worst of all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InstallStatus {
    /// All programs are installed or removed.
    Done,
    /// Programs were left.
    Left,
    /// A file could not be read, written or removed.
    Failed,
}

impl From<InstallStatus> for ExitCode {
    fn from(status: InstallStatus) -> Self {
        // clap uses 2 for an invalid command line.
        Self::from(match status {
            InstallStatus::Done => 0,
            InstallStatus::Failed => 1,
            InstallStatus::Left => 3,
        })
    }
}

pub(crate) fn run(arguments: &InstallCniArguments) -> InstallStatus {
    let directory = CniDirectory::new(HostRoot::new(&arguments.host_root), &arguments.dir);
    let result = if arguments.remove { remove(&directory) } else { install(&directory, arguments) };
    result.unwrap_or_else(|error| {
        eprintln!("vfleet: {error:#}");
        InstallStatus::Failed
    })
}

fn install(directory: &CniDirectory, arguments: &InstallCniArguments) -> anyhow::Result<InstallStatus> {
    let program = arguments.program.clone().map_or_else(find_program, Ok)?;
    let outcomes = directory.install(&program, &arguments.skip)?;
    let status = print(&outcomes, |path, _| {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        // The program itself cannot be skipped.
        let skip = if name == PROGRAM { String::new() } else { format!(", or use --skip {name}") };
        eprintln!(
            "vfleet: {path} was left, because it is neither a program of vfleet nor of the Go SR-IOV projects: move it away \
             and run this command again{skip}"
        );
        if arguments.tolerate_foreign { InstallStatus::Done } else { InstallStatus::Left }
    })?;
    Ok(status)
}

fn remove(directory: &CniDirectory) -> anyhow::Result<InstallStatus> {
    match directory.remove()? {
        ProgramRemoval::Removed(outcomes) => print(&outcomes, |path, origin| {
            eprintln!("vfleet: {path} was left, because it is {origin}");
            InstallStatus::Done
        }),
        ProgramRemoval::Kept(attachments) => {
            eprintln!(
                "vfleet: nothing was removed, because pods are attached that only these programs can detach: delete the pods \
                 and run this command again"
            );
            for attachment in attachments {
                eprintln!("  {attachment}");
            }
            Ok(InstallStatus::Left)
        }
    }
}

/// Prints the outcomes. `report_left` prints that a file was left, and returns what that means for the exit status.
fn print(
    outcomes: &[ProgramOutcome],
    report_left: impl Fn(&str, &ProgramOrigin) -> InstallStatus,
) -> anyhow::Result<InstallStatus> {
    let mut worst = InstallStatus::Done;
    let mut out = std::io::stdout();
    for ProgramOutcome { path, result } in outcomes {
        let status = match result {
            Ok(ProgramChange::Left(origin)) => report_left(path, origin),
            Ok(change) => {
                writeln!(out, "{path}: {}", describe(change))?;
                InstallStatus::Done
            }
            Err(error) => {
                eprintln!("vfleet: {path}: {}", format_error_chain(error));
                InstallStatus::Failed
            }
        };
        worst = worst.max(status);
    }
    Ok(worst)
}

fn describe(change: &ProgramChange) -> String {
    match change {
        ProgramChange::Written(None) => "installed".to_owned(),
        ProgramChange::Written(Some(origin)) => format!("replaced {origin}"),
        ProgramChange::Unchanged => "up to date".to_owned(),
        ProgramChange::Removed => "removed".to_owned(),
        ProgramChange::Left(origin) => format!("left {origin}"),
    }
}

/// Returns the path of `vfleet-cni` beside this program.
fn find_program() -> anyhow::Result<PathBuf> {
    let this = std::fs::read_link(THIS_PROGRAM)
        .with_context(|| format!("cannot find {PROGRAM}, because {THIS_PROGRAM} cannot be read"))?;
    Ok(this.with_file_name(PROGRAM))
}
