//! What the node is like: host facts => node state status.

use vfleet_api::node_state::{InterfaceExt, VirtualFunction};

use crate::facts::{HostFacts, PfFacts, Record, VfFacts};
use crate::prelude::*;

/// The PFs of a machine as its node state reports them. A PF without an interface is left out, since no policy can
/// do anything with it; but not one that is ours. Its interface may be away for a moment (a driver that resets), and
/// a card that is not reported looks like one that no policy selects, whose VFs would be removed.
pub fn interfaces(facts: &HostFacts) -> Vec<InterfaceExt> {
    facts
        .pfs
        .iter()
        .map(|pf| (pf, facts.record(pf.address)))
        .filter(|(pf, record)| pf.link.is_some() || record.is_some())
        .map(|(pf, record)| interface(pf, record))
        .collect()
}

fn interface(pf: &PfFacts, record: Option<&Record>) -> InterfaceExt {
    let link = pf.link.as_ref();
    let recorded = record.map(|record| &record.interface);
    InterfaceExt {
        name: link
            .map(|link| link.name.clone())
            .or_else(|| recorded.and_then(|recorded| recorded.name.clone())),
        alt_names: link.map(|link| link.alt_names.clone()).filter(|names| !names.is_empty()),
        mac: link.and_then(|link| link.mac).map(|mac| mac.to_string()),
        driver: pf.driver.clone(),
        pci_address: pf.address.into(),
        vendor: Some(hex(pf.vendor)),
        device_id: Some(hex(pf.device)),
        net_filter: None,
        mtu: link.map(|link| link.mtu.into()),
        num_vfs: Some(i64::try_from(pf.vfs.len()).unwrap_or(i64::MAX)).filter(|count| *count > 0),
        link_speed: link.and_then(|link| link.speed).map(|speed| format!("{speed} Mb/s")),
        link_type: link.map(|link| link.kind.as_api().to_owned()).filter(|kind| !kind.is_empty()),
        link_admin_state: link.map(|link| if link.admin_up { "up" } else { "down" }.to_owned()),
        e_switch_mode: None,
        externally_managed: recorded.and_then(|recorded| recorded.externally_managed).filter(|is| *is),
        totalvfs: Some(pf.total_vfs.into()),
        vfs: Some(pf.vfs.iter().map(virtual_function).collect::<Vec<_>>()).filter(|vfs| !vfs.is_empty()),
        conditions: None,
    }
}

fn virtual_function(vf: &VfFacts) -> VirtualFunction {
    let link = vf.link.as_ref();
    VirtualFunction {
        name: link.map(|link| link.name.clone()),
        mac: link
            .and_then(|link| link.mac)
            .or(vf.admin_mac.filter(|mac| mac.is_usable()))
            .map(|mac| mac.to_string()),
        assigned: None,
        driver: vf.driver.clone(),
        pci_address: vf.address.into(),
        vendor: Some(hex(vf.vendor)),
        device_id: Some(hex(vf.device)),
        vlan: None,
        mtu: link.map(|link| link.mtu.into()),
        vf_id: vf.index.into(),
        vdpa_type: None,
        representor_name: None,
        guid: None,
    }
}

fn hex(id: u16) -> String {
    format!("{id:04x}")
}
