//! Messages of RDMA: devices, and their network namespaces.

use vfleet_api::pool_config::RdmaMode;

use super::NetlinkRequest;
use super::attribute::{Attributes, ReceivedAttributes};

/// Protocol number. A connection makes a kernel without RDMA load its module.
pub(in crate::linux) const PROTOCOL: isize = 20;

const RDMA_NL_NLDEV: u16 = 5;
const RDMA_NLDEV_CMD_GET: u16 = 1;
const RDMA_NLDEV_CMD_SET: u16 = 2;
const RDMA_NLDEV_CMD_SYS_GET: u16 = 6;
const RDMA_NLDEV_ATTR_DEV_INDEX: u16 = 1;
const RDMA_NLDEV_ATTR_DEV_NAME: u16 = 2;
const RDMA_NLDEV_SYS_ATTR_NETNS_MODE: u16 = 66;
const RDMA_NLDEV_NET_NS_FD: u16 = 68;

/// RDMA device that a network namespace shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct RdmaDevice {
    pub(in crate::linux) index: u32,
    pub(in crate::linux) name: String,
}

impl RdmaDevice {
    /// Parses an answer to [`list_devices`].
    pub(in crate::linux) fn parse(payload: &[u8]) -> Option<Self> {
        let attributes = ReceivedAttributes::parse(payload)?;
        let index = attributes.u32(RDMA_NLDEV_ATTR_DEV_INDEX)?;
        Some(Self { index, name: attributes.text(RDMA_NLDEV_ATTR_DEV_NAME)? })
    }
}

/// Returns the request for all RDMA devices that this network namespace shows.
pub(in crate::linux) fn list_devices() -> NetlinkRequest {
    NetlinkRequest { kind: kind(RDMA_NLDEV_CMD_GET), body: Vec::new() }
}

/// Returns the request that moves an RDMA device to the network namespace of an open file.
pub(in crate::linux) fn move_to(index: u32, namespace: u32) -> NetlinkRequest {
    let attributes = Attributes::default()
        .with_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index)
        .with_u32(RDMA_NLDEV_NET_NS_FD, namespace);
    NetlinkRequest { kind: kind(RDMA_NLDEV_CMD_SET), body: attributes.after(&[]) }
}

/// Returns the request that renames an RDMA device.
pub(in crate::linux) fn rename(index: u32, name: &str) -> NetlinkRequest {
    let attributes = Attributes::default()
        .with_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index)
        .with_text(RDMA_NLDEV_ATTR_DEV_NAME, name);
    NetlinkRequest { kind: kind(RDMA_NLDEV_CMD_SET), body: attributes.after(&[]) }
}

/// Returns the type of the messages of a command.
const fn kind(command: u16) -> u16 {
    (RDMA_NL_NLDEV << 10) + command
}

/// Returns the request for the settings of the RDMA subsystem.
pub(in crate::linux) fn get_system() -> NetlinkRequest {
    NetlinkRequest { kind: kind(RDMA_NLDEV_CMD_SYS_GET), body: Vec::new() }
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

    use super::*;

    #[test]
    fn parses_devices() {
        let both = Attributes::default().with_u32(1, 3).with_text(2, "mlx5_2").with_u32(5, 9).after(&[]);
        assert_eq!(RdmaDevice::parse(&both), Some(RdmaDevice { index: 3, name: "mlx5_2".to_owned() }));
        assert_eq!(RdmaDevice::parse(&Attributes::default().with_u32(1, 3).after(&[])), None);
        assert_eq!(RdmaDevice::parse(&Attributes::default().with_text(2, "mlx5_2").after(&[])), None);
    }

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
            let _ = (parse_netns_mode(&bytes), RdmaDevice::parse(&bytes));
        }
    }
}
