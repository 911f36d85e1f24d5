//! The CNI configuration in a NAD. Order of keys and blanks are as the Go operator writes them: other tools compare.

use vfleet_api::network::{
    BridgeNetworkSpec, CniLogLevel, OVSNetworkSpec, OnOff, SriovIBNetworkSpec, SriovNetworkSpec, TrunkConfig,
    VfLinkState, VlanProto,
};

use super::fault::NetworkFault;
use super::json::{self, Object};
use super::{Common, NetworkSpec};
use crate::prelude::*;

const CNI_VERSION: &str = "1.0.0";

/// The configuration of the network `name`, whose parts in JSON were checked.
pub(super) fn render(name: &str, spec: &NetworkSpec, common: &Common<'_>) -> Result<String, NetworkFault> {
    let mut whole = Object::new();
    whole.text("cniVersion", Some(CNI_VERSION)).text("name", Some(name));
    match common.meta_plugins {
        None => plugin(&mut whole, spec, common),
        Some(chained) => {
            let mut first = Object::new();
            plugin(&mut first, spec, common);
            whole.json("plugins", &format!("[{},{chained}]", first.end()));
        }
    }
    json::indent(&whole.end())
}

/// The keys of the network's own CNI plugin.
fn plugin(object: &mut Object, spec: &NetworkSpec, common: &Common<'_>) {
    match spec {
        NetworkSpec::Sriov(spec) => sriov(object, spec, common),
        NetworkSpec::InfiniBand(spec) => infiniband(object, spec, common),
        NetworkSpec::Ovs(spec) => ovs(object, spec, common),
        NetworkSpec::Bridge(spec) => bridge(object, spec, common),
    }
    object.json("ipam", common.ipam.unwrap_or("{}"));
}

fn sriov(object: &mut Object, spec: &SriovNetworkSpec, common: &Common<'_>) {
    object
        .text("type", Some("sriov"))
        .number("vlan", Some(spec.vlan.unwrap_or(0)))
        .text("spoofchk", spec.spoof_chk.map(OnOff::as_str))
        .text("trust", spec.trust.map(OnOff::as_str))
        .number("vlanQoS", Some(spec.vlan_qos.unwrap_or(0)))
        .text("vlanProto", spec.vlan_proto.map(VlanProto::as_str))
        .number("min_tx_rate", spec.min_tx_rate)
        .number("max_tx_rate", spec.max_tx_rate);
    capabilities(object, common);
    object
        .text("link_state", spec.link_state.map(VfLinkState::as_str))
        .text("logLevel", spec.log_level.map(CniLogLevel::as_str))
        .text("logFile", spec.log_file.as_deref());
}

fn infiniband(object: &mut Object, spec: &SriovIBNetworkSpec, common: &Common<'_>) {
    object.text("type", Some("ib-sriov"));
    capabilities(object, common);
    object.text("link_state", spec.link_state.map(VfLinkState::as_str));
}

fn ovs(object: &mut Object, spec: &OVSNetworkSpec, common: &Common<'_>) {
    object.text("type", Some("ovs"));
    capabilities(object, common);
    object
        .text("bridge", spec.bridge.as_deref())
        .number("vlan", not_zero(spec.vlan))
        .number("mtu", not_zero(spec.mtu));
    trunk(object, spec.trunk.as_deref());
    object.text("interface_type", spec.interface_type.as_deref());
}

fn bridge(object: &mut Object, spec: &BridgeNetworkSpec, common: &Common<'_>) {
    object.text("type", Some("accelerated-bridge"));
    capabilities(object, common);
    object
        .text("bridge", spec.bridge.as_deref())
        .number("vlan", not_zero(spec.vlan))
        .number("mtu", not_zero(spec.mtu));
    trunk(object, spec.trunk.as_deref());
    if spec.set_uplink_vlan == Some(true) {
        object.json("setUplinkVlan", "true");
    }
}

fn capabilities(object: &mut Object, common: &Common<'_>) {
    if let Some(capabilities) = common.capabilities {
        object.json("capabilities", capabilities);
    }
}

fn trunk(object: &mut Object, vlans: Option<&[TrunkConfig]>) {
    let Some(vlans) = vlans.filter(|vlans| !vlans.is_empty()) else { return };
    let entry = |vlans: &TrunkConfig| {
        Object::new().number("minID", vlans.min_id).number("maxID", vlans.max_id).number("id", vlans.id).end()
    };
    let entries: Vec<_> = vlans.iter().map(entry).collect();
    object.json("trunk", &format!("[{}]", entries.join(",")));
}

fn not_zero(number: Option<i64>) -> Option<i64> {
    number.filter(|number| *number != 0)
}
