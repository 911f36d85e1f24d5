//! RDMA devices.

use std::os::fd::AsRawFd;
use std::path::Path;

use vfleet_api::Guid;
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::RdmaFacts;

use super::netlink::rdma::{self as wire, RdmaDevice};
use super::netlink::{NetlinkConnection, invalid_answer};
use super::root::HostRoot;
use super::sysfs;
use crate::HostError;

/// Directory of the RDMA devices of a PCI function.
const CLASS: &str = "infiniband";
/// Length of the subnet prefix in a GID: `fe80:0000:0000:0000:`.
const GID_PREFIX_LENGTH: usize = 20;

/// Reads the RDMA mode of network namespaces; `None` if the kernel has no RDMA.
pub(super) fn read_mode(root: &HostRoot) -> Result<Option<RdmaMode>, HostError> {
    // The request would make a kernel without RDMA load its module.
    if !root.rdma_class().exists() {
        return Ok(None);
    }
    let attempt = "read the RDMA mode of network namespaces";
    let answer = NetlinkConnection::open(wire::PROTOCOL)?.get(&wire::get_system(), attempt)?;
    wire::parse_netns_mode(&answer).map(Some).ok_or_else(|| invalid_answer(attempt))
}

/// Lists the names of the RDMA devices that the network namespace of this thread shows.
pub(super) fn list_names(root: &HostRoot) -> Result<Vec<String>, HostError> {
    Ok(list(root)?.into_iter().map(|device| device.name).collect())
}

/// Lists the names of the RDMA devices of the PCI function at `device` that the network namespace of this thread shows.
pub(super) fn names_of_device(device: &Path) -> Result<Vec<String>, HostError> {
    sysfs::list_names_if_exists(&device.join(CLASS))
}

/// Lists the RDMA devices that the network namespace of this thread shows; none if the kernel has no RDMA.
pub(super) fn list(root: &HostRoot) -> Result<Vec<RdmaDevice>, HostError> {
    if !root.rdma_class().exists() {
        return Ok(Vec::new());
    }
    let mut connection = NetlinkConnection::open(wire::PROTOCOL)?;
    connection.dump(&wire::list_devices(), "list the RDMA devices", RdmaDevice::parse)
}

/// Moves an RDMA device from the network namespace of this thread to another one.
pub(super) fn move_to(index: u32, namespace: &impl AsRawFd, attempt: &str) -> Result<(), HostError> {
    let descriptor = namespace.as_raw_fd().cast_unsigned();
    NetlinkConnection::open(wire::PROTOCOL)?.change(&wire::move_to(index, descriptor), attempt)
}

/// Renames an RDMA device of this namespace.
pub(super) fn rename(index: u32, name: &str, attempt: &str) -> Result<(), HostError> {
    NetlinkConnection::open(wire::PROTOCOL)?.change(&wire::rename(index, name), attempt)
}

/// Reads the RDMA device of the PCI function at `device`.
pub(super) fn of_device(device: &Path) -> Result<Option<RdmaFacts>, HostError> {
    let Some(path) = sysfs::list_paths_if_exists(&device.join(CLASS))?.into_iter().next() else {
        return Ok(None);
    };
    let node_guid: Guid = sysfs::read_as(&path.join("node_guid"), "a GUID", |text| text.parse().ok())?;
    let port_guid = read_port_guid(&path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Some(RdmaFacts { device: name.into_owned(), node_guid, port_guid }))
}

/// Reads the GUID of the first port: the second half of the first GID of the port.
fn read_port_guid(device: &Path) -> Result<Option<Guid>, HostError> {
    let guid = |text: &str| text.get(GID_PREFIX_LENGTH..)?.parse().ok();
    let guid: Option<Guid> = sysfs::read_if_exists(&device.join("ports/1/gids/0"), "a GID", guid)?;
    Ok(guid.filter(|guid| guid.0 != [0; 8]))
}
