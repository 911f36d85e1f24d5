//! Events of Linux bridges: which of them change the facts of the machine.
//!
//! Every port that a pod gets or gives up changes a bridge of the node's network, which does not concern vfleet. Events
//! of learned addresses and of multicast groups are in other multicast groups of netlink and are not received at all.

use std::collections::BTreeMap;
use std::sync::Mutex;

use vfleet_plan::LinuxBridgeFacts;

use super::cache::lock;
use super::netlink::rtnl::{BridgeEvent, BridgeInfo, Link, RTM_DELLINK, Rtnl};
use super::stable_read::read_stable;
use crate::format_error_chain;

/// Linux bridges of the machine by index, as the last events described them.
#[derive(Debug, Default)]
pub(super) struct BridgeWatch(Mutex<BTreeMap<u32, KnownBridge>>);

/// Part of the facts of a bridge that its own events report.
#[derive(Debug, PartialEq, Eq)]
struct KnownBridge {
    name: String,
    alias: Option<String>,
    group: Option<u32>,
    info: BridgeInfo,
    mtu: u32,
    is_up: bool,
}

impl KnownBridge {
    /// Returns the bridge that an interface is; `None` if it is another interface.
    fn of(link: Link) -> Option<(u32, Self)> {
        let Link { index, name, alias, group, bridge, mtu, is_up, .. } = link;
        Some((index, Self { name, alias, group, info: bridge?, mtu, is_up }))
    }

    /// Returns whether vfleet may have created the bridge.
    fn may_be_ours(&self) -> bool {
        let has_prefix = |alias: &String| alias.starts_with(LinuxBridgeFacts::ALIAS_PREFIX);
        self.alias.as_ref().is_some_and(has_prefix) || self.group == Some(LinuxBridgeFacts::NEW_GROUP)
    }
}

impl BridgeWatch {
    /// Reads the bridges of the machine, so that changes of ports of other bridges are not relevant. Called after the
    /// subscription to events and after lost events, so that no change is missed.
    pub(super) fn learn(&self) {
        let links = read_stable(|| Rtnl::open()?.links()).unwrap_or_else(|error| {
            // Ports of unknown bridges are relevant.
            let error = format_error_chain(&error);
            tracing::warn!(error, "cannot read the Linux bridges, more events than necessary are processed");
            Vec::new()
        });
        *lock(&self.0) = links.into_iter().filter_map(KnownBridge::of).collect();
    }

    /// Returns whether a link message of this type may change the facts of a bridge or of a port of our bridges; `None`
    /// if it is not about a bridge. A bridge of somebody else is relevant if it appears, vanishes or changes, since its
    /// name may be the one that vfleet needs. Its ports are not.
    pub(super) fn is_relevant(&self, kind: u16, payload: &[u8]) -> Option<bool> {
        let mut known = lock(&self.0);
        if let Some(event) = BridgeEvent::parse(payload) {
            let bridge = event.bridge.and_then(|bridge| known.get(&bridge));
            return Some(bridge.is_none_or(KnownBridge::may_be_ours));
        }
        let (index, bridge) = KnownBridge::of(Link::parse(payload)?)?;
        if kind == RTM_DELLINK {
            known.remove(&index);
            return Some(true);
        }
        let is_known = known.get(&index) == Some(&bridge);
        known.insert(index, bridge);
        Some(!is_known)
    }
}

#[cfg(test)]
mod tests {
    use super::super::netlink::attribute::Attributes;
    use super::super::netlink::rtnl::RTM_NEWLINK;
    use super::*;

    /// Returns a message about bridge 7.
    fn bridge(mtu: u32, alias: &str, more: u32) -> Vec<u8> {
        let info = Attributes::default().with_text(1, "bridge");
        let attributes = Attributes::default().with_text(3, "br0").with_u32(4, mtu).with_text(20, alias);
        let attributes = attributes.with_u32(27, 0).with_u32(30, more).with_nested(18, &info);
        attributes.after(&[0, 0, 1, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])
    }

    /// Returns a message about a port of this bridge.
    fn port(bridge: u32) -> Vec<u8> {
        let attributes = Attributes::default().with_text(3, "veth1").with_u32(4, 1500).with_u32(10, bridge);
        attributes.after(&[7, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    #[test]
    fn a_bridge_is_relevant_when_its_facts_change() {
        let watch = BridgeWatch::default();
        let is_relevant = |kind, payload: Vec<u8>| watch.is_relevant(kind, &payload).unwrap();
        assert!(is_relevant(RTM_NEWLINK, bridge(1500, "lab", 1)), "it is new");
        assert!(!is_relevant(RTM_NEWLINK, bridge(1500, "lab", 2)), "the facts are the same");
        assert!(is_relevant(RTM_NEWLINK, bridge(9000, "lab", 2)));
        assert!(is_relevant(RTM_NEWLINK, bridge(9000, "other", 2)));
        assert!(is_relevant(RTM_DELLINK, bridge(9000, "other", 2)));
        assert!(is_relevant(RTM_NEWLINK, bridge(9000, "other", 2)), "it is new again");
    }

    #[test]
    fn ports_of_our_bridges_and_of_unknown_ones_are_relevant() {
        let watch = BridgeWatch::default();
        let is_relevant = |kind, payload: Vec<u8>| watch.is_relevant(kind, &payload).unwrap();
        assert!(is_relevant(RTM_NEWLINK, port(7)), "the bridge is unknown");
        is_relevant(RTM_NEWLINK, bridge(1500, "lab", 0));
        assert!(!is_relevant(RTM_NEWLINK, port(7)) && !is_relevant(RTM_DELLINK, port(7)));
        is_relevant(RTM_NEWLINK, bridge(1500, "vfleet bridge of 0000:01:00.0", 0));
        assert!(is_relevant(RTM_NEWLINK, port(7)) && is_relevant(RTM_DELLINK, port(7)));
        is_relevant(RTM_NEWLINK, bridge(1500, "", 0));
        assert!(!is_relevant(RTM_NEWLINK, port(7)));
        assert!(is_relevant(RTM_NEWLINK, vec![7, 0, 1, 0]), "an invalid message may be relevant");
    }

    #[test]
    fn other_interfaces_are_not_decided_here() {
        let veth = Attributes::default().with_text(3, "veth1").with_u32(4, 1500).after(&[0; 16]);
        for payload in [&veth[..], &[], &[0; 16]] {
            assert_eq!(BridgeWatch::default().is_relevant(RTM_NEWLINK, payload), None);
        }
    }
}
