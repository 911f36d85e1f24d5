//! Resources that a process has used.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// Returns the CPU time of all threads, including those that have ended.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(clock.now()?.into())
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: f64,
    pub(crate) peak: f64,
}

/// Reads the current and the peak memory of a process.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("could not read {path}"))?;
    Ok(Memory { now: parse_kilobytes(&status, "VmRSS:")?, peak: parse_kilobytes(&status, "VmHWM:")? })
}

fn parse_kilobytes(status: &str, key: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next());
    let number = number.with_context(|| format!("{key} is missing in the status of the process"))?;
    Ok(number.parse::<f64>()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_parsed() {
        let status = "Name:\tvfleet\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert!((parse_kilobytes(status, "VmRSS:").unwrap() - 1_048_576.0).abs() < 1.0);
        assert!((parse_kilobytes(status, "VmHWM:").unwrap() - 2_097_152.0).abs() < 1.0);
        assert!(parse_kilobytes(status, "VmSwap:").is_err());
    }

    #[test]
    fn this_process_has_used_cpu_time_and_memory() {
        assert!(cpu_time(std::process::id()).unwrap() > Duration::ZERO);
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.now > 0.0 && memory.peak >= memory.now);
    }
}
