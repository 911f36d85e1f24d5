//! TCP ports for programs under test.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// First port to use; lower ports may be used by services.
const FIRST: u16 = 10_000;

/// Usual first port of the ephemeral port range.
const DEFAULT_FIRST_EPHEMERAL: u16 = 32_768;

/// Lock files of the ports of this process. The locks end with the process.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Reserves ports of 127.0.0.1 for this process. They are below the ephemeral range of the kernel, and other tests on
/// this machine do not use them.
pub fn reserve_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = reserve_port()?;
    }
    Ok(ports)
}

fn reserve_port() -> Result<u16> {
    let end = first_ephemeral_port();
    let count = end.saturating_sub(FIRST).max(1);
    // Each process starts at another port, so that the search is short.
    let start = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(count))?;
    let mut candidates = (0..count).map(|step| FIRST + (start + step) % count);
    let found = candidates.find_map(|port| Some((port, lock(port)?)));
    let (port, lock) = found.with_context(|| format!("no port from {FIRST} to {end} is free"))?;
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
    Ok(port)
}

/// Locks a port; returns `None` if it is in use.
fn lock(port: u16) -> Option<File> {
    let folder = std::env::temp_dir().join("vfleet-test-ports");
    std::fs::create_dir_all(&folder).ok()?;
    let file = OpenOptions::new().create(true).append(true).open(folder.join(port.to_string())).ok()?;
    file.try_lock().ok()?;
    // A program that does not use these locks may listen at the port.
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(file)
}

fn first_ephemeral_port() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|first| *first > FIRST).unwrap_or(DEFAULT_FIRST_EPHEMERAL)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

    use super::*;

    #[test]
    fn a_port_is_reserved_only_once() {
        let first: [u16; 8] = reserve_ports().unwrap();
        let second: [u16; 8] = reserve_ports().unwrap();
        let all: std::collections::BTreeSet<_> = first.iter().chain(&second).collect();
        assert_eq!(all.len(), 16, "{first:?} {second:?}");
        assert!(all.iter().all(|port| (FIRST..first_ephemeral_port()).contains(*port)), "{all:?}");
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, first[0])).unwrap();
    }
}
