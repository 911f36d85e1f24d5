//! Network interfaces, asked for and changed through rtnetlink. Always by index: names change.

mod link;
mod reply;

pub(super) use link::{Link, is_virtual};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkMessage, LinkVfInfo, VfInfo, VfInfoMac,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

use vfleet_api::MacAddr;

use self::reply::Reply;
use crate::HostError;

/// A conversation with the kernel about network interfaces.
pub(super) struct Rtnl {
    socket: Socket,
    sequence: u32,
}

impl Rtnl {
    pub(super) fn open() -> Result<Self, HostError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Say in words why something is refused, and do not repeat the request.
            socket.set_ext_ack(true)?;
            socket.set_cap_ack(true)?;
            Ok(Self { socket, sequence: 0 })
        };
        open().map_err(|source| failed("open a netlink socket", source))
    }

    /// The interface with this index, with what it keeps for its VFs.
    pub(super) fn link(&mut self, index: u32) -> Result<Link, HostError> {
        let attempt = format!("read interface {index}");
        let mut message = about(index);
        // Without the VFs' counters: with them the list outgrows what a netlink attribute can hold at 200 VFs.
        let mask = vec![LinkExtentMask::Vf, LinkExtentMask::SkipStats];
        message.attributes.push(LinkAttribute::ExtMask(mask));
        let answer = self.ask(RouteNetlinkMessage::GetLink(message), 0, &attempt)?;
        let nonsense = || failed(&attempt, io::Error::other("the kernel's answer makes no sense"));
        answer.and_then(|payload| Link::parse(&payload)).ok_or_else(nonsense)
    }

    pub(super) fn set_up(&mut self, index: u32, attempt: &str) -> Result<(), HostError> {
        let mut message = about(index);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.set(message, attempt)
    }

    pub(super) fn set_mtu(&mut self, index: u32, mtu: u32, attempt: &str) -> Result<(), HostError> {
        let mut message = about(index);
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.set(message, attempt)
    }

    pub(super) fn set_vf_mac(
        &mut self,
        pf_index: u32,
        vf: u16,
        mac: MacAddr,
        attempt: &str,
    ) -> Result<(), HostError> {
        let mut message = about(pf_index);
        let info = VfInfo::Mac(VfInfoMac::new(vf.into(), &mac.0));
        message.attributes.push(LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![info])]));
        self.set(message, attempt)
    }

    fn set(&mut self, message: LinkMessage, attempt: &str) -> Result<(), HostError> {
        self.ask(RouteNetlinkMessage::SetLink(message), NLM_F_ACK, attempt).map(drop)
    }

    /// Sends a request and gives the payload of the answer; `None` for a bare "done".
    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        attempt: &str,
    ) -> Result<Option<Vec<u8>>, HostError> {
        self.sequence += 1;
        let request = encode(message, flags | NLM_F_REQUEST, self.sequence);
        self.socket.send(&request, 0).map_err(|source| failed(attempt, source))?;
        loop {
            let (bytes, _) = self.socket.recv_from_full().map_err(|source| failed(attempt, source))?;
            match Reply::parse(&bytes, self.sequence) {
                Some(Reply::Data(payload)) => return Ok(Some(payload)),
                Some(Reply::Done) => return Ok(None),
                Some(Reply::Refused { errno, message }) => {
                    let source = io::Error::from_raw_os_error(errno);
                    return Err(HostError::Netlink { attempt: attempt.to_owned(), message, source });
                }
                // An answer to an earlier question that nobody waited for.
                None => {}
            }
        }
    }
}

fn about(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn encode(message: RouteNetlinkMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    bytes
}

fn failed(attempt: &str, source: io::Error) -> HostError {
    HostError::Netlink { attempt: attempt.to_owned(), message: None, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_describes_its_loopback() {
        let link = Rtnl::open().unwrap().link(1).unwrap();
        assert_eq!((link.name.as_str(), link.mac), ("lo", Some(MacAddr::ZERO)));
        assert!(link.mtu > 0 && link.vf_macs.is_empty());
    }

    #[test]
    fn an_interface_that_is_not_there_is_no_such_device() {
        let error = Rtnl::open().unwrap().link(999_999).unwrap_err();
        assert_eq!((error.errno(), error.reason()), (Some(19), "NetlinkRefused"));
        assert_eq!(error.to_string(), "cannot read interface 999999");
    }
}
