//! CNI configuration of a NAD. Key order and whitespace match the Go operator, because other tools compare the text.

use vfleet_api::network::{
    BridgeNetworkSpec, CniLogLevel, OVSNetworkSpec, OnOff, SriovIBNetworkSpec, SriovNetworkSpec, TrunkConfig,
    VfLinkState, VlanProto,
};

use super::fault::NetworkFault;
use super::json::{self, ObjectWriter};
use super::{CommonFields, NetworkSpec};
use crate::prelude::*;

const CNI_VERSION: &str = "1.0.0";

/// Renders the configuration of the network `name`. JSON in the spec must have been checked.
pub(super) fn render(
    name: &str,
    spec: &NetworkSpec,
    common: &CommonFields<'_>,
) -> Result<String, NetworkFault> {
    let mut whole = ObjectWriter::new();
    whole.text("cniVersion", Some(CNI_VERSION)).text("name", Some(name));
    match common.meta_plugins {
        None => write_plugin(&mut whole, spec, common),
        Some(chained) => {
            let mut first = ObjectWriter::new();
            write_plugin(&mut first, spec, common);
            whole.json("plugins", &format!("[{},{chained}]", first.end()));
        }
    }
    json::indent(&whole.end())
}

/// Writes the keys of the CNI plugin of the network.
fn write_plugin(object: &mut ObjectWriter, spec: &NetworkSpec, common: &CommonFields<'_>) {
    match spec {
        NetworkSpec::Sriov(spec) => write_sriov(object, spec, common),
        NetworkSpec::InfiniBand(spec) => write_infiniband(object, spec, common),
        NetworkSpec::Ovs(spec) => write_ovs(object, spec, common),
        NetworkSpec::Bridge(spec) => write_bridge(object, spec, common),
    }
    object.json("ipam", common.ipam.unwrap_or("{}"));
}

fn write_sriov(object: &mut ObjectWriter, spec: &SriovNetworkSpec, common: &CommonFields<'_>) {
    object
        .text("type", Some("sriov"))
        .number("vlan", Some(spec.vlan.unwrap_or(0)))
        .text("spoofchk", spec.spoof_chk.map(OnOff::as_str))
        .text("trust", spec.trust.map(OnOff::as_str))
        .number("vlanQoS", Some(spec.vlan_qos.unwrap_or(0)))
        .text("vlanProto", spec.vlan_proto.map(VlanProto::as_str))
        .number("min_tx_rate", spec.min_tx_rate)
        .number("max_tx_rate", spec.max_tx_rate);
    write_capabilities(object, common);
    object
        .text("link_state", spec.link_state.map(VfLinkState::as_str))
        .text("logLevel", spec.log_level.map(CniLogLevel::as_str))
        .text("logFile", spec.log_file.as_deref());
}

fn write_infiniband(object: &mut ObjectWriter, spec: &SriovIBNetworkSpec, common: &CommonFields<'_>) {
    object.text("type", Some("ib-sriov"));
    write_capabilities(object, common);
    object.text("link_state", spec.link_state.map(VfLinkState::as_str));
}

fn write_ovs(object: &mut ObjectWriter, spec: &OVSNetworkSpec, common: &CommonFields<'_>) {
    object.text("type", Some("ovs"));
    write_capabilities(object, common);
    object
        .text("bridge", spec.bridge.as_deref())
        .number("vlan", non_zero(spec.vlan))
        .number("mtu", non_zero(spec.mtu));
    write_trunk(object, spec.trunk.as_deref());
    object.text("interface_type", spec.interface_type.as_deref());
}

fn write_bridge(object: &mut ObjectWriter, spec: &BridgeNetworkSpec, common: &CommonFields<'_>) {
    object.text("type", Some("accelerated-bridge"));
    write_capabilities(object, common);
    object
        .text("bridge", spec.bridge.as_deref())
        .number("vlan", non_zero(spec.vlan))
        .number("mtu", non_zero(spec.mtu));
    write_trunk(object, spec.trunk.as_deref());
    if spec.set_uplink_vlan == Some(true) {
        object.json("setUplinkVlan", "true");
    }
}

fn write_capabilities(object: &mut ObjectWriter, common: &CommonFields<'_>) {
    if let Some(capabilities) = common.capabilities {
        object.json("capabilities", capabilities);
    }
}

fn write_trunk(object: &mut ObjectWriter, vlans: Option<&[TrunkConfig]>) {
    let Some(vlans) = vlans.filter(|vlans| !vlans.is_empty()) else { return };
    let entry = |vlans: &TrunkConfig| {
        ObjectWriter::new()
            .number("minID", vlans.min_id)
            .number("maxID", vlans.max_id)
            .number("id", vlans.id)
            .end()
    };
    let entries: Vec<_> = vlans.iter().map(entry).collect();
    object.json("trunk", &format!("[{}]", entries.join(",")));
}

fn non_zero(number: Option<i64>) -> Option<i64> {
    number.filter(|number| *number != 0)
}
