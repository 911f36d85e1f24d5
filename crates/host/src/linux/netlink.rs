//! Questions to the kernel and its answers, whatever they are about.

mod attribute;
mod reply;

pub(super) use attribute::{Attribute, Attributes, attributes, find, text};
pub(super) use reply::{Message, Reply, all_messages, messages};

use std::io;

use netlink_sys::{Socket, SocketAddr};

use crate::HostError;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_HEADER: usize = 16;

/// A conversation with one part of the kernel.
pub(super) struct Conversation {
    socket: Socket,
    sequence: u32,
}

impl Conversation {
    /// With the part of this number (`NETLINK_ROUTE`...).
    pub(super) fn open(protocol: isize) -> Result<Self, HostError> {
        let open = || {
            let mut socket = Socket::new(protocol)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Say in words why something is refused, and do not repeat the request.
            socket.set_ext_ack(true)?;
            socket.set_cap_ack(true)?;
            Ok(Self { socket, sequence: 0 })
        };
        open().map_err(|source| failed("open a netlink socket", source))
    }

    /// Asks about one thing; gives the answer's payload.
    pub(super) fn ask(&mut self, kind: u16, body: &[u8], attempt: &str) -> Result<Vec<u8>, HostError> {
        self.send(kind, NLM_F_REQUEST, body, attempt)?;
        let mut answer = None;
        self.receive(attempt, |payload| {
            answer = Some(payload.to_vec());
            false
        })?;
        answer.ok_or_else(|| nonsense(attempt))
    }

    /// Has something changed, and waits until that is done.
    pub(super) fn change(&mut self, kind: u16, body: &[u8], attempt: &str) -> Result<(), HostError> {
        self.send(kind, NLM_F_REQUEST | NLM_F_ACK, body, attempt)?;
        self.receive(attempt, |_| true)
    }

    /// Asks about all things of a kind; gives what `read` makes of them. What it does not understand is an error.
    pub(super) fn list<T>(
        &mut self,
        kind: u16,
        body: &[u8],
        attempt: &str,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, HostError> {
        self.send(kind, NLM_F_REQUEST | NLM_F_DUMP, body, attempt)?;
        let mut all = Some(Vec::new());
        self.receive(attempt, |payload| {
            match (read(payload), &mut all) {
                (Some(one), Some(all)) => all.push(one),
                _ => all = None,
            }
            true
        })?;
        all.ok_or_else(|| nonsense(attempt))
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8], attempt: &str) -> Result<(), HostError> {
        self.sequence += 1;
        let request = encode(kind, flags, self.sequence, body).ok_or_else(|| nonsense(attempt))?;
        self.socket.send(&request, 0).map(drop).map_err(|source| failed(attempt, source))
    }

    /// Takes answers until the kernel is done, or `take` has enough.
    fn receive(&mut self, attempt: &str, mut take: impl FnMut(&[u8]) -> bool) -> Result<(), HostError> {
        loop {
            let (bytes, _) = self.socket.recv_from_full().map_err(|source| failed(attempt, source))?;
            let messages = all_messages(&bytes).ok_or_else(|| nonsense(attempt))?;
            // Others are answers to an earlier question that nobody waited for.
            for message in messages.into_iter().filter(|message| message.sequence == self.sequence) {
                match Reply::of(&message) {
                    Reply::Data(payload) if take(payload) => {}
                    Reply::Data(_) | Reply::Done => return Ok(()),
                    Reply::Interrupted => {
                        return Err(HostError::Unsettled { what: format!("what it takes to {attempt}") });
                    }
                    Reply::Refused { errno, message } => {
                        let source = io::Error::from_raw_os_error(errno);
                        return Err(HostError::Netlink { attempt: attempt.to_owned(), message, source });
                    }
                }
            }
        }
    }
}

fn encode(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(NLMSG_HEADER + body.len()).ok()?;
    let port = [0; 4];
    Some(
        [
            &length.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &sequence.to_ne_bytes(),
            &port,
            body,
        ]
        .concat(),
    )
}

pub(super) fn failed(attempt: &str, source: io::Error) -> HostError {
    HostError::Netlink { attempt: attempt.to_owned(), message: None, source }
}

/// An answer that is none.
pub(super) fn nonsense(attempt: &str) -> HostError {
    failed(attempt, io::Error::other("the kernel's answer makes no sense"))
}
