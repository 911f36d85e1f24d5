//! Execution of the steps on the switch side, with the same requests as on a real host.

mod open_vswitch;

use std::collections::BTreeSet;

use vfleet_api::MacAddr;
use vfleet_plan::cni::facts::{BridgeVlan, Namespace, Representor};
use vfleet_plan::cni::step::SwitchStep;

use super::super::super::host::SimHost;
use super::super::super::namespaces::NamespacePath;
use super::super::switch::vdpa_name;
use crate::HostError;

pub(super) fn execute(host: &SimHost, step: &SwitchStep) -> Result<(), HostError> {
    match step {
        SwitchStep::CreateVeth { host_name, host_mac, namespace, name, mac, mtu } => {
            create_veth(host, (host_name, *host_mac), namespace, (name, *mac), *mtu)
        }
        SwitchStep::DeleteVeth { host_name, host_mac } => delete_veth(host, host_name, *host_mac),
        SwitchStep::DeleteVethInPod { namespace, name } => delete_veth_in_pod(host, namespace, name),
        SwitchStep::SetHostInterfaceUp { name } => {
            host.request(&format!("set {name} up"), |kernel| kernel.set_veth_up(name))
        }
        SwitchStep::SetRepresentor { representor, mtu, is_up } => {
            set_representor(host, representor, *mtu, *is_up)
        }
        SwitchStep::SetDeviceMtu { device, mtu } => {
            if host.visible_link(*device)?.mtu == *mtu {
                return Ok(());
            }
            host.request(&format!("set the MTU of {device}"), |kernel| kernel.set_own_mtu(*device, *mtu))
        }
        SwitchStep::SetVdpaMac { device, name, mac } => {
            let missing = || HostError::NoInterface { device: name.clone() };
            let vf = host.read_state(|kernel| kernel.vf_at(*device).ok_or_else(missing))?;
            if *name != vdpa_name(*device) {
                return Err(missing());
            }
            host.request(&format!("set the MAC of {name}"), |kernel| kernel.set_vdpa_mac(vf, *mac))
        }
        SwitchStep::AttachBridgePort { representor, bridge, vlans } => {
            attach_bridge_port(host, representor, bridge, vlans.as_deref())
        }
        SwitchStep::DetachBridgePort { representor, bridge } => detach_bridge_port(host, representor, bridge),
        SwitchStep::AddUplinkVlans { uplink, vlans } => add_uplink_vlans(host, uplink, vlans),
        SwitchStep::RemoveUplinkVlans { uplink, vlans } => remove_uplink_vlans(host, uplink, vlans),
        SwitchStep::WriteDeviceInfo { path, content } => host.effect("write a device-info file", |kernel| {
            kernel.cni.files.insert(path.clone(), content.clone());
            Ok(())
        }),
        of_ovs => open_vswitch::execute(host, of_ovs),
    }
}

fn create_veth(
    host: &SimHost,
    end: (&str, MacAddr),
    namespace: &Namespace,
    pod: (&str, MacAddr),
    mtu: u32,
) -> Result<(), HostError> {
    let inode = host.inode_of(namespace)?;
    let is_there = host.read_state(|kernel| {
        let veth = kernel.veths.get(end.0);
        let is_pair = |veth: &crate::sim::SimVeth| {
            let other = kernel.virtual_link(inode, pod.0);
            (veth.mac, veth.namespace, veth.peer.as_str()) == (end.1, inode, pod.0)
                && other.is_some_and(|link| link.mac == pod.1)
        };
        match veth {
            Some(veth) if is_pair(veth) => Ok(true),
            _ if kernel.is_name_used(None, end.0) => Err(taken(end.0)),
            _ if kernel.is_name_used(Some(inode), pod.0) => Err(taken(pod.0)),
            _ => Ok(false),
        }
    })?;
    if is_there {
        return Ok(());
    }
    host.request(&format!("create veth {}", end.0), |kernel| kernel.create_veth(end, inode, pod, mtu))
}

fn taken(name: &str) -> HostError {
    let attempt = "create a veth pair".to_owned();
    HostError::InterfaceNameTaken { attempt, name: name.to_owned() }
}

fn delete_veth(host: &SimHost, name: &str, mac: Option<MacAddr>) -> Result<(), HostError> {
    let is_own = |veth: &crate::sim::SimVeth| mac.is_none_or(|mac| veth.mac == mac);
    if !host.read_state(|kernel| Ok(kernel.veths.get(name).is_some_and(is_own)))? {
        return Ok(());
    }
    host.request(&format!("delete veth {name}"), |kernel| kernel.delete_veth(name))
}

/// Deletes a veth pair by its end in a pod. Nothing is left of it in a namespace that is gone.
fn delete_veth_in_pod(host: &SimHost, namespace: &Namespace, name: &str) -> Result<(), HostError> {
    let peer = host.read_state(|kernel| match kernel.namespaces.paths.get(&namespace.path) {
        Some(NamespacePath::Namespace(inode)) if kernel.identify(*inode).is_same(&namespace.id) => {
            Ok(kernel.virtual_link(*inode, name).and_then(|link| link.peer.clone()))
        }
        _ => Ok(None),
    })?;
    match peer {
        None => Ok(()),
        Some(peer) => host.request(&format!("delete veth {name}"), |kernel| kernel.delete_veth(&peer)),
    }
}

/// Fails if the representor of a VF is not called so.
fn check_representor(host: &SimHost, representor: &Representor, attempt: &str) -> Result<(), HostError> {
    if is_representor(host, representor)? {
        return Ok(());
    }
    let Representor { vf, name } = representor;
    Err(HostError::RepresentorNotFound { attempt: attempt.to_owned(), vf: *vf, name: name.clone() })
}

fn is_representor(host: &SimHost, representor: &Representor) -> Result<bool, HostError> {
    let Representor { vf, name } = representor;
    host.read_state(|kernel| {
        let found = kernel.pf(vf.pf).and_then(|pf| pf.vfs.get(usize::from(vf.index)));
        Ok(found.is_some_and(|found| found.representor.as_ref() == Some(name)))
    })
}

fn set_representor(
    host: &SimHost,
    representor: &Representor,
    mtu: Option<u32>,
    is_up: Option<bool>,
) -> Result<(), HostError> {
    check_representor(host, representor, &format!("configure {representor}"))?;
    let vf = representor.vf;
    let link = host.read_state(|kernel| {
        let found = kernel.pf(vf.pf).and_then(|pf| pf.vfs.get(usize::from(vf.index)));
        Ok(found.map(|vf| vf.representor_link).unwrap_or_default())
    })?;
    if let Some(mtu) = mtu.filter(|mtu| *mtu != link.mtu) {
        host.request(&format!("set the MTU of {representor}"), |kernel| {
            kernel.change_representor(vf, |link| link.mtu = mtu)
        })?;
    }
    if let Some(up) = is_up.filter(|up| *up != link.up) {
        host.request(&format!("set {representor} {}", if up { "up" } else { "down" }), |kernel| {
            kernel.change_representor(vf, |link| link.up = up)
        })?;
    }
    Ok(())
}

fn attach_bridge_port(
    host: &SimHost,
    representor: &Representor,
    bridge: &str,
    vlans: Option<&[BridgeVlan]>,
) -> Result<(), HostError> {
    let attempt = format!("attach {representor} to Linux bridge {bridge}");
    check_representor(host, representor, &attempt)?;
    let name = &representor.name;
    let master = host.read_state(|kernel| match kernel.bridge(bridge) {
        None => Err(HostError::NoLinuxBridge { attempt: attempt.clone(), bridge: bridge.to_owned() }),
        Some(_) => Ok(kernel.master_of(name)),
    })?;
    match master {
        Some(master) if master.name == bridge => {}
        None => host.request(&attempt, |kernel| kernel.add_bridge_port(bridge, name))?,
        Some(master) => {
            return Err(HostError::InterfaceHasMaster {
                attempt,
                interface: name.clone(),
                master: master.name,
            });
        }
    }
    let Some(vlans) = vlans else { return Ok(()) };
    let found = vlans_of(host, name)?;
    let is_wanted = |vlan: &&BridgeVlan| vlans.iter().any(|wanted| wanted.id == vlan.id);
    let removed: Vec<u16> = found.iter().filter(|vlan| !is_wanted(vlan)).map(|vlan| vlan.id).collect();
    let added: Vec<BridgeVlan> = vlans.iter().filter(|vlan| !found.contains(vlan)).copied().collect();
    if !removed.is_empty() {
        host.request(&format!("remove VLANs of {name}"), |kernel| kernel.remove_port_vlans(name, &removed))?;
    }
    if !added.is_empty() {
        host.request(&format!("add VLANs to {name}"), |kernel| kernel.add_port_vlans(name, &added))?;
    }
    Ok(())
}

fn vlans_of(host: &SimHost, name: &str) -> Result<Vec<BridgeVlan>, HostError> {
    host.read_state(|kernel| {
        let found = kernel.bridges.iter().find_map(|bridge| bridge.vlans.get(name));
        Ok(found.into_iter().flat_map(|vlans| vlans.values().copied()).collect())
    })
}

fn detach_bridge_port(host: &SimHost, representor: &Representor, bridge: &str) -> Result<(), HostError> {
    let name = &representor.name;
    let is_port = host.read_state(|kernel| {
        Ok(kernel.bridge(bridge).is_some_and(|bridge| bridge.ports.contains_key(name)))
    })?;
    if !is_port || !is_representor(host, representor)? {
        return Ok(());
    }
    host.request(&format!("detach {representor}"), |kernel| kernel.remove_bridge_port(bridge, name))
}

fn add_uplink_vlans(host: &SimHost, uplink: &str, vlans: &BTreeSet<u16>) -> Result<(), HostError> {
    if !host.read_state(|kernel| Ok(kernel.has_interface(uplink)))? {
        return Err(HostError::NoInterface { device: uplink.to_owned() });
    }
    let found = vlans_of(host, uplink)?;
    let is_missing = |id: &&u16| !found.iter().any(|vlan| vlan.id == **id);
    let added: Vec<_> = vlans.iter().filter(is_missing).map(|id| BridgeVlan::tagged(*id)).collect();
    if added.is_empty() {
        return Ok(());
    }
    host.request(&format!("add VLANs to {uplink}"), |kernel| kernel.add_port_vlans(uplink, &added))
}

fn remove_uplink_vlans(host: &SimHost, uplink: &str, vlans: &BTreeSet<u16>) -> Result<(), HostError> {
    let found = vlans_of(host, uplink)?;
    let removed: Vec<u16> = found.iter().map(|vlan| vlan.id).filter(|id| vlans.contains(id)).collect();
    if removed.is_empty() {
        return Ok(());
    }
    host.request(&format!("remove VLANs of {uplink}"), |kernel| kernel.remove_port_vlans(uplink, &removed))
}
