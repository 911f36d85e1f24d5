//! Next hop objects.

use super::RTM_GETNEXTHOP;
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::ReceivedAttributes;

const HEADER: usize = 8;
const GROUP_ENTRY: usize = 8;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;

/// Next hop object, which routes refer to by ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct NextHop {
    pub(in crate::linux) id: u32,
    /// Interface of the next hop.
    pub(in crate::linux) interface: Option<u32>,
    /// IDs of the members of a next hop group.
    pub(in crate::linux) group: Vec<u32>,
}

impl NextHop {
    /// Parses the payload of an `RTM_NEWNEXTHOP`.
    pub(in crate::linux) fn parse(payload: &[u8]) -> Option<Self> {
        let attributes = ReceivedAttributes::parse(payload.get(HEADER..)?)?;
        let entries = attributes.get(NHA_GROUP).unwrap_or_default();
        if !entries.len().is_multiple_of(GROUP_ENTRY) {
            return None;
        }
        // Each entry has an ID and a weight.
        let (entries, _) = entries.as_chunks::<GROUP_ENTRY>();
        let id = |entry: &[u8; GROUP_ENTRY]| u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
        Some(Self {
            id: attributes.u32(NHA_ID)?,
            interface: attributes.u32(NHA_OIF),
            group: entries.iter().map(id).collect(),
        })
    }
}

/// Returns the request for the next hops of all families.
pub(in crate::linux::netlink) fn list() -> NetlinkRequest {
    NetlinkRequest { kind: RTM_GETNEXTHOP, body: vec![0; HEADER] }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::linux::netlink::attribute::Attributes;

    fn emit(attributes: &Attributes) -> Vec<u8> {
        attributes.after(&[0; HEADER])
    }

    #[test]
    fn parses_next_hops_and_groups() {
        let one = emit(&Attributes::default().with_u32(NHA_ID, 7).with_u32(NHA_OIF, 4));
        assert_eq!(NextHop::parse(&one), Some(NextHop { id: 7, interface: Some(4), group: Vec::new() }));
        let entries: Vec<u8> =
            [7_u32, 8].iter().flat_map(|id| [id.to_ne_bytes(), [1, 0, 0, 0]].concat()).collect();
        let group = emit(&Attributes::default().with_u32(NHA_ID, 9).with(NHA_GROUP, &entries));
        assert_eq!(NextHop::parse(&group), Some(NextHop { id: 9, interface: None, group: vec![7, 8] }));
        assert_eq!(NextHop::parse(&emit(&Attributes::default().with_u32(NHA_OIF, 4))), None, "no ID");
        let cut = emit(&Attributes::default().with_u32(NHA_ID, 9).with(NHA_GROUP, &entries[..12]));
        assert_eq!((NextHop::parse(&cut), NextHop::parse(&[0; 5])), (None, None));
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = NextHop::parse(&bytes);
        }
    }
}
