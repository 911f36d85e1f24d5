//! Caches of the Go plugin `accelerated-bridge`.

use vfleet_api::{MacAddr, VfRef};

use crate::cni::facts::{UplinkVlans, VfSettings};
use crate::cni::journal::{AcceleratedBridgeChanges, RepresentorChanges, VfChanges};
use crate::cni::protocol::json::{KeyFault, Section};
use crate::cni::step::OriginalInterface;
use crate::prelude::*;

/// Attachment of the Go plugin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restored {
    bridge: String,
    uplink: Option<UplinkVlans>,
    changed: VfSettings,
    original: VfSettings,
    interface: Option<OriginalInterface>,
    representor: RepresentorChanges,
}

/// Reads the attachment. The plugin restores MACs and MTUs only if its configuration has them.
pub(super) fn read(root: &Section<'_>) -> Result<Restored, KeyFault> {
    let state = root.section("orig_vf_state")?;
    let state = state.ok_or_else(|| KeyFault::new("orig_vf_state", "is missing"))?;
    let mac = read_mac(root, "mac")?;
    let admin_mac = read_mac(&state, "admin_mac")?.filter(|_| mac.is_some());
    let has_mtu = root.integer("mtu", 0..=u32::MAX)?.is_some_and(|mtu| mtu > 0);
    let is_for_userspace = root.flag("IsUserspaceDriver")?.unwrap_or_default();
    let interface = OriginalInterface {
        name: state.text("host_if_name")?.unwrap_or_default().to_owned(),
        alt_names: Vec::new(),
        mac: read_mac(&state, "effective_mac")?.filter(|_| mac.is_some()),
        mtu: read_mtu(&state)?.filter(|_| has_mtu),
    };
    let original_mtu = root.section("orig_rep_state")?.map(|state| read_mtu(&state)).transpose()?.flatten();
    Ok(Restored {
        bridge: root
            .text("actual_bridge")?
            .map_or_else(|| root.text("bridge"), |name| Ok(Some(name)))?
            .unwrap_or_default()
            .to_owned(),
        uplink: read_uplink(root)?,
        changed: VfSettings { mac: mac.filter(|_| admin_mac.is_some()), ..VfSettings::default() },
        original: VfSettings { mac: admin_mac, ..VfSettings::default() },
        interface: (!is_for_userspace && !interface.name.is_empty()).then_some(interface),
        representor: RepresentorChanges {
            name: root.text("representor")?.unwrap_or_default().to_owned(),
            original_mtu: original_mtu.filter(|_| has_mtu),
            was_up: false,
        },
    })
}

/// Reads the VLANs of the uplink, which is the PF or its bond. The plugin takes all of them for its own.
fn read_uplink(root: &Section<'_>) -> Result<Option<UplinkVlans>, KeyFault> {
    if root.flag("setUplinkVlan")? != Some(true) {
        return Ok(None);
    }
    let trunk = read_trunk(root)?;
    let vlan = root.integer("vlan", 0..=4094)?.filter(|vlan| *vlan > 0);
    let needed: BTreeSet<u16> = trunk.into_iter().chain(vlan).collect();
    let name = root.text("pf_name")?.unwrap_or_default().to_owned();
    Ok(Some(UplinkVlans { index: 0, name, added: needed.clone(), needed }))
}

fn read_trunk(root: &Section<'_>) -> Result<BTreeSet<u16>, KeyFault> {
    let mut vlans = BTreeSet::new();
    for entry in root.objects("trunk")? {
        let first = entry.integer("minID", 0..=4096)?.unwrap_or(0);
        let last = entry.integer("maxID", 0..=4096)?.unwrap_or(0);
        if first > 0 && last > 0 {
            vlans.extend(first..=last);
        }
        vlans.extend(entry.integer("id", 0..=u16::MAX)?);
    }
    Ok(vlans)
}

fn read_mac(section: &Section<'_>, key: &str) -> Result<Option<MacAddr>, KeyFault> {
    let Some(text) = section.text(key)? else { return Ok(None) };
    let fault = |error: vfleet_api::ParseError| KeyFault::new(section.path_of(key), error.to_string());
    text.parse().map(Some).map_err(fault)
}

fn read_mtu(section: &Section<'_>) -> Result<Option<u32>, KeyFault> {
    Ok(section.integer("mtu", 0..=u32::MAX)?.filter(|mtu| *mtu > 0))
}

impl Restored {
    /// Returns the VLANs of the uplink, for other attachments that share it.
    pub(super) fn uplink(&self) -> Option<&UplinkVlans> {
        self.uplink.as_ref()
    }

    /// Returns the changes of the same attachment of ours.
    pub(super) fn to_changes(&self, vf: VfRef) -> AcceleratedBridgeChanges {
        AcceleratedBridgeChanges {
            bridge: self.bridge.clone(),
            vlans: None,
            uplink: self.uplink.clone(),
            vf: VfChanges {
                vf,
                changed: self.changed,
                original: self.original,
                interface: self.interface.clone(),
            },
            representor: self.representor.clone(),
        }
    }
}
