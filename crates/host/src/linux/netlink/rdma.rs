//! Messages of RDMA: mode of network namespaces.

use vfleet_api::pool_config::RdmaMode;

use super::NetlinkRequest;
use super::attribute::ReceivedAttributes;

/// Protocol number. A connection makes a kernel without RDMA load its module.
pub(in crate::linux) const PROTOCOL: isize = 20;

const RDMA_NL_NLDEV: u16 = 5;
const RDMA_NLDEV_CMD_SYS_GET: u16 = 6;
const RDMA_NLDEV_SYS_ATTR_NETNS_MODE: u16 = 66;

/// Returns the request for the settings of the RDMA subsystem.
pub(in crate::linux) fn get_system() -> NetlinkRequest {
    NetlinkRequest { kind: (RDMA_NL_NLDEV << 10) + RDMA_NLDEV_CMD_SYS_GET, body: Vec::new() }
}

/// Parses the answer to [`get_system`]; `None` if it is invalid. Kernels before 5.2 report no mode and are always
/// shared.
pub(in crate::linux) fn parse_netns_mode(answer: &[u8]) -> Option<RdmaMode> {
    match ReceivedAttributes::parse(answer)?.get(RDMA_NLDEV_SYS_ATTR_NETNS_MODE) {
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
    fn parses_the_mode() {
        let answer = |mode| Attributes::default().with_u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, mode).after(&[]);
        assert_eq!(parse_netns_mode(&answer(1)), Some(RdmaMode::Shared));
        assert_eq!(parse_netns_mode(&answer(0)), Some(RdmaMode::Exclusive));
        assert_eq!(parse_netns_mode(&answer(7)), None);
        assert_eq!(parse_netns_mode(&[]), Some(RdmaMode::Shared));
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse_netns_mode(&bytes);
        }
    }
}
