//! Execution of the steps of attachments. The effect of every step is verified by reading it back.

mod addresses;
mod announce;
mod bridge_port;
mod device_info;
mod frames;
mod mac;
mod mirror;
mod ovs_port;
mod pod;
mod rdma;
mod representor;
mod switch;
mod transfer;
mod uplink_vlans;
mod vdpa;
mod veth;
mod vf;

use vfleet_plan::cni::facts::VfSettings;
use vfleet_plan::cni::step::CniStep;

use super::go_files;
use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::steps::{bind, links};

/// Executes a step and verifies its effect.
pub(super) fn execute(root: &HostRoot, step: &CniStep) -> Result<(), HostError> {
    match step {
        CniStep::SetVf { vf, settings } => vf::set(root, *vf, settings),
        CniStep::SetVfLinkState { vf, state } => {
            vf::set(root, *vf, &VfSettings { link_state: Some(*state), ..VfSettings::default() })
        }
        CniStep::SetVfGuid { vf, guid } => {
            links::set_vf_guid(root, *vf, *guid, &format!("set the GUID of {vf} to {guid}"))
        }
        CniStep::SetInterfaceMac { device, mac } => mac::set_on_host(root, *device, *mac),
        CniStep::Rebind { device } => {
            bind::rebind(root, *device, &format!("bind {device} to its driver again"))
        }
        CniStep::MoveToPod { device, namespace, name, drop_alt_names } => {
            transfer::move_to_pod(root, *device, namespace, name, drop_alt_names)
        }
        CniStep::ReturnToHost { device, namespace, pod_name, original } => {
            transfer::return_to_host(root, *device, namespace.as_ref(), pod_name, original)
        }
        CniStep::SetUpInPod { namespace, name, mtu, mac } => pod::set_up(root, namespace, name, *mtu, *mac),
        CniStep::AddAddresses { namespace, name, addresses } => {
            addresses::add(root, namespace, name, addresses)
        }
        CniStep::Announce { namespace, name, ips } => {
            announce::announce(root, namespace, name, ips);
            Ok(())
        }
        CniStep::MoveRdmaToPod { device, rdma, namespace } => {
            rdma::move_to_pod(root, *device, rdma, namespace)
        }
        CniStep::ReturnRdmaToHost { rdma, namespace, .. } => rdma::return_to_host(root, rdma, namespace),
        CniStep::WriteGoAllocation { device, path } => go_files::write_allocation(root, *device, path),
        CniStep::RemoveGoAllocation { device, path } => go_files::remove_allocation(root, *device, path),
        CniStep::Switch(step) => switch::execute(root, step),
    }
}
