//! Veth pair between a port of Open vSwitch and a pod.

use vfleet_api::MacAddr;

use crate::fingerprint;
use crate::prelude::*;

/// Start of the names of veth pairs, as of those of other plugins.
const PREFIX: &str = "veth";
/// Length of the part of a name that differs.
const DIGITS: usize = 8;
/// First byte of the MACs: an address of one interface that no manufacturer assigned.
const LOCAL: u8 = 0x02;

/// Ends of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VethEnds {
    /// Name of the end on the host.
    pub(super) host_name: String,
    /// MAC of the end on the host.
    pub(super) host_mac: MacAddr,
    /// MAC of the end in the pod.
    pub(super) mac: MacAddr,
}

/// Returns the ends for an attachment. They are derived from it, so that they are the same in every attempt. `is_taken`
/// returns whether the host, or Open vSwitch, has a name already.
pub(super) fn choose_ends(container_id: &str, interface: &str, is_taken: impl Fn(&str) -> bool) -> VethEnds {
    let ends = |attempt: u32| {
        let attempt = attempt.to_string();
        let digest = |part: &str| fingerprint([part, container_id, interface, attempt.as_str()]);
        let name: String = PREFIX.chars().chain(digest("name").chars().take(DIGITS)).collect();
        VethEnds { host_name: name, host_mac: local_mac(&digest("host")), mac: local_mac(&digest("pod")) }
    };
    let free = (0..u32::MAX).map(ends).find(|ends| !is_taken(&ends.host_name));
    free.unwrap_or_else(|| ends(u32::MAX))
}

/// Returns a local MAC of the digits of a fingerprint.
fn local_mac(digits: &str) -> MacAddr {
    let number = u64::from_str_radix(digits, 16).unwrap_or_default();
    let [_, _, _, a, b, c, d, e] = number.to_be_bytes();
    MacAddr([LOCAL, a, b, c, d, e])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_the_same_in_every_attempt_and_others_for_another_attachment() {
        let first = choose_ends("c1", "net1", |_| false);
        assert_eq!(first, choose_ends("c1", "net1", |_| false));
        assert!(first.host_name.starts_with("veth") && first.host_name.len() == 12, "{first:?}");
        assert!(first.mac.is_usable() && first.host_mac.is_usable() && first.mac != first.host_mac);
        for (container_id, interface) in [("c1", "net2"), ("c2", "net1")] {
            let other = choose_ends(container_id, interface, |_| false);
            assert!(other.host_name != first.host_name && other.mac != first.mac, "{other:?}");
        }
    }

    #[test]
    fn a_name_that_exists_is_not_used() {
        let first = choose_ends("c1", "net1", |_| false).host_name;
        let second = choose_ends("c1", "net1", |name| name == first).host_name;
        let third = choose_ends("c1", "net1", |name| [&first, &second].contains(&&name.to_owned())).host_name;
        assert!(first != second && third != first && third != second);
    }
}
