//! Waiting for a card's carrier.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;
use vfleet_host::{Host, HostRoot, LinuxHost};

use super::tools::failed;
use super::witness::{IpLink, link_of, links};
use crate::contract::bench::{Shown, Stop};

/// Half a second on a machine that is not busy.
const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until a card that is up has its carrier. It loses it when it is set up and whenever its MTU changes, and
/// until it is back igb knows no speed: that fact changes when it comes, and a highest rate of a VF is refused (EINVAL).
pub(super) fn wait_for(pf: PciAddress) -> Shown {
    if is_there(pf)? {
        return Ok(());
    }
    let (sender, woken) = mpsc::channel();
    let _watch = LinuxHost::new(HostRoot::default()).on_change(Box::new(move || {
        let _ = sender.send(());
    }))?;
    let deadline = Instant::now() + DEADLINE;
    while !is_there(pf)? {
        let left = deadline.saturating_duration_since(Instant::now());
        let too_late = |_| failed(&pf.to_string(), &format!("no carrier for {DEADLINE:?} although it is up"));
        woken.recv_timeout(left).map_err(too_late)?;
    }
    Ok(())
}

/// The driver has noticed it: the card's registers tell a moment earlier.
fn is_there(pf: PciAddress) -> Result<bool, Stop> {
    Ok(link_of(&links()?, pf).is_some_and(IpLink::has_carrier))
}
