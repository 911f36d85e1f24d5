//! RDMA devices.

use std::path::Path;

use vfleet_api::Guid;
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::RdmaFacts;

use super::netlink::{Connection, rdma as wire, unreadable};
use super::root::HostRoot;
use super::sysfs;
use crate::HostError;

/// Length of `fe80:0000:0000:0000:`, which tells the subnet.
const PREFIX_OF_A_GID: usize = 20;

/// Returns whether network namespaces share the RDMA devices; `None` without RDMA.
pub(super) fn mode(root: &HostRoot) -> Result<Option<RdmaMode>, HostError> {
    // To ask a kernel without it would make it load the module.
    if !root.rdma_class().exists() {
        return Ok(None);
    }
    let attempt = "read the RDMA mode of network namespaces";
    let answer = Connection::open(wire::PROTOCOL)?.get(&wire::get_system(), attempt)?;
    wire::netns_mode(&answer).map(Some).ok_or_else(|| unreadable(attempt))
}

/// Reads the RDMA device of the PCI function at `device`.
pub(super) fn of_device(device: &Path) -> Result<Option<RdmaFacts>, HostError> {
    let directory = device.join("infiniband");
    let Some(path) = sysfs::entries_if_there(&directory)?.into_iter().next() else { return Ok(None) };
    let node_guid: Guid = sysfs::read_as(&path.join("node_guid"), "a GUID", |text| text.parse().ok())?;
    let port_guid = port_guid(&path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Some(RdmaFacts { device: name.into_owned(), node_guid, port_guid }))
}

/// Reads the GUID of a device's first port: the second half of the port's first GID.
fn port_guid(device: &Path) -> Result<Option<Guid>, HostError> {
    let guid = |text: &str| text.get(PREFIX_OF_A_GID..)?.parse().ok();
    let guid: Option<Guid> = sysfs::read_if_there(&device.join("ports/1/gids/0"), "a GID", guid)?;
    Ok(guid.filter(|guid| guid.0 != [0; 8]))
}
