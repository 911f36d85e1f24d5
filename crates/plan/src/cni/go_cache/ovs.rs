//! Caches of the Go plugin `ovs`: `{Netconf, OrigIfName, UserspaceMode, VdpaType}`.

use vfleet_api::{PciAddress, VfRef};

use crate::cni::facts::{INTERFACE_KEY, NAMESPACE_KEY, OVS_OWNER, OWNER_KEY, OvsSocket, VfSettings};
use crate::cni::journal::{OvsChanges, OvsLink, RepresentorChanges, VdpaChanges, VfChanges};
use crate::cni::protocol::json::{Json, KeyFault, Section};
use crate::cni::step::{OriginalInterface, OvsVlans};
use crate::prelude::*;

/// Attachment of the Go plugin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restored {
    /// Device; `None` for a veth pair.
    device: Option<PciAddress>,
    socket: OvsSocket,
    bridge: String,
    vlans: OvsVlans,
    original_name: Option<String>,
    is_vdpa: bool,
}

/// Reads the attachment. Neither MACs nor MTUs are recorded.
pub(super) fn read(
    root: &Section<'_>,
    network: &Section<'_>,
    device: Option<PciAddress>,
) -> Result<Restored, KeyFault> {
    let socket = network.text("socket_file")?.map(str::parse::<OvsSocket>).transpose();
    let socket = socket.map_err(|error| KeyFault::new(network.path_of("socket_file"), error.to_string()))?;
    let is_for_userspace = root.flag("UserspaceMode")?.unwrap_or_default();
    Ok(Restored {
        device,
        socket: socket.unwrap_or_default(),
        bridge: network.text("bridge")?.unwrap_or_default().to_owned(),
        vlans: network.integer("vlan", 0..=4095)?.map_or_else(OvsVlans::default, OvsVlans::Access),
        original_name: root.text("OrigIfName")?.filter(|_| !is_for_userspace).map(ToOwned::to_owned),
        is_vdpa: has_vdpa_type(root.last_value("VdpaType")),
    })
}

/// Returns whether a type of vDPA devices is recorded. Its form differs among versions of the plugin.
fn has_vdpa_type(value: Option<&Json>) -> bool {
    match value {
        Some(Json::Text(text)) => !text.is_empty() && !text.eq_ignore_ascii_case("none"),
        Some(Json::Number(number)) => number.as_u64() != Some(0),
        _ => false,
    }
}

impl Restored {
    /// Returns the changes of the same attachment of ours. Without the path of its namespace the port is that of the
    /// representor.
    pub(super) fn to_changes(
        &self,
        vf: Option<VfRef>,
        namespace: &str,
        interface: &str,
    ) -> Option<OvsChanges> {
        let mut port_ids = BTreeMap::new();
        let namespace = Some(namespace).filter(|path| !path.is_empty());
        let entries =
            [(OWNER_KEY, Some(OVS_OWNER)), (NAMESPACE_KEY, namespace), (INTERFACE_KEY, Some(interface))];
        for (key, value) in entries {
            port_ids.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        }
        // The plugin sets the representor up and leaves it so.
        let representor = RepresentorChanges { was_up: true, ..RepresentorChanges::default() };
        let link = match (self.device, vf) {
            (None, _) => OvsLink::Veth { host_mac: None },
            (Some(_), None) => return None,
            (Some(_), Some(vf)) if self.is_vdpa => OvsLink::Vdpa {
                device: VdpaChanges {
                    vf,
                    name: String::new(),
                    mac: None,
                    original_mac: None,
                    original_mtu: None,
                },
                representor,
            },
            (Some(_), Some(vf)) => {
                let interface = self
                    .original_name
                    .as_ref()
                    .map(|name| OriginalInterface { name: name.clone(), ..OriginalInterface::default() });
                let (changed, original) = (VfSettings::default(), VfSettings::default());
                OvsLink::Vf { vf: VfChanges { vf, changed, original, interface }, representor }
            }
        };
        Some(OvsChanges {
            socket: self.socket.clone(),
            bridge: self.bridge.clone(),
            port: None,
            port_ids,
            vlans: self.vlans.clone(),
            link,
        })
    }
}
