use netlink_packet_core::{NLM_F_ACK_TLVS, NLM_F_CAPPED, NetlinkBuffer, NlasIterator};

const NLMSG_ERROR: u16 = 2;
const NLMSG_HEADER: usize = 16;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// What the kernel answers to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Data(Vec<u8>),
    Done,
    Refused { errno: i32, message: Option<String> },
}

impl Reply {
    /// The reply to request number `sequence`; `None` when `bytes` is something else.
    pub(super) fn parse(bytes: &[u8], sequence: u32) -> Option<Self> {
        let packet = NetlinkBuffer::new_checked(bytes).ok()?;
        if packet.sequence_number() != sequence {
            return None;
        }
        if packet.message_type() != NLMSG_ERROR {
            return Some(Self::Data(packet.payload().to_vec()));
        }
        let (code, rest) = packet.payload().split_first_chunk::<4>()?;
        let code = i32::from_ne_bytes(*code);
        if code == 0 {
            return Some(Self::Done);
        }
        let message = explanation(rest, packet.flags());
        Some(Self::Refused { errno: code.saturating_neg(), message })
    }
}

/// The kernel's words, which follow the request's header when the request itself is left out.
fn explanation(rest: &[u8], flags: u16) -> Option<String> {
    if flags & NLM_F_ACK_TLVS == 0 || flags & NLM_F_CAPPED == 0 {
        return None;
    }
    let attributes = NlasIterator::new(rest.get(NLMSG_HEADER..)?);
    let words = attributes.map_while(Result::ok).find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)?;
    let text = words.value().split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).trim_end_matches('.').to_owned()).filter(|text| !text.is_empty())
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
        let refused = Reply::Refused { errno: 22, message: Some("too".to_owned()) };
        assert_eq!(Reply::parse(&bytes, 7), Some(refused));
        assert_eq!(Reply::parse(&bytes, 8), None);
    }

    #[test]
    fn no_error_is_done() {
        let bytes = packet(NLMSG_ERROR, NLM_F_CAPPED, 1, &[0; 20]);
        assert_eq!(Reply::parse(&bytes, 1), Some(Reply::Done));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn takes_any_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            kind in 0_u16..4,
            flags: u16,
        ) {
            let _ = Reply::parse(&bytes, 1);
            let _ = Reply::parse(&packet(kind, flags | 0x300, 1, &bytes), 1);
        }
    }
}
