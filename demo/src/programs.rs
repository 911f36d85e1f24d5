//! Processes of vfleet that the demo starts.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::Context;
use fixture_kube::ControlPlane;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vfleet_api::keys::DEFAULT_NAMESPACE;

/// File with the process ids of a demo that was left running.
const PIDS: &str = "vfleet.pids";

/// Returns the root directory of the project.
pub(crate) fn project() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Processes of vfleet that run during the demo.
pub(crate) struct Programs {
    plane_directory: PathBuf,
    vfleet: PathBuf,
    kubeconfigs: Vec<(&'static str, PathBuf)>,
    keep: bool,
    children: Vec<Child>,
}

impl Programs {
    pub(crate) fn new(plane: &ControlPlane, keep: bool) -> anyhow::Result<Self> {
        let accounts = ["vfleet-operator", "vfleet-sim"];
        let kubeconfigs = accounts.map(|account| {
            Ok((account, plane.kubeconfig_for_service_account(DEFAULT_NAMESPACE, account, None)?))
        });
        let here = std::env::current_exe().context("cannot find the path of the demo program")?;
        Ok(Self {
            plane_directory: plane.directory().to_owned(),
            vfleet: here.with_file_name("vfleet"),
            kubeconfigs: kubeconfigs.into_iter().collect::<anyhow::Result<_>>()?,
            keep,
            children: Vec::new(),
        })
    }

    /// Starts `vfleet` with these arguments as the service account `account`; its log goes to `<name>.log`.
    pub(crate) fn start(&mut self, name: &str, account: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let kubeconfig = self.kubeconfigs.iter().find(|(name, _)| *name == account).map(|(_, path)| path);
        let log = File::create(log_file(&self.plane_directory, name))?;
        let mut command = self.command();
        command.args(arguments).stdout(log.try_clone()?).stderr(log);
        command.env("KUBECONFIG", kubeconfig.context("no kubeconfig for this account")?);
        let child =
            command.spawn().with_context(|| format!("cannot start vfleet {}", arguments.join(" ")))?;
        if self.keep {
            self.record_pid(&child)?;
        }
        self.children.push(child);
        Ok(())
    }

    /// Returns a command that starts vfleet. A process that is to be left running gets its own process group, so that
    /// Ctrl-C does not reach it; any other process is killed when the demo ends.
    fn command(&self) -> Command {
        if self.keep {
            use std::os::unix::process::CommandExt;
            let mut command = Command::new(&self.vfleet);
            command.process_group(0);
            return command;
        }
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig").arg("KILL").arg(&self.vfleet);
        command
    }

    /// Leaves the processes running.
    pub(crate) fn keep(mut self) {
        self.children.clear();
    }

    /// Writes down the id of a process that is to be left running, for [`Programs::stop_kept`].
    fn record_pid(&self, child: &Child) -> anyhow::Result<()> {
        let mut pids = File::options().create(true).append(true).open(self.plane_directory.join(PIDS))?;
        writeln!(pids, "{}", child.id()).context("cannot write down a process id")
    }

    /// Kills the processes that an earlier demo left running, if any.
    pub(crate) fn stop_kept(directory: &Path) -> anyhow::Result<()> {
        let Ok(pids) = std::fs::read_to_string(directory.join(PIDS)) else { return Ok(()) };
        for pid in pids.lines().filter_map(|line| line.parse().ok()) {
            if is_vfleet(pid) {
                kill(Pid::from_raw(pid), Signal::SIGKILL)
                    .with_context(|| format!("cannot kill process {pid}"))?;
            }
        }
        Ok(())
    }
}

/// Returns whether the process is still vfleet, and not another process with the same id.
fn is_vfleet(pid: i32) -> bool {
    let executable = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    // The link of a rebuilt program is "vfleet (deleted)".
    executable.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vfleet"))
}

impl Drop for Programs {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn log_file(directory: &Path, name: &str) -> PathBuf {
    directory.join("logs").join(format!("vfleet-{name}.log"))
}

/// Returns the last lines of the logs, for an error message.
pub(crate) fn logs(plane: &ControlPlane) -> String {
    ["operator", "sim"]
        .map(|name| {
            let text = std::fs::read_to_string(log_file(plane.directory(), name)).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            let end = &lines[lines.len().saturating_sub(15)..];
            format!("--- vfleet {name}\n{}", end.join("\n"))
        })
        .join("\n")
}
