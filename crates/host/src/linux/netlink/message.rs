//! Netlink messages of the kernel.

use super::attribute::ReceivedAttributes;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
pub(super) const NLMSG_HEADER: usize = 16;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Message of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::linux) struct NetlinkMessage<'a> {
    pub(in crate::linux) kind: u16,
    flags: u16,
    pub(super) sequence: u32,
    pub(in crate::linux) payload: &'a [u8],
}

/// Returns the messages in one datagram. Messages after an invalid one are lost.
pub(in crate::linux) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = NetlinkMessage<'_>> {
    std::iter::from_fn(move || {
        let (message, length) = first_message(bytes)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Returns the messages in one datagram; `None` if some of them are invalid, because an incomplete list must not count
/// as complete.
pub(in crate::linux) fn all_messages(bytes: &[u8]) -> Option<Vec<NetlinkMessage<'_>>> {
    let found: Vec<_> = messages(bytes).collect();
    let lengths = found.iter().map(|message| (NLMSG_HEADER + message.payload.len()).next_multiple_of(4));
    (lengths.sum::<usize>() >= bytes.len()).then_some(found)
}

fn first_message(bytes: &[u8]) -> Option<(NetlinkMessage<'_>, usize)> {
    let header = bytes.first_chunk::<NLMSG_HEADER>()?;
    let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let length = usize::try_from(word(0)).ok()?;
    let payload = bytes.get(NLMSG_HEADER..length)?;
    Some((NetlinkMessage { kind: half(4), flags: half(6), sequence: word(8), payload }, length))
}

impl NetlinkMessage<'_> {
    /// Returns whether no other message of the same reply follows.
    pub(in crate::linux) fn is_last(&self) -> bool {
        matches!(self.kind, NLMSG_ERROR | NLMSG_DONE | NLMSG_OVERRUN)
    }
}

/// Reply of the kernel to a request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::linux) enum Reply<'a> {
    Data(&'a [u8]),
    Done,
    /// No content; to be skipped.
    Empty,
    /// The list may be incomplete: objects changed while they were listed, or data was lost.
    Incomplete,
    Refused {
        errno: i32,
        message: Option<String>,
    },
}

impl<'a> Reply<'a> {
    pub(in crate::linux) fn from_message(message: &NetlinkMessage<'a>) -> Self {
        if message.flags & NLM_F_DUMP_INTR != 0 {
            return Self::Incomplete;
        }
        match message.kind {
            NLMSG_ERROR | NLMSG_DONE => {}
            NLMSG_NOOP => return Self::Empty,
            NLMSG_OVERRUN => return Self::Incomplete,
            _ => return Self::Data(message.payload),
        }
        match message.payload.split_first_chunk::<4>() {
            Some((code, rest)) if i32::from_ne_bytes(*code) < 0 => Self::Refused {
                errno: i32::from_ne_bytes(*code).saturating_neg(),
                message: error_text(message, rest),
            },
            _ => Self::Done,
        }
    }
}

/// Returns the text of an error. It follows the header of the request, if the request itself is left out.
fn error_text(message: &NetlinkMessage<'_>, rest: &[u8]) -> Option<String> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let attributes = match message.kind {
        NLMSG_DONE => rest,
        _ if message.flags & NLM_F_CAPPED == 0 => return None,
        _ => rest.get(NLMSG_HEADER..)?,
    };
    let text = ReceivedAttributes::parse(attributes)?.text(NLMSGERR_ATTR_MSG)?;
    Some(text.trim_end_matches('.').to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(NLMSG_HEADER + payload.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn an_error_contains_the_text_of_the_kernel() {
        let mut payload = (-22_i32).to_ne_bytes().to_vec();
        payload.extend([0; NLMSG_HEADER]);
        payload.extend(9_u16.to_ne_bytes());
        payload.extend(NLMSGERR_ATTR_MSG.to_ne_bytes());
        payload.extend(b"too.\0\0\0\0");
        let bytes = packet(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, 7, &payload);
        let message = messages(&bytes).next().unwrap();
        assert_eq!(message.sequence, 7);
        assert_eq!(
            Reply::from_message(&message),
            Reply::Refused { errno: 22, message: Some("too".to_owned()) }
        );
    }

    #[test]
    fn an_error_message_with_code_zero_is_done() {
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            let bytes = packet(kind, NLM_F_CAPPED, 1, &[0; 20]);
            assert_eq!(Reply::from_message(&messages(&bytes).next().unwrap()), Reply::Done);
        }
    }

    #[test]
    fn a_datagram_may_contain_several_messages() {
        let bytes = [packet(16, 2, 3, &[1; 5]), vec![0; 3], packet(NLMSG_DONE, 2, 3, &[0; 4])].concat();
        let replies: Vec<Vec<u8>> = messages(&bytes)
            .map(|message| match Reply::from_message(&message) {
                Reply::Data(payload) => payload.to_vec(),
                other => format!("{other:?}").into_bytes(),
            })
            .collect();
        assert_eq!(replies, [vec![1; 5], b"Done".to_vec()]);
    }

    #[test]
    fn an_interrupted_list_is_incomplete() {
        let bytes = packet(16, NLM_F_DUMP_INTR, 3, &[1; 4]);
        assert_eq!(Reply::from_message(&messages(&bytes).next().unwrap()), Reply::Incomplete);
    }

    #[test]
    fn a_list_with_lost_data_is_incomplete() {
        let bytes = packet(NLMSG_OVERRUN, 0, 3, &[]);
        assert_eq!(Reply::from_message(&messages(&bytes).next().unwrap()), Reply::Incomplete);
    }

    #[test]
    fn a_noop_message_is_empty() {
        let bytes = packet(NLMSG_NOOP, 0, 3, &[1; 4]);
        assert_eq!(Reply::from_message(&messages(&bytes).next().unwrap()), Reply::Empty);
    }

    #[test]
    fn messages_followed_by_invalid_bytes_are_not_complete() {
        let one = [&20_u32.to_ne_bytes()[..], &[0; 16]].concat();
        assert_eq!(all_messages(&one).map(|found| found.len()), Some(1));
        assert_eq!(all_messages(&[&one[..], &one].concat()).map(|found| found.len()), Some(2));
        assert_eq!(all_messages(&[&one[..], &one[..19]].concat()), None);
        assert_eq!(all_messages(&[&one[..], &[0; 4]].concat()), None);
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            kind in 0_u16..6,
            flags: u16,
        ) {
            messages(&bytes).for_each(|message| drop(Reply::from_message(&message)));
            messages(&packet(kind, flags | 0x300, 1, &bytes)).for_each(|message| drop(Reply::from_message(&message)));
        }
    }
}
