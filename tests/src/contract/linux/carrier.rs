//! Carrier of a card.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;
use vfleet_host::{Host, HostRoot, LinuxHost};

use super::observer::{IpLink, link_of, read_links};
use super::tools::failed;
use crate::contract::testbed::{CaseError, CaseResult};

/// Deadline for the carrier, which takes about 0.5 s on an idle machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until a card that is up has a carrier.
///
/// The carrier is lost when the link is set up and when the MTU changes. Without a carrier igb reports no speed, and
/// refuses a maximum rate of a VF with EINVAL.
pub(super) fn wait_for(pf: PciAddress) -> CaseResult {
    if has_carrier(pf)? {
        return Ok(());
    }
    let (sender, woken) = mpsc::channel();
    let _watch = LinuxHost::new(HostRoot::default()).on_change(Box::new(move || {
        let _ = sender.send(());
    }))?;
    let deadline = Instant::now() + DEADLINE;
    while !has_carrier(pf)? {
        let left = deadline.saturating_duration_since(Instant::now());
        let timed_out = |_| {
            failed(&pf.to_string(), &format!("no carrier {} s after the link was set up", DEADLINE.as_secs()))
        };
        woken.recv_timeout(left).map_err(timed_out)?;
    }
    Ok(())
}

/// Returns whether the driver reports a carrier. The registers of the card show it slightly earlier.
fn has_carrier(pf: PciAddress) -> Result<bool, CaseError> {
    Ok(link_of(&read_links()?, pf).is_some_and(IpLink::has_carrier))
}
