//! Pause before unknown facts are read again, where no event announces that they can be read.

use core::time::Duration;

use crate::facts::{ExternalQuery, FailedQuery, HostFacts};

/// udev is quick, and a program that reads the machine gets no event when udev has named an interface.
const UNTIL_NAMED: Duration = Duration::from_secs(1);
/// The metadata service of a cloud that did not answer is not asked again earlier.
const UNTIL_ANSWERED: Duration = Duration::from_secs(61);
/// A directory that cannot be read often causes no event when it can be read again.
const UNTIL_REPAIRED: Duration = Duration::from_mins(1);

/// Returns the pause after which `facts` are to be read again; `None` when they have no unknown fact of that kind.
pub fn reread_after(facts: &HostFacts) -> Option<Duration> {
    let mut links = facts.pfs.iter().filter_map(|pf| pf.link.as_ref());
    let is_network = |failed: &FailedQuery| failed.query == ExternalQuery::Network;
    if links.any(|link| !link.is_named) {
        Some(UNTIL_NAMED)
    } else if facts.unread_attachments.is_some() {
        Some(UNTIL_REPAIRED)
    } else {
        facts.failed_queries.iter().any(is_network).then_some(UNTIL_ANSWERED)
    }
}
