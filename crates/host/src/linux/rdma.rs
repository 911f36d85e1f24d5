//! RDMA devices.

use std::path::Path;

use vfleet_api::Guid;
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::RdmaFacts;

use super::netlink::{Conversation, attributes, find, nonsense};
use super::root::HostRoot;
use super::sysfs;
use crate::HostError;

const NETLINK_RDMA: isize = 20;
const RDMA_NL_NLDEV: u16 = 5;
const RDMA_NLDEV_CMD_SYS_GET: u16 = 6;
const RDMA_NLDEV_SYS_ATTR_NETNS_MODE: u16 = 66;

/// Whether network namespaces share the RDMA devices; `None` without RDMA.
pub(super) fn mode(root: &HostRoot) -> Result<Option<RdmaMode>, HostError> {
    // To ask a kernel without it would make it load the module.
    if !root.rdma_class().exists() {
        return Ok(None);
    }
    let attempt = "read the RDMA mode of network namespaces";
    let kind = (RDMA_NL_NLDEV << 10) + RDMA_NLDEV_CMD_SYS_GET;
    let answer = Conversation::open(NETLINK_RDMA)?.ask(kind, &[], attempt)?;
    netns_mode(&answer).map(Some).ok_or_else(|| nonsense(attempt))
}

/// Kernels before 5.2 do not say: their namespaces share. `None` for nonsense.
pub(super) fn netns_mode(answer: &[u8]) -> Option<RdmaMode> {
    match find(&attributes(answer)?, RDMA_NLDEV_SYS_ATTR_NETNS_MODE) {
        None | Some([1]) => Some(RdmaMode::Shared),
        Some([0]) => Some(RdmaMode::Exclusive),
        Some(_) => None,
    }
}

/// The RDMA device of the PCI function at `device`.
pub(super) fn of_device(device: &Path) -> Result<Option<RdmaFacts>, HostError> {
    let directory = device.join("infiniband");
    let Some(name) = sysfs::names_if_there(&directory)?.into_iter().next() else { return Ok(None) };
    let path = directory.join(&name).join("node_guid");
    let node_guid: Guid = sysfs::read_as(&path, "a GUID", |text| text.parse().ok())?;
    Ok(Some(RdmaFacts { device: name, node_guid }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::netlink::Attributes;
    use super::*;

    #[test]
    fn reads_the_mode() {
        let answer = |mode| Attributes::default().with(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, &[mode]).after(&[]);
        assert_eq!(netns_mode(&answer(1)), Some(RdmaMode::Shared));
        assert_eq!(netns_mode(&answer(0)), Some(RdmaMode::Exclusive));
        assert_eq!(netns_mode(&answer(7)), None);
        assert_eq!(netns_mode(&[]), Some(RdmaMode::Shared));
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = netns_mode(&bytes);
        }
    }
}
