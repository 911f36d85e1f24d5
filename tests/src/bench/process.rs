//! What a process has used so far, as the kernel counts it.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// CPU time of all threads, also of those that have ended, to the nanosecond.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(clock.now()?.into())
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: f64,
    pub(crate) most: f64,
}

/// Memory that the process has, and the most that it ever had.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(Memory { now: kilobytes(&status, "VmRSS:")?, most: kilobytes(&status, "VmHWM:")? })
}

fn kilobytes(status: &str, key: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next());
    let number = number.with_context(|| format!("{key} is missing in the process's status"))?;
    Ok(number.parse::<f64>()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let status = "Name:\tvfleet\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert!((kilobytes(status, "VmRSS:").unwrap() - 1_048_576.0).abs() < 1.0);
        assert!((kilobytes(status, "VmHWM:").unwrap() - 2_097_152.0).abs() < 1.0);
        assert!(kilobytes(status, "VmSwap:").is_err());
    }

    #[test]
    fn this_process_has_used_something() {
        assert!(cpu_time(std::process::id()).unwrap() > Duration::ZERO);
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.now > 0.0 && memory.most >= memory.now);
    }
}
