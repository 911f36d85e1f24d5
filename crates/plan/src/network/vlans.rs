//! Checks of VLAN tags and trunks of networks.

use vfleet_api::network::{BridgeNetworkSpec, SriovNetworkSpec, TrunkConfig, VlanProto};

use super::check::FieldFault;
use super::{NetworkFault, NetworkSpec};
use crate::prelude::*;

/// Highest VLAN of a Linux bridge. Open vSwitch has one more.
const MAX_LINUX_VLAN: i64 = 4094;

/// Returns the faults for which the CNI plugin would reject every pod.
pub(super) fn find_faults(spec: &NetworkSpec) -> Vec<FieldFault> {
    match spec {
        NetworkSpec::Sriov(spec) => check_tags(spec).collect(),
        NetworkSpec::InfiniBand(_) => Vec::new(),
        NetworkSpec::Ovs(_) => check_empty_trunk(spec).into_iter().collect(),
        NetworkSpec::Bridge(bridge) => {
            let beyond: Vec<_> = check_linux_vlans(bridge).collect();
            if beyond.is_empty() { check_empty_trunk(spec).into_iter().collect() } else { beyond }
        }
    }
}

/// Returns the positions of trunk entries with an incomplete or reversed range. The API server rejects them now, but
/// may have stored them before this rule existed.
pub(crate) fn find_bad_ranges(spec: &NetworkSpec) -> impl Iterator<Item = usize> {
    let is_valid = |entry: &TrunkConfig| match (entry.min_id, entry.max_id) {
        (None, None) => true,
        (Some(first), Some(last)) => first <= last,
        _ => false,
    };
    trunk(spec).iter().enumerate().filter(move |(_, entry)| !is_valid(entry)).map(|(at, _)| at)
}

/// Returns whether `vlan` is set but has no effect because of the trunk.
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

fn check_tags(spec: &SriovNetworkSpec) -> impl Iterator<Item = FieldFault> {
    let has_vlan = spec.vlan.unwrap_or(0) != 0;
    let has_qos = spec.vlan_qos.unwrap_or(0) != 0;
    let is_ad = matches!(spec.vlan_proto, Some(VlanProto::Ieee8021adLower | VlanProto::Ieee8021AD));
    let qos = (has_qos && !has_vlan).then(|| ("spec.vlanQoS".to_owned(), NetworkFault::QosWithoutVlan));
    let protocol =
        (is_ad && !has_vlan).then(|| ("spec.vlanProto".to_owned(), NetworkFault::ProtocolWithoutVlan));
    qos.into_iter().chain(protocol)
}

/// Returns a fault if the trunk names no VLAN. A range counts only if both ends are above 0.
fn check_empty_trunk(spec: &NetworkSpec) -> Option<FieldFault> {
    let entries = trunk(spec);
    let is_above_0 = |id: Option<i64>| id.is_some_and(|id| id > 0);
    let names_vlan =
        |entry: &TrunkConfig| entry.id.is_some() || (is_above_0(entry.min_id) && is_above_0(entry.max_id));
    let is_empty = !entries.is_empty() && !entries.iter().any(names_vlan);
    is_empty.then(|| ("spec.trunk".to_owned(), NetworkFault::EmptyTrunk))
}

/// Returns the VLANs that a Linux bridge does not support. VLAN 0 means untagged and is not allowed in a trunk.
fn check_linux_vlans(spec: &BridgeNetworkSpec) -> impl Iterator<Item = FieldFault> {
    let fault = |field: String, id: i64, lowest: i64| {
        let is_out_of_range = !(lowest..=MAX_LINUX_VLAN).contains(&id);
        is_out_of_range
            .then_some((field, NetworkFault::VlanOutOfRange { id, lowest, highest: MAX_LINUX_VLAN }))
    };
    let vlan = spec.vlan.and_then(|vlan| fault("spec.vlan".to_owned(), vlan, 0));
    let trunk = spec.trunk.iter().flatten().enumerate().flat_map(move |(at, entry)| {
        let ids = [("id", entry.id), ("minID", entry.min_id), ("maxID", entry.max_id)];
        ids.into_iter().filter_map(move |(name, id)| fault(format!("spec.trunk[{at}].{name}"), id?, 1))
    });
    vlan.into_iter().chain(trunk)
}
