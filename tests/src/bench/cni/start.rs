//! Start of the program on this machine: VERSION, compared with a program that does nothing.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::bench::operator::median;
use crate::bench::process;
use crate::bench::report::{Figure, Limit, Row, Unit};

/// Starts of each program.
const STARTS: usize = 500;
/// Program that does nothing.
const TRUE: &str = "/bin/true";

pub(super) fn rows(program: &Path) -> Result<Vec<Row>> {
    let (mut bare, mut vfleet) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        bare.push(run(&mut Command::new(TRUE))?.0);
        let (seconds, output) = run(&mut version(program))?;
        ensure!(output.contains("supportedVersions"), "no answer to VERSION: {output}");
        vfleet.push(seconds);
    }
    let bare = median(bare);
    let row = |what, unit, vfleet, limit| Row {
        what,
        nodes: 1,
        unit,
        bare: None,
        vfleet: Some(Figure::Is(vfleet)),
        go: None,
        limit: Some(limit),
    };
    let size = f64::from(u32::try_from(program.metadata()?.len())?);
    let time = Limit { text: "1.5x /bin/true + 1 ms".to_owned(), maximum: 1.5 * bare + 1e-3 };
    let peak = Limit { text: "3 MB".to_owned(), maximum: 3e6 };
    let length = Limit { text: "6 MB".to_owned(), maximum: 6e6 };
    Ok(vec![
        Row { bare: Some(bare), ..row("VERSION from start to exit", Unit::Time, median(vfleet), time) },
        row("  peak memory (RSS)", Unit::Bytes, measure_peak_memory(program)?, peak),
        row("  file of the program", Unit::Bytes, size, length),
    ])
}

/// Returns the command by which a runtime asks the plugin `sriov` for its versions.
fn version(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("sriov").env("CNI_COMMAND", "VERSION");
    command
}

/// Runs a program; returns the seconds from its start to its exit, and its output.
fn run(command: &mut Command) -> Result<(f64, String)> {
    command.stdin(Stdio::null());
    let started = Instant::now();
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let seconds = started.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{command:?} failed: {}", output.status);
    Ok((seconds, String::from_utf8(output.stdout)?))
}

/// Returns the peak memory of VERSION in bytes. It is read at the moment of exit, with ptrace(2): the usage that wait4(2)
/// reports includes the memory that this process, which is larger, shares with the new one until exec.
fn measure_peak_memory(program: &Path) -> Result<f64> {
    let mut child = Command::new("sh")
        .args(["-c", "read -r line; exec \"$0\" sriov"])
        .arg(program)
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("sh")?;
    let peak = trace_exit(&mut child);
    if peak.is_err() {
        // It may wait for its input. Fails only if it has ended already.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let peak = peak.context("could not trace the program")?;
    ensure!(status.success(), "VERSION failed: {status}");
    Ok(peak)
}

/// Lets a shell that waits for a line execute the program; returns the peak memory of the program.
fn trace_exit(child: &mut Child) -> Result<f64> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACEEXIT)?;
    child.stdin.take().context("no input")?.write_all(b"\n")?;
    match waitpid(pid, None)? {
        WaitStatus::PtraceEvent(..) => {
            let memory = process::memory(child.id());
            ptrace::cont(pid, None)?;
            Ok(memory?.peak)
        }
        other => bail!("{other:?} instead of its exit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_memory_of_a_program_is_its_own() {
        let own = process::memory(std::process::id()).unwrap().peak;
        let peak = measure_peak_memory(Path::new(TRUE)).unwrap();
        assert!(peak > 0.0 && peak < own, "{peak}, of this process {own}");
    }
}
