//! Messages of the kernel, and what they mean to the one who sent a request.

use super::attribute::Received;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
pub(super) const NLMSG_HEADER: usize = 16;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// A message of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::linux) struct Message<'a> {
    pub(in crate::linux) kind: u16,
    flags: u16,
    pub(super) sequence: u32,
    pub(in crate::linux) payload: &'a [u8],
}

/// Returns the messages that were received at once. What follows an unreadable one is lost.
pub(in crate::linux) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let (message, length) = first(bytes)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Returns the messages that were received at once; `None` when they are not all that was received. A list that lacks
/// some must not be taken for whole.
pub(in crate::linux) fn all_messages(bytes: &[u8]) -> Option<Vec<Message<'_>>> {
    let found: Vec<_> = messages(bytes).collect();
    let lengths = found.iter().map(|message| (NLMSG_HEADER + message.payload.len()).next_multiple_of(4));
    (lengths.sum::<usize>() >= bytes.len()).then_some(found)
}

fn first(bytes: &[u8]) -> Option<(Message<'_>, usize)> {
    let header = bytes.first_chunk::<NLMSG_HEADER>()?;
    let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let length = usize::try_from(word(0)).ok()?;
    let payload = bytes.get(NLMSG_HEADER..length)?;
    Some((Message { kind: half(4), flags: half(6), sequence: word(8), payload }, length))
}

/// The meaning of a message to the one who sent a request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::linux) enum Reply<'a> {
    Data(&'a [u8]),
    Done,
    /// Nothing: to be skipped.
    Empty,
    /// The list may not be whole: things changed while they were listed, or data was lost.
    Incomplete,
    Refused {
        errno: i32,
        message: Option<String>,
    },
}

impl<'a> Reply<'a> {
    pub(in crate::linux) fn of(message: &Message<'a>) -> Self {
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
                message: explanation(message, rest),
            },
            _ => Self::Done,
        }
    }
}

/// Returns the kernel's words. In a refusal they follow the request's header, when the request itself is left out.
fn explanation(message: &Message<'_>, rest: &[u8]) -> Option<String> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let words = match message.kind {
        NLMSG_DONE => rest,
        _ if message.flags & NLM_F_CAPPED == 0 => return None,
        _ => rest.get(NLMSG_HEADER..)?,
    };
    let words = Received::parse(words)?.text(NLMSGERR_ATTR_MSG)?;
    Some(words.trim_end_matches('.').to_owned()).filter(|words| !words.is_empty())
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
    fn a_refusal_carries_the_kernels_words() {
        let mut payload = (-22_i32).to_ne_bytes().to_vec();
        payload.extend([0; NLMSG_HEADER]);
        payload.extend(9_u16.to_ne_bytes());
        payload.extend(NLMSGERR_ATTR_MSG.to_ne_bytes());
        payload.extend(b"too.\0\0\0\0");
        let bytes = packet(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, 7, &payload);
        let message = messages(&bytes).next().unwrap();
        assert_eq!(message.sequence, 7);
        assert_eq!(Reply::of(&message), Reply::Refused { errno: 22, message: Some("too".to_owned()) });
    }

    #[test]
    fn no_error_is_done() {
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            let bytes = packet(kind, NLM_F_CAPPED, 1, &[0; 20]);
            assert_eq!(Reply::of(&messages(&bytes).next().unwrap()), Reply::Done);
        }
    }

    #[test]
    fn several_messages_come_at_once() {
        let bytes = [packet(16, 2, 3, &[1; 5]), vec![0; 3], packet(NLMSG_DONE, 2, 3, &[0; 4])].concat();
        let replies: Vec<Vec<u8>> = messages(&bytes)
            .map(|message| match Reply::of(&message) {
                Reply::Data(payload) => payload.to_vec(),
                other => format!("{other:?}").into_bytes(),
            })
            .collect();
        assert_eq!(replies, [vec![1; 5], b"Done".to_vec()]);
    }

    #[test]
    fn a_list_that_was_interrupted_is_not_believed() {
        let bytes = packet(16, NLM_F_DUMP_INTR, 3, &[1; 4]);
        assert_eq!(Reply::of(&messages(&bytes).next().unwrap()), Reply::Incomplete);
    }

    #[test]
    fn a_list_that_lost_data_is_not_believed() {
        let bytes = packet(NLMSG_OVERRUN, 0, 3, &[]);
        assert_eq!(Reply::of(&messages(&bytes).next().unwrap()), Reply::Incomplete);
    }

    #[test]
    fn a_message_that_means_nothing_is_no_data() {
        let bytes = packet(NLMSG_NOOP, 0, 3, &[1; 4]);
        assert_eq!(Reply::of(&messages(&bytes).next().unwrap()), Reply::Empty);
    }

    #[test]
    fn messages_with_something_else_behind_them_are_not_all() {
        let one = [&20_u32.to_ne_bytes()[..], &[0; 16]].concat();
        assert_eq!(all_messages(&one).map(|found| found.len()), Some(1));
        assert_eq!(all_messages(&[&one[..], &one].concat()).map(|found| found.len()), Some(2));
        assert_eq!(all_messages(&[&one[..], &one[..19]].concat()), None);
        assert_eq!(all_messages(&[&one[..], &[0; 4]].concat()), None);
    }

    proptest! {
        #[test]
        fn takes_any_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            kind in 0_u16..6,
            flags: u16,
        ) {
            messages(&bytes).for_each(|message| drop(Reply::of(&message)));
            messages(&packet(kind, flags | 0x300, 1, &bytes)).for_each(|message| drop(Reply::of(&message)));
        }
    }
}
