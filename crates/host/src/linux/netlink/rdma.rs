//! RDMA devices, and how network namespaces share them.

use vfleet_api::pool_config::RdmaMode;

use super::Request;
use super::attribute::Received;

/// The number of this part of the kernel. To connect to it makes a kernel without RDMA load the module.
pub(in crate::linux) const PROTOCOL: isize = 20;

const RDMA_NL_NLDEV: u16 = 5;
const RDMA_NLDEV_CMD_SYS_GET: u16 = 6;
const RDMA_NLDEV_SYS_ATTR_NETNS_MODE: u16 = 66;

/// Asks for what holds for all RDMA devices.
pub(in crate::linux) fn get_system() -> Request {
    Request { kind: (RDMA_NL_NLDEV << 10) + RDMA_NLDEV_CMD_SYS_GET, body: Vec::new() }
}

/// Parses the answer to [`get_system`]. Kernels before 5.2 do not say: their namespaces share. `None` when it cannot be
/// read.
pub(in crate::linux) fn netns_mode(answer: &[u8]) -> Option<RdmaMode> {
    match Received::parse(answer)?.get(RDMA_NLDEV_SYS_ATTR_NETNS_MODE) {
        None | Some([1]) => Some(RdmaMode::Shared),
        Some([0]) => Some(RdmaMode::Exclusive),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::attribute::Attributes;
    use super::*;

    #[test]
    fn reads_the_mode() {
        let answer = |mode| Attributes::default().with_u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, mode).after(&[]);
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
