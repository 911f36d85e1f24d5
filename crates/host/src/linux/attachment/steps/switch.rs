//! Execution of the steps on the switch side of attachments.

use vfleet_plan::cni::step::SwitchStep;

use super::mirror::MirrorPlace;
use super::{bridge_port, device_info, mac, mirror, ovs_port, representor, uplink_vlans, vdpa, veth};
use crate::HostError;
use crate::linux::netlink::rtnl::{VethEnd, VethPair};
use crate::linux::root::HostRoot;
use crate::linux::steps::links;

/// Executes a step and verifies its effect.
pub(super) fn execute(root: &HostRoot, step: &SwitchStep) -> Result<(), HostError> {
    match step {
        SwitchStep::CreateVeth { host_name, host_mac, namespace, name, mac, mtu } => {
            let pod = VethEnd { name, mac: *mac };
            let host = VethEnd { name: host_name, mac: *host_mac };
            veth::create(root, namespace, &VethPair { pod, host, mtu: *mtu })
        }
        SwitchStep::DeleteVeth { host_name, host_mac } => veth::delete(host_name, *host_mac),
        SwitchStep::DeleteVethInPod { namespace, name } => veth::delete_in_pod(root, namespace, name),
        SwitchStep::SetHostInterfaceUp { name } => veth::set_host_up(name),
        SwitchStep::SetRepresentor { representor, mtu, is_up } => {
            representor::set(root, representor, *mtu, *is_up)
        }
        SwitchStep::SetDeviceMtu { device, mtu } => {
            let attempt = format!("set the MTU of {device} to {mtu}");
            links::set_mtu(mac::require_index(root, *device)?, *mtu, &attempt)
        }
        SwitchStep::SetVdpaMac { device, name, mac } => vdpa::set_mac(root, *device, name, *mac),
        SwitchStep::AddOvsPort { socket, bridge, port } => ovs_port::add(root, socket, bridge, port),
        SwitchStep::RemoveOvsPort { socket, name, external_ids } => {
            ovs_port::remove(root, socket, name, external_ids)
        }
        SwitchStep::AwaitOvsLink { socket, name, limit } => ovs_port::await_link(root, socket, name, *limit),
        SwitchStep::AttachMirror { socket, bridge, mirror, port, role } => {
            mirror::attach(root, socket, MirrorPlace { bridge, mirror, port, role: *role })
        }
        SwitchStep::DetachMirror { socket, bridge, mirror, port, role } => {
            mirror::detach(root, socket, MirrorPlace { bridge, mirror, port, role: *role })
        }
        SwitchStep::RemoveUnusedMirror { socket, bridge, mirror } => {
            mirror::remove_unused(root, socket, bridge, mirror)
        }
        SwitchStep::AttachBridgePort { representor, bridge, vlans } => {
            bridge_port::attach(root, representor, bridge, vlans.as_deref())
        }
        SwitchStep::DetachBridgePort { representor, bridge } => {
            bridge_port::detach(root, representor, bridge)
        }
        SwitchStep::AddUplinkVlans { uplink, vlans } => uplink_vlans::add(uplink, vlans),
        SwitchStep::RemoveUplinkVlans { uplink, vlans } => uplink_vlans::remove(uplink, vlans),
        SwitchStep::WriteDeviceInfo { path, content } => device_info::write(root, path, content),
    }
}
