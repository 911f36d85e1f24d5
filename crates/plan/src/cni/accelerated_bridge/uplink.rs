//! VLANs of the uplink of a Linux bridge, which attachments share.
//!
//! A VLAN that the uplink has without the plugins stays for ever. One that an attachment adds stays until the last attachment
//! that needs it is released: every attachment records which of its VLANs the plugins have added, and an attachment that
//! finds such a VLAN takes this over.

use crate::cni::facts::{PeerFacts, SwitchPort, UplinkVlans};
use crate::cni::journal::Phase;
use crate::cni::step::SwitchStep;
use crate::prelude::*;

/// Uplink that attachments share.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedUplink<'a> {
    /// The bond, or the PF.
    port: &'a SwitchPort,
    /// Names by which attachments of the Go plugin may mean it: those of the PFs.
    aliases: &'a [String],
    /// Other attachments.
    peers: &'a [PeerFacts],
}

impl<'a> SharedUplink<'a> {
    /// Returns an uplink. `aliases` are the names of the members of a bond.
    pub(super) const fn new(port: &'a SwitchPort, aliases: &'a [String], peers: &'a [PeerFacts]) -> Self {
        Self { port, aliases, peers }
    }

    /// Returns the VLANs that an attachment records, and the step that adds those that are missing.
    pub(super) fn plan_needed(&self, needed: BTreeSet<u16>) -> (UplinkVlans, Option<SwitchStep>) {
        let SwitchPort { index, name, .. } = self.port;
        let missing: BTreeSet<u16> = needed.difference(&self.present()).copied().collect();
        let step = (!missing.is_empty())
            .then(|| SwitchStep::AddUplinkVlans { uplink: name.clone(), vlans: missing.clone() });
        let of_others = self.sharing().flat_map(|(peer, _)| &peer.added);
        let added = missing.iter().chain(of_others).filter(|id| needed.contains(id)).copied().collect();
        (UplinkVlans { index: *index, name: name.clone(), needed, added }, step)
    }

    /// Returns the step that removes the VLANs that nobody needs any more.
    pub(super) fn plan_unneeded(&self, vlans: &UplinkVlans) -> Option<SwitchStep> {
        let is_needed = |id: &u16| {
            self.sharing().any(|(peer, phase)| {
                matches!(phase, Phase::Attaching | Phase::Attached) && peer.needed.contains(id)
            })
        };
        let present = self.present();
        let unneeded: BTreeSet<u16> =
            vlans.added.iter().filter(|id| present.contains(id) && !is_needed(id)).copied().collect();
        let uplink = self.port.name.clone();
        (!unneeded.is_empty()).then_some(SwitchStep::RemoveUplinkVlans { uplink, vlans: unneeded })
    }

    fn present(&self) -> BTreeSet<u16> {
        self.port.vlans.iter().map(|vlan| vlan.id).collect()
    }

    /// Returns the VLANs of other attachments on this uplink. One that has been released has none any more.
    fn sharing(&self) -> impl Iterator<Item = (&'a UplinkVlans, Phase)> {
        let Self { port, aliases, peers } = *self;
        let is_same = move |vlans: &UplinkVlans| match vlans.index {
            0 => vlans.name == port.name || aliases.contains(&vlans.name),
            index => index == port.index,
        };
        let of_peer = |peer: &'a PeerFacts| peer.uplink.as_ref().map(|uplink| (uplink, peer.phase));
        let peers = peers.iter().filter_map(of_peer);
        peers.filter(move |(vlans, phase)| *phase != Phase::Returned && is_same(vlans))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cni::facts::BridgeVlan;

    /// Uplink with the attachments that share it.
    #[derive(Debug)]
    struct Shared {
        uplink: SwitchPort,
        peers: BTreeMap<u8, PeerFacts>,
    }

    impl Shared {
        fn new(vlans: &[u16]) -> Self {
            let vlans = vlans.iter().map(|id| BridgeVlan::tagged(*id)).collect();
            let uplink = SwitchPort { index: 7, name: "bond0".to_owned(), vlans, ..SwitchPort::default() };
            Self { uplink, peers: BTreeMap::new() }
        }

        fn others(&self, own: u8) -> Vec<PeerFacts> {
            self.peers.iter().filter(|(at, _)| **at != own).map(|(_, peer)| peer.clone()).collect()
        }

        fn execute(&mut self, step: &SwitchStep) {
            match step {
                SwitchStep::AddUplinkVlans { vlans, .. } => {
                    self.uplink.vlans.extend(vlans.iter().map(|id| BridgeVlan::tagged(*id)));
                }
                SwitchStep::RemoveUplinkVlans { vlans, .. } => {
                    self.uplink.vlans.retain(|vlan| !vlans.contains(&vlan.id));
                }
                _ => panic!("{step}"),
            }
        }

        /// Attaches, or is interrupted before its step.
        fn add(&mut self, at: u8, needed: &[u16], is_interrupted: bool) {
            let needed = needed.iter().copied().collect();
            let others = self.others(at);
            let (vlans, step) = SharedUplink::new(&self.uplink, &[], &others).plan_needed(needed);
            let phase = if is_interrupted { Phase::Attaching } else { Phase::Attached };
            let peer = PeerFacts {
                container_id: at.to_string(),
                interface: "net1".to_owned(),
                namespace: String::new(),
                phase,
                uplink: Some(vlans),
            };
            self.peers.insert(at, peer);
            if let Some(step) = step.filter(|_| !is_interrupted) {
                self.execute(&step);
            }
        }

        /// Detaches, or is interrupted before or after its step.
        fn delete(&mut self, at: u8, interruption: Option<bool>) {
            let others = self.others(at);
            let Some(peer) = self.peers.get_mut(&at) else { return };
            peer.phase = Phase::Releasing;
            let shared = SharedUplink::new(&self.uplink, &[], &others);
            let step = shared.plan_unneeded(peer.uplink.as_ref().unwrap());
            if let Some(step) = step.filter(|_| interruption != Some(false)) {
                self.execute(&step);
            }
            if interruption.is_none() {
                self.peers.remove(&at);
            }
        }

        fn ids(&self) -> BTreeSet<u16> {
            self.uplink.vlans.iter().map(|vlan| vlan.id).collect()
        }
    }

    #[test]
    fn a_vlan_leaves_with_the_last_attachment_that_needs_it() {
        let mut shared = Shared::new(&[1, 100]);
        shared.add(0, &[100, 200], false);
        shared.add(1, &[200, 300], false);
        assert_eq!(shared.ids(), [1, 100, 200, 300].into());
        shared.delete(0, None);
        assert_eq!(shared.ids(), [1, 100, 200, 300].into());
        shared.delete(1, None);
        assert_eq!(shared.ids(), [1, 100].into());
    }

    #[test]
    fn attachments_on_other_uplinks_do_not_count() {
        let mut shared = Shared::new(&[]);
        shared.add(0, &[200], false);
        let other = shared.peers.get_mut(&0).unwrap().uplink.as_mut().unwrap();
        (other.index, other.name) = (8, "bond1".to_owned());
        shared.add(1, &[200], false);
        assert_eq!(shared.peers[&1].uplink.as_ref().unwrap().added, BTreeSet::new());
    }

    #[test]
    fn attachments_of_the_go_plugin_count_by_the_name_of_the_pf() {
        let mut shared = Shared::new(&[]);
        shared.add(0, &[200], false);
        let other = shared.peers.get_mut(&0).unwrap().uplink.as_mut().unwrap();
        (other.index, other.name) = (0, "ens1f0".to_owned());
        let (peers, members) = (shared.others(9), ["ens1f0".to_owned()]);
        let needed = BTreeSet::from([200]);
        let (vlans, step) = SharedUplink::new(&shared.uplink, &members, &peers).plan_needed(needed.clone());
        assert_eq!((vlans.added, step), (needed.clone(), None));
        let (vlans, _) = SharedUplink::new(&shared.uplink, &[], &peers).plan_needed(needed);
        assert_eq!(vlans.added, BTreeSet::new());
    }

    proptest! {
        #[test]
        fn an_uplink_is_as_before_when_all_attachments_are_gone(
            initial in prop::collection::btree_set(1_u16..6, 0..3),
            actions in prop::collection::vec(
                (0_u8..4, prop::collection::btree_set(1_u16..6, 0..4), any::<bool>(), prop::option::of(any::<bool>())),
                0..14,
            ),
        ) {
            let mut shared = Shared::new(&initial.iter().copied().collect::<Vec<_>>());
            for (at, needed, adds, interruption) in actions {
                let is_new = !shared.peers.contains_key(&at);
                if adds && is_new {
                    shared.add(at, &needed.into_iter().collect::<Vec<_>>(), interruption == Some(true));
                } else {
                    shared.delete(at, interruption);
                }
                for peer in shared.peers.values().filter(|peer| peer.phase == Phase::Attached) {
                    prop_assert!(peer.uplink.as_ref().unwrap().needed.is_subset(&shared.ids()), "{:?}", shared);
                }
            }
            for at in 0..4 {
                shared.delete(at, None);
            }
            prop_assert_eq!(shared.ids(), initial);
        }
    }
}
