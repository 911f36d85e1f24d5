//! VLANs of networks: what is wrong with tags and trunks.

use vfleet_api::network::{BridgeNetworkSpec, SriovNetworkSpec, TrunkConfig, VlanProto};

use super::check::FieldFault;
use super::{NetworkFault, NetworkSpec};
use crate::prelude::*;

/// The highest VLAN of a Linux bridge. Open vSwitch has one more.
const HIGHEST_OF_LINUX: i64 = 4094;

/// All for which the CNI plugin would refuse every pod.
pub(super) fn faults(spec: &NetworkSpec) -> Vec<FieldFault> {
    match spec {
        NetworkSpec::Sriov(spec) => tags(spec).collect(),
        NetworkSpec::InfiniBand(_) => Vec::new(),
        NetworkSpec::Ovs(_) => empty_trunk(spec).into_iter().collect(),
        NetworkSpec::Bridge(bridge) => {
            let beyond: Vec<_> = beyond_linux(bridge).collect();
            if beyond.is_empty() { empty_trunk(spec).into_iter().collect() } else { beyond }
        }
    }
}

/// The entries of the trunk, by their places, that have half a range, or one that ends before it begins. The API server
/// refuses them, but may have stored them before there was such a rule.
pub(crate) fn bad_ranges(spec: &NetworkSpec) -> impl Iterator<Item = usize> {
    let is_range = |entry: &TrunkConfig| match (entry.min_id, entry.max_id) {
        (None, None) => true,
        (Some(first), Some(last)) => first <= last,
        _ => false,
    };
    trunk(spec).iter().enumerate().filter(move |(_, entry)| !is_range(entry)).map(|(at, _)| at)
}

/// Whether there is a VLAN that the trunk keeps from being used.
pub(crate) fn is_vlan_unused(spec: &NetworkSpec) -> bool {
    let vlan = if let NetworkSpec::Ovs(spec) = spec { spec.vlan.unwrap_or(0) } else { 0 };
    vlan != 0 && !trunk(spec).is_empty()
}

fn trunk(spec: &NetworkSpec) -> &[TrunkConfig] {
    let trunk = match spec {
        NetworkSpec::Ovs(spec) => &spec.trunk,
        NetworkSpec::Bridge(spec) => &spec.trunk,
        NetworkSpec::Sriov(_) | NetworkSpec::InfiniBand(_) => &None,
    };
    trunk.as_deref().unwrap_or_default()
}

fn tags(spec: &SriovNetworkSpec) -> impl Iterator<Item = FieldFault> {
    let has_vlan = spec.vlan.unwrap_or(0) != 0;
    let has_qos = spec.vlan_qos.unwrap_or(0) != 0;
    let is_ad = matches!(spec.vlan_proto, Some(VlanProto::Ieee8021adLower | VlanProto::Ieee8021AD));
    let qos = (has_qos && !has_vlan).then(|| ("spec.vlanQoS".to_owned(), NetworkFault::QosWithoutVlan));
    let protocol =
        (is_ad && !has_vlan).then(|| ("spec.vlanProto".to_owned(), NetworkFault::ProtocolWithoutVlan));
    qos.into_iter().chain(protocol)
}

/// A range counts only with both of its ends above 0.
fn empty_trunk(spec: &NetworkSpec) -> Option<FieldFault> {
    let entries = trunk(spec);
    let is_above_0 = |id: Option<i64>| id.is_some_and(|id| id > 0);
    let names_some =
        |entry: &TrunkConfig| entry.id.is_some() || (is_above_0(entry.min_id) && is_above_0(entry.max_id));
    let is_empty = !entries.is_empty() && !entries.iter().any(names_some);
    is_empty.then(|| ("spec.trunk".to_owned(), NetworkFault::EmptyTrunk))
}

/// VLANs that a Linux bridge cannot have. Without a tag there is VLAN 0, but not in a trunk.
fn beyond_linux(spec: &BridgeNetworkSpec) -> impl Iterator<Item = FieldFault> {
    let fault = |field: String, id: i64, lowest: i64| {
        let is_beyond = !(lowest..=HIGHEST_OF_LINUX).contains(&id);
        is_beyond.then_some((field, NetworkFault::VlanBeyond { id, lowest, highest: HIGHEST_OF_LINUX }))
    };
    let vlan = spec.vlan.and_then(|vlan| fault("spec.vlan".to_owned(), vlan, 0));
    let trunk = spec.trunk.iter().flatten().enumerate().flat_map(move |(at, entry)| {
        let ids = [("id", entry.id), ("minID", entry.min_id), ("maxID", entry.max_id)];
        ids.into_iter().filter_map(move |(name, id)| fault(format!("spec.trunk[{at}].{name}"), id?, 1))
    });
    vlan.into_iter().chain(trunk)
}
