//! CHECK of the plugin `ovs`.

use crate::cni::attachment::{CheckedAttachment, expect};
use crate::cni::facts::{OvsSwitchPort, SwitchFacts, SwitchPort, VdpaDeviceFacts};
use crate::cni::journal::{OvsChanges, OvsLink, VdpaChanges};
use crate::cni::protocol::CniError;
use crate::cni::protocol::result::ResultInterface;
use crate::cni::sriov;
use crate::cni::step::OvsVlans;
use crate::prelude::*;

use super::require_running;

/// Compares port and link with what ADD left.
pub(in crate::cni) fn check(
    changes: &OvsChanges,
    checked: CheckedAttachment<'_>,
) -> Result<(), CniError> {
    let switch = checked.require_switch()?;
    let name = changes.port.as_deref().unwrap_or_default();
    let bridges = require_running(&changes.socket, switch)?;
    let bridge = bridges.iter().find(|bridge| bridge.name == changes.bridge);
    let found = bridge.map_or("none", |bridge| bridge.name.as_str());
    expect("bridge of Open vSwitch", changes.bridge.as_str(), Some(found))?;
    let ports = bridge.map(|bridge| bridge.ports.as_slice()).unwrap_or_default();
    let port = ports.iter().find(|port| port.name == name && port.has_ids(&changes.port_ids));
    let subject = format!("port of bridge {}", changes.bridge);
    expect(&subject, name, Some(port.map_or("none", |port| port.name.as_str())))?;
    if let Some(port) = port {
        check_port(port, &changes.vlans)?;
    }
    match &changes.link {
        OvsLink::Veth { .. } => {
            check_host_interface(name, switch.interface(name), &checked)?;
            checked.check_interface()
        }
        OvsLink::Vf { vf, .. } => {
            check_host_interface(name, switch.representor.as_ref(), &checked)?;
            sriov::check(vf, checked)
        }
        OvsLink::Vdpa { device, .. } => {
            check_host_interface(name, switch.representor.as_ref(), &checked)?;
            check_vdpa(device, switch)
        }
    }
}

fn check_port(port: &OvsSwitchPort, vlans: &OvsVlans) -> Result<(), CniError> {
    let subject = |what: &str| format!("{what} of port {}", port.name);
    for interface in &port.interfaces {
        expect(&subject("error"), "none", Some(interface.error.as_deref().unwrap_or("none")))?;
    }
    let mode = port.vlan_mode.as_deref().unwrap_or("none");
    expect(&subject("vlan_mode"), vlans.mode(), Some(mode))?;
    let found = match port.tag {
        Some(tag) => OvsVlans::Access(tag),
        None => OvsVlans::Trunk(port.trunks.clone()),
    };
    expect(&subject("VLANs"), vlans, Some(&found))
}

/// Compares the interface on the host with the result.
fn check_host_interface(
    name: &str,
    link: Option<&SwitchPort>,
    checked: &CheckedAttachment<'_>,
) -> Result<(), CniError> {
    expect("interface on the host", name, Some(link.map_or("none", |link| link.name.as_str())))?;
    let Some(link) = link else { return Ok(()) };
    expect(&format!("state of {name}"), "up", Some(if link.is_up { "up" } else { "down" }))?;
    let is_reported = |interface: &&ResultInterface| {
        interface.name == name && interface.sandbox.as_deref().unwrap_or_default().is_empty()
    };
    let reported = checked.previous.interfaces.iter().find(is_reported);
    match reported.and_then(|reported| reported.mac.as_ref()) {
        Some(mac) => {
            expect(&format!("MAC of {name}"), mac.to_lowercase(), link.mac.map(|mac| mac.to_string()))
        }
        None => Ok(()),
    }
}

fn check_vdpa(changes: &VdpaChanges, switch: &SwitchFacts) -> Result<(), CniError> {
    let device = switch.vdpa.iter().find(|device| device.name == changes.name);
    expect("vDPA device", changes.name.as_str(), Some(device.map_or("none", |device| device.name.as_str())))?;
    match changes.mac {
        Some(mac) => expect(
            &format!("MAC of vDPA device {}", changes.name),
            mac,
            device.and_then(|device: &VdpaDeviceFacts| device.mac),
        ),
        None => Ok(()),
    }
}
