//! Connections to the kernel.

use std::io;

use netlink_sys::{Socket, SocketAddr};
use nix::libc::MSG_TRUNC;

use super::message::{NLMSG_HEADER, Reply, all_messages};
use crate::HostError;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

/// Initial size of the buffer for answers: the kernel puts as much of a list into one message.
const BUFFER: usize = 32 << 10;

/// Message to the kernel: its type, and its body after the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct NetlinkRequest {
    pub(in crate::linux) kind: u16,
    pub(in crate::linux) body: Vec<u8>,
}

/// Socket that is connected to one subsystem of the kernel. Serves one request at a time.
pub(in crate::linux) struct NetlinkConnection {
    socket: Socket,
    sequence: u32,
    /// Last datagram. Its capacity grows for longer ones.
    buffer: Vec<u8>,
}

/// End of receiving an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    Complete,
    /// A part was lost, because the buffer was too small.
    Truncated,
}

impl NetlinkConnection {
    /// Connects to the subsystem with this protocol number, such as `NETLINK_ROUTE`.
    pub(in crate::linux) fn open(protocol: isize) -> Result<Self, HostError> {
        let open = || {
            let socket = Socket::new(protocol)?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Errors contain a text of the driver, and do not repeat the request.
            socket.set_ext_ack(true)?;
            socket.set_cap_ack(true)?;
            Ok(Self { socket, sequence: 0, buffer: Vec::new() })
        };
        open().map_err(|source| failed("open a netlink socket", source))
    }

    /// Reads one object and returns the payload of the answer.
    pub(in crate::linux) fn get(
        &mut self,
        request: &NetlinkRequest,
        attempt: &str,
    ) -> Result<Vec<u8>, HostError> {
        loop {
            self.send(request, NLM_F_REQUEST, attempt)?;
            let mut answer = None;
            let received = self.receive(attempt, |payload| {
                answer = Some(payload.to_vec());
                false
            })?;
            // An interface with hundreds of VFs. The buffer is large enough now.
            if received == Received::Complete {
                return answer.ok_or_else(|| invalid_answer(attempt));
            }
        }
    }

    /// Sends a request that changes something, and waits for the acknowledgment.
    pub(in crate::linux) fn change(
        &mut self,
        request: &NetlinkRequest,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.send(request, NLM_F_REQUEST | NLM_F_ACK, attempt)?;
        self.receive_all(attempt, |_| true)
    }

    /// Sends a request that creates an object, and waits for the acknowledgment. An object that exists is an error.
    pub(in crate::linux) fn create(
        &mut self,
        request: &NetlinkRequest,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.send(request, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, attempt)?;
        self.receive_all(attempt, |_| true)
    }

    /// Lists all objects of a kind. An object that `parse` rejects is an error, because an incomplete list must not
    /// count as complete.
    pub(in crate::linux) fn dump<T>(
        &mut self,
        request: &NetlinkRequest,
        attempt: &str,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, HostError> {
        self.send(request, NLM_F_REQUEST | NLM_F_DUMP, attempt)?;
        let mut all = Some(Vec::new());
        self.receive_all(attempt, |payload| {
            match (parse(payload), &mut all) {
                (Some(one), Some(all)) => all.push(one),
                _ => all = None,
            }
            true
        })?;
        all.ok_or_else(|| invalid_answer(attempt))
    }

    fn send(&mut self, request: &NetlinkRequest, flags: u16, attempt: &str) -> Result<(), HostError> {
        self.sequence += 1;
        let bytes = encode(request, flags, self.sequence).ok_or_else(|| invalid_answer(attempt))?;
        self.socket.send(&bytes, 0).map(drop).map_err(|source| failed(attempt, source))
    }

    /// Like [`Self::receive`], for answers that fit into the buffer, which is as large as a message of a list can be.
    fn receive_all(&mut self, attempt: &str, take: impl FnMut(&[u8]) -> bool) -> Result<(), HostError> {
        match self.receive(attempt, take)? {
            Received::Complete => Ok(()),
            Received::Truncated => Err(invalid_answer(attempt)),
        }
    }

    /// Receives messages until the kernel is done, or `take` returns false. An incomplete list is received to its end, because
    /// until then the kernel refuses another list on the same socket (EBUSY).
    fn receive(&mut self, attempt: &str, mut take: impl FnMut(&[u8]) -> bool) -> Result<Received, HostError> {
        let mut is_complete = true;
        loop {
            if !self.receive_datagram().map_err(|source| failed(attempt, source))? {
                return Ok(Received::Truncated);
            }
            let messages = all_messages(&self.buffer).ok_or_else(|| invalid_answer(attempt))?;
            // Other messages belong to an earlier request whose answer was not awaited.
            for message in messages.into_iter().filter(|message| message.sequence == self.sequence) {
                match Reply::from_message(&message) {
                    Reply::Empty => {}
                    Reply::Incomplete if !message.is_last() => is_complete = false,
                    Reply::Data(payload) if !is_complete || take(payload) => {}
                    Reply::Data(_) | Reply::Done if is_complete => return Ok(Received::Complete),
                    Reply::Incomplete | Reply::Data(_) | Reply::Done => {
                        return Err(HostError::ConcurrentChange {
                            subject: format!("the kernel list that is needed to {attempt}"),
                        });
                    }
                    Reply::Refused { errno, message } => {
                        let source = io::Error::from_raw_os_error(errno);
                        return Err(HostError::Netlink { attempt: attempt.to_owned(), message, source });
                    }
                }
            }
        }
    }

    /// Receives one datagram. Returns whether it fits into the buffer, which is enlarged otherwise.
    fn receive_datagram(&mut self) -> io::Result<bool> {
        self.buffer.clear();
        self.buffer.reserve(BUFFER);
        let (length, _) = self.socket.recv_from(&mut self.buffer, MSG_TRUNC)?;
        let is_whole = length <= self.buffer.len();
        if !is_whole {
            self.buffer.clear();
            self.buffer.reserve(length);
        }
        Ok(is_whole)
    }
}

fn encode(request: &NetlinkRequest, flags: u16, sequence: u32) -> Option<Vec<u8>> {
    let length = u32::try_from(NLMSG_HEADER + request.body.len()).ok()?;
    let port = [0; 4];
    Some(
        [
            &length.to_ne_bytes()[..],
            &request.kind.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &sequence.to_ne_bytes(),
            &port,
            &request.body,
        ]
        .concat(),
    )
}

/// Returns the error of a failed request.
pub(in crate::linux) fn failed(attempt: &str, source: io::Error) -> HostError {
    HostError::Netlink { attempt: attempt.to_owned(), message: None, source }
}

/// Returns the error of an answer that cannot be parsed.
pub(in crate::linux) fn invalid_answer(attempt: &str) -> HostError {
    failed(attempt, io::Error::other("the answer of the kernel is invalid"))
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NetlinkBuffer, NetlinkHeader, Parseable};

    use super::*;

    #[test]
    fn a_header_is_parsed_by_an_independent_parser() {
        let request = NetlinkRequest { kind: 19, body: vec![1; 6] };
        for (flags, name) in [(NLM_F_REQUEST | NLM_F_ACK, 0x5), (NLM_F_REQUEST | NLM_F_DUMP, 0x301)] {
            let bytes = encode(&request, flags, 7).unwrap();
            let buffer = NetlinkBuffer::new_checked(&bytes).unwrap();
            let header = NetlinkHeader::parse(&buffer).unwrap();
            let found = (header.length, header.message_type, header.flags, header.sequence_number);
            assert_eq!((found, buffer.payload()), ((22, 19, name, 7), &[1; 6][..]));
        }
    }
}
