//! Facts of the switch side of attachments on a simulated machine.

use vfleet_api::PciAddress;
use vfleet_plan::cni::facts::{
    BondFacts, BridgeVlan, FileFacts, OvsSocket, OvsSwitchFacts, SwitchBridge, SwitchFacts, SwitchPort,
    SwitchQuery, UplinkFacts, VdpaDeviceFacts,
};
use vfleet_plan::{EswitchMode, Master};

use super::super::kernel::Kernel;
use super::super::ovs::OVS_SOCKET;
use super::super::steps::DEADLINE;
use crate::{HostError, format_error_chain};

/// Start of the indexes of interfaces that have none in the model.
const FIRST_VIRTUAL_INDEX: u32 = 10_000;
const DEFAULT_MTU: u32 = 1500;

pub(super) fn read(kernel: &Kernel, query: &SwitchQuery) -> Result<SwitchFacts, HostError> {
    let mut facts = SwitchFacts::default();
    if let Some(device) = query.device {
        read_device(kernel, device, query, &mut facts)?;
    }
    if query.with_linux_bridges {
        let to_bridge = |bridge: &super::super::SimBridge| SwitchBridge {
            name: bridge.name.clone(),
            filters_vlans: bridge.vlan_filtering,
        };
        facts.linux_bridges = kernel.bridges.iter().map(to_bridge).collect();
    }
    let exists = |name: &&String| kernel.has_interface(name);
    facts.interfaces = query
        .interfaces
        .iter()
        .filter(exists)
        .map(|name| port(kernel, name, query.with_linux_bridges))
        .collect();
    facts.ovs = query.ovs.as_ref().map(|socket| read_ovs(kernel, socket));
    facts.device_info = query.device_info.as_deref().map(|path| read_file(kernel, path));
    Ok(facts)
}

fn read_device(
    kernel: &Kernel,
    device: PciAddress,
    query: &SwitchQuery,
    facts: &mut SwitchFacts,
) -> Result<(), HostError> {
    let Some(vf) = kernel.vf_at(device) else { return Ok(()) };
    let Some(pf) = kernel.pf(vf.pf) else { return Ok(()) };
    if pf.is_hanging {
        let attempt = format!("report the state of {}", vf.pf);
        return Err(HostError::DeadlineExceeded { attempt, after: DEADLINE });
    }
    facts.is_switchdev = pf.eswitch == Some(EswitchMode::Switchdev);
    let found = kernel.device_vf(device);
    let representor = found.and_then(|vf| vf.representor.as_deref());
    facts.representor = representor.map(|name| port(kernel, name, query.with_linux_bridges));
    if let Some(link) = &pf.link {
        let own = port(kernel, &link.name, query.with_linux_bridges);
        let bond = link.master.as_ref().filter(|master| master.kind == "bond");
        let bond = bond.map(|bond| BondFacts {
            port: SwitchPort {
                kind: bond.kind.clone(),
                ..port(kernel, &bond.name, query.with_linux_bridges)
            },
            members: members_of(kernel, &bond.name),
        });
        facts.uplink = Some(UplinkFacts { pf: own, bond });
    }
    if query.with_vdpa {
        let kind = found.and_then(|vf| vf.vdpa);
        let to_device = |kind: vfleet_plan::VdpaKind| VdpaDeviceFacts {
            name: vdpa_name(device),
            driver: Some(kind.driver().to_owned()),
            mac: found.and_then(|vf| vf.vdpa_mac),
            mtu: None,
        };
        facts.vdpa = kind.map(to_device).into_iter().collect();
    }
    Ok(())
}

/// Returns the name of the vDPA device of a VF.
pub(super) fn vdpa_name(device: PciAddress) -> String {
    format!("vdpa:{device}")
}

fn members_of(kernel: &Kernel, bond: &str) -> Vec<String> {
    let is_member = |master: &Option<Master>| master.as_ref().is_some_and(|master| master.name == bond);
    let links = kernel.pfs.iter().filter_map(|pf| pf.link.as_ref());
    let mut members: Vec<_> =
        links.filter(|link| is_member(&link.master)).map(|link| link.name.clone()).collect();
    members.sort();
    members
}

/// Returns the facts of an interface of the host.
pub(super) fn port(kernel: &Kernel, name: &str, with_vlans: bool) -> SwitchPort {
    let vlans = kernel.bridges.iter().filter(|_| with_vlans).find_map(|bridge| bridge.vlans.get(name));
    let vlans: Vec<BridgeVlan> = vlans.into_iter().flat_map(|vlans| vlans.values().copied()).collect();
    let plain = SwitchPort {
        index: index_of(kernel, name),
        name: name.to_owned(),
        mtu: DEFAULT_MTU,
        is_up: true,
        master: kernel.master_of(name),
        vlans,
        ..SwitchPort::default()
    };
    let mut vfs = kernel.pfs.iter().flat_map(|pf| &pf.vfs);
    if let Some(veth) = kernel.veths.get(name) {
        let (mac, mtu, is_up) = (Some(veth.mac), veth.mtu, veth.up);
        return SwitchPort { kind: "veth".to_owned(), mac, mtu, is_up, ..plain };
    }
    if let Some(vf) = vfs.find(|vf| vf.representor.as_deref() == Some(name)) {
        let link = vf.representor_link;
        return SwitchPort { mtu: link.mtu, is_up: link.up, ..plain };
    }
    if let Some(link) = kernel.link(name) {
        let (mac, mtu, max_mtu) = (Some(link.mac), link.mtu, link.max_mtu);
        return SwitchPort { mac, mtu, max_mtu, is_up: link.up, ..plain };
    }
    match kernel.bridge(name) {
        Some(bridge) => SwitchPort { kind: "bridge".to_owned(), mtu: bridge.mtu, is_up: bridge.up, ..plain },
        None => plain,
    }
}

fn index_of(kernel: &Kernel, name: &str) -> u32 {
    let of_card = kernel
        .links_in(None)
        .find(|device| kernel.device_link(*device).is_some_and(|link| link.name == name));
    let of_veth = || kernel.veths.get(name).map(|veth| veth.index);
    let hash = || name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let of_card = of_card.map(|device| kernel.index_of(device));
    of_card.or_else(of_veth).unwrap_or_else(|| FIRST_VIRTUAL_INDEX + hash() % 1_000_000)
}

fn read_ovs(kernel: &Kernel, socket: &OvsSocket) -> OvsSwitchFacts {
    match check_socket(kernel, socket, "read the database of Open vSwitch") {
        Ok(()) => OvsSwitchFacts::Running { bridges: kernel.ovs_switch_bridges() },
        Err(error) => OvsSwitchFacts::Down { reason: format_error_chain(&error) },
    }
}

/// Fails if no server answers on a socket.
pub(super) fn check_socket(kernel: &Kernel, socket: &OvsSocket, attempt: &str) -> Result<(), HostError> {
    match socket {
        OvsSocket::Unix(path) if path == OVS_SOCKET => kernel.ovs.check_server(attempt),
        other => {
            let (attempt, socket) = (attempt.to_owned(), other.to_string());
            Err(HostError::OvsNotRunning { attempt, socket })
        }
    }
}

/// Reads a file of the node.
pub(super) fn read_file(kernel: &Kernel, path: &str) -> FileFacts {
    let owned = path.to_owned();
    match kernel.cni.files.get(path) {
        Some(content) => FileFacts::Present { path: owned, content: content.clone() },
        None => FileFacts::Missing { path: owned },
    }
}
