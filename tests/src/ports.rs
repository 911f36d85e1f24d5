//! Ports for programs that are told where to listen.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// Below it are ports that others listen at.
const FIRST: u16 = 10_000;

/// Where the kernel's own choice usually begins.
const USUAL_FIRST_OF_THE_KERNEL: u16 = 32_768;

/// Whoever holds the lock of a port has it. Locks end with the process.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Ports of 127.0.0.1 for this process alone. The kernel gives none of them to a connection that goes out, and other
/// tests on this machine take others.
pub fn own_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = own_port()?;
    }
    Ok(ports)
}

fn own_port() -> Result<u16> {
    let end = first_of_the_kernel();
    let count = end.saturating_sub(FIRST).max(1);
    // Each process begins elsewhere, so that few have to look for long.
    let start = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(count))?;
    let mut candidates = (0..count).map(|step| FIRST + (start + step) % count);
    let found = candidates.find_map(|port| Some((port, lock(port)?)));
    let (port, lock) = found.with_context(|| format!("no port from {FIRST} to {end} is free"))?;
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
    Ok(port)
}

/// `None` when somebody else has it.
fn lock(port: u16) -> Option<File> {
    let folder = std::env::temp_dir().join("vfleet-test-ports");
    std::fs::create_dir_all(&folder).ok()?;
    let file = OpenOptions::new().create(true).append(true).open(folder.join(port.to_string())).ok()?;
    file.try_lock().ok()?;
    // Somebody who knows nothing of these locks may listen there.
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(file)
}

fn first_of_the_kernel() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|first| *first > FIRST).unwrap_or(USUAL_FIRST_OF_THE_KERNEL)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

    use super::*;

    #[test]
    fn nobody_gets_a_port_that_somebody_has() {
        let first: [u16; 8] = own_ports().unwrap();
        let second: [u16; 8] = own_ports().unwrap();
        let all: std::collections::BTreeSet<_> = first.iter().chain(&second).collect();
        assert_eq!(all.len(), 16, "{first:?} {second:?}");
        assert!(all.iter().all(|port| (FIRST..first_of_the_kernel()).contains(*port)), "{all:?}");
        let _listens = TcpListener::bind((Ipv4Addr::LOCALHOST, first[0])).unwrap();
    }
}
