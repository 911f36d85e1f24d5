//! Attributes: what netlink messages are made of.

const HEADER: usize = 4;
const NLA_F_NESTED: u16 = 0x8000;
/// Without the two bits that say something about the value.
const KIND: u16 = 0x3fff;

/// An attribute: its kind and its value.
pub(in super::super) type Attribute<'a> = (u16, &'a [u8]);

/// Attributes that are being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Attributes(Vec<u8>);

impl Attributes {
    /// With this value.
    #[must_use]
    pub(in super::super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.push(kind, value);
        self
    }

    /// With this text.
    #[must_use]
    pub(in super::super) fn with_text(self, kind: u16, text: &str) -> Self {
        let value = [text.as_bytes(), &[0]].concat();
        self.with(kind, &value)
    }

    /// With these attributes inside one.
    #[must_use]
    pub(in super::super) fn with_nested(self, kind: u16, inner: &Self) -> Self {
        self.with(kind | NLA_F_NESTED, &inner.0)
    }

    fn push(&mut self, kind: u16, value: &[u8]) {
        // No request of ours comes near this length: they hold names and numbers.
        let length = u16::try_from(HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// The message's body: its fixed part, and these attributes after it.
    pub(in super::super) fn after(&self, fixed: &[u8]) -> Vec<u8> {
        [fixed, &self.0].concat()
    }
}

/// The attributes that `bytes` consists of; `None` when these are no attributes.
pub(in super::super) fn attributes(mut bytes: &[u8]) -> Option<Vec<Attribute<'_>>> {
    let mut found = Vec::new();
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let [low, high, kind_low, kind_high] = *header;
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let kind = u16::from_ne_bytes([kind_low, kind_high]) & KIND;
        found.push((kind, bytes.get(HEADER..length)?));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(found)
}

/// The value of the first attribute of a kind.
pub(in super::super) fn find<'a>(attributes: &[Attribute<'a>], kind: u16) -> Option<&'a [u8]> {
    attributes.iter().find(|(found, _)| *found == kind).map(|(_, value)| *value)
}

/// The text that a value is, up to its zero byte.
pub(in super::super) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn writes_what_it_reads() {
        let inner = Attributes::default().with(1, &[7]);
        let bytes = Attributes::default().with_text(2, "pci").with_nested(3, &inner).after(&[9; 4]);
        let read = attributes(&bytes[4..]).unwrap();
        assert_eq!((read.len(), find(&read, 2).map(text)), (2, Some("pci".to_owned())));
        assert_eq!(attributes(find(&read, 3).unwrap()).unwrap(), [(1, &[7][..])]);
        assert_eq!(find(&read, 4), None);
    }

    #[test]
    fn refuses_lengths_that_cannot_be() {
        assert_eq!(attributes(&[3, 0, 1, 0]), None);
        assert_eq!(attributes(&[9, 0, 1, 0, 0, 0, 0, 0]), None);
        assert_eq!(attributes(&[]), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = attributes(&bytes);
        }

        #[test]
        fn reads_back_what_it_wrote(values in prop::collection::vec((0_u16..500, prop::collection::vec(any::<u8>(), 0..20)), 0..8)) {
            let written = values.iter().fold(Attributes::default(), |written, (kind, value)| written.with(*kind, value));
            let bytes = written.after(&[]);
            let read = attributes(&bytes).unwrap();
            prop_assert!(read.into_iter().eq(values.iter().map(|(kind, value)| (*kind, value.as_slice()))));
        }
    }
}
