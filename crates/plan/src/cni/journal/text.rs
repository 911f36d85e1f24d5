//! Attachments for people: the settings that they changed.

use vfleet_api::VfRef;

use super::{AcceleratedBridgeChanges, DeviceChanges, MirrorChanges, OvsChanges, OvsLink};
use crate::cni::step::BridgeVlans;
use crate::prelude::*;

impl DeviceChanges {
    /// Returns the VF of the attachment, if it has one.
    pub const fn vf(&self) -> Option<VfRef> {
        match self {
            Self::Sriov(changes) => Some(changes.vf),
            Self::Infiniband(changes) => changes.vf,
            Self::Ovs(changes) => match &changes.link {
                OvsLink::Veth { .. } => None,
                OvsLink::Vf { vf, .. } => Some(vf.vf),
                OvsLink::Vdpa { device, .. } => Some(device.vf),
            },
            Self::AcceleratedBridge(changes) => Some(changes.vf.vf),
            Self::Rdma(_) | Self::Mirror(_) => None,
        }
    }

    /// Returns the settings that ADD changed, by the keys of network configurations.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let rdma = |name: &String| ("RDMA device", name.clone());
        match self {
            Self::Sriov(changes) => changes.changed.fields(),
            Self::Infiniband(changes) => {
                let guid = changes.guid.map(|guid| ("guid", guid.to_string()));
                let link_state = changes.link_state.map(|state| ("link_state", state.to_string()));
                guid.into_iter().chain(link_state).chain(changes.rdma.as_ref().map(rdma)).collect()
            }
            Self::Rdma(changes) => vec![rdma(&changes.rdma)],
            Self::Ovs(changes) => ovs_fields(changes),
            Self::AcceleratedBridge(changes) => bridge_fields(changes),
            Self::Mirror(changes) => mirror_fields(changes),
        }
    }
}

fn ovs_fields(changes: &OvsChanges) -> Vec<(&'static str, String)> {
    let mut fields = vec![("bridge", changes.bridge.clone())];
    fields.extend(changes.port.clone().map(|port| ("port", port)));
    fields.push(("vlan", changes.vlans.to_string()));
    match &changes.link {
        OvsLink::Veth { .. } => {}
        OvsLink::Vf { vf, .. } => fields.extend(vf.changed.fields()),
        OvsLink::Vdpa { device, .. } => {
            fields.extend(device.mac.map(|mac| ("mac", mac.to_string())));
            fields.push(("vDPA device", device.name.clone()));
        }
    }
    fields
}

fn bridge_fields(changes: &AcceleratedBridgeChanges) -> Vec<(&'static str, String)> {
    let vlans = changes.vlans.as_ref().map(|vlans| ("vlan", BridgeVlans(vlans).to_string()));
    [("bridge", changes.bridge.clone()), ("port", changes.representor.name.clone())]
        .into_iter()
        .chain(vlans)
        .chain(changes.vf.changed.fields())
        .collect()
}

fn mirror_fields(changes: &MirrorChanges) -> Vec<(&'static str, String)> {
    let bridge = changes.bridge.iter().map(|bridge| ("bridge", bridge.clone()));
    let ports = changes.ports.first().map(|port| ("port", port.clone()));
    let mirrors = changes.mirrors.iter().flatten().map(|(name, role)| ("mirror", format!("{name} ({role})")));
    bridge.chain(ports).chain(mirrors).collect()
}
