//! Cache of the Go plugin `sriov`.

use vfleet_api::MacAddr;

use crate::cni::facts::{LinkState, VfSettings, VfVlan, VlanProtocol};
use crate::cni::protocol::json::{KeyFault, Section};
use crate::cni::step::OriginalInterface;
use crate::prelude::*;

/// Changes that DEL undoes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restored {
    pub(super) changed: VfSettings,
    pub(super) original: VfSettings,
    pub(super) interface: Option<OriginalInterface>,
}

/// Reads the changes. The plugin restores only what its configuration has a key for, but the administrative MAC always.
/// `DPDKMode` is in files of old versions only; a VF with a driver for userspace has no interface.
pub(super) fn read(root: &Section<'_>) -> Result<Restored, KeyFault> {
    let state = root.section("OrigVfState")?.ok_or_else(|| KeyFault::new("OrigVfState", "is missing"))?;
    let admin_mac = read_mac(&state, "AdminMAC")?;
    let original = VfSettings {
        mac: admin_mac,
        vlan: Some(VfVlan {
            id: state.integer("Vlan", 0..=4095)?.unwrap_or_default(),
            qos: state.integer("VlanQoS", 0..=7)?.unwrap_or_default(),
            protocol: read_protocol(&state)?,
        }),
        spoof_check: Some(state.flag("SpoofChk")?.unwrap_or_default()),
        trust: Some(state.flag("Trust")?.unwrap_or_default()),
        min_tx_rate: Some(state.integer("MinTxRate", 0..=u32::MAX)?.unwrap_or_default()),
        max_tx_rate: Some(state.integer("MaxTxRate", 0..=u32::MAX)?.unwrap_or_default()),
        link_state: Some(read_link_state(&state)?),
        node_guid: None,
        port_guid: None,
    };
    let changed = read_changed(root, admin_mac)?;
    let is_for_userspace = root.flag("DPDKMode")?.unwrap_or_default();
    let name = state.text("HostIFName")?.filter(|_| !is_for_userspace);
    let interface = match name {
        None => None,
        Some(name) => Some(OriginalInterface {
            name: name.to_owned(),
            alt_names: Vec::new(),
            mac: read_mac(&state, "EffectiveMAC")?,
            mtu: state.integer("MTU", 0..=u32::MAX)?.filter(|mtu| *mtu > 0),
        }),
    };
    Ok(Restored { changed, original, interface })
}

/// Reads the settings that ADD changed.
fn read_changed(root: &Section<'_>, admin_mac: Option<MacAddr>) -> Result<VfSettings, KeyFault> {
    let vlan = match root.integer("vlan", 0..=4094)? {
        None => None,
        Some(id) => Some(VfVlan {
            id,
            qos: root.integer("vlanQoS", 0..=7)?.unwrap_or_default(),
            protocol: match root.text("vlanProto")? {
                Some(text) if text.eq_ignore_ascii_case("802.1ad") => VlanProtocol::Ieee8021ad,
                _ => VlanProtocol::Ieee8021q,
            },
        }),
    };
    let min = root.integer("min_tx_rate", 0..=u32::MAX)?;
    let max = root.integer("max_tx_rate", 0..=u32::MAX)?;
    let has_rate = min.is_some() || max.is_some();
    let rate = |rate: Option<u32>| has_rate.then(|| rate.unwrap_or_default());
    let switch = |key| Ok::<_, KeyFault>(root.text(key)?.map(|text| text == "on"));
    Ok(VfSettings {
        mac: admin_mac.map(|admin| Ok(read_mac(root, "MAC")?.unwrap_or(admin))).transpose()?,
        vlan,
        spoof_check: switch("spoofchk")?,
        trust: switch("trust")?,
        min_tx_rate: rate(min),
        max_tx_rate: rate(max),
        link_state: match root.text("link_state")? {
            None => None,
            Some("enable") => Some(LinkState::Enable),
            Some("disable") => Some(LinkState::Disable),
            Some(_) => Some(LinkState::Auto),
        },
        node_guid: None,
        port_guid: None,
    })
}

fn read_mac(section: &Section<'_>, key: &str) -> Result<Option<MacAddr>, KeyFault> {
    let Some(text) = section.text(key)? else { return Ok(None) };
    let fault = |error: vfleet_api::ParseError| KeyFault::new(section.path_of(key), error.to_string());
    text.parse().map(Some).map_err(fault)
}

/// Reads the protocol of the VLAN; old files have none. The library of the plugin swaps its bytes on s390x.
fn read_protocol(state: &Section<'_>) -> Result<VlanProtocol, KeyFault> {
    match state.integer("VlanProto", 0..=u16::MAX)?.unwrap_or_default() {
        0 | 0x8100 | 0x0081 => Ok(VlanProtocol::Ieee8021q),
        0x88a8 | 0xa888 => Ok(VlanProtocol::Ieee8021ad),
        number => Err(KeyFault::new(state.path_of("VlanProto"), format!("{number} is no protocol of VLANs"))),
    }
}

fn read_link_state(state: &Section<'_>) -> Result<LinkState, KeyFault> {
    match state.integer("LinkState", 0..=u32::MAX)?.unwrap_or_default() {
        0 => Ok(LinkState::Auto),
        1 => Ok(LinkState::Enable),
        2 => Ok(LinkState::Disable),
        number => Err(KeyFault::new(state.path_of("LinkState"), format!("{number} is no link state"))),
    }
}
