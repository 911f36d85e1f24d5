//! Attributes: the typed fields of netlink messages.

const HEADER: usize = 4;
const NLA_F_NESTED: u16 = 0x8000;
/// Mask that removes the two flag bits of a kind.
const KIND: u16 = 0x3fff;

/// Attributes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::linux) struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds a raw value.
    #[must_use]
    pub(in crate::linux) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        // Requests contain names and numbers and are far from this length.
        let length = u16::try_from(HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds an attribute without a value.
    #[must_use]
    pub(in crate::linux) fn with_flag(self, kind: u16) -> Self {
        self.with(kind, &[])
    }

    #[must_use]
    pub(in crate::linux) fn with_u8(self, kind: u16, value: u8) -> Self {
        self.with(kind, &[value])
    }

    #[must_use]
    pub(in crate::linux) fn with_u16(self, kind: u16, value: u16) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    #[must_use]
    pub(in crate::linux) fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Adds a text with its terminating zero byte.
    #[must_use]
    pub(in crate::linux) fn with_text(self, kind: u16, text: &str) -> Self {
        let value = [text.as_bytes(), &[0]].concat();
        self.with(kind, &value)
    }

    /// Adds an attribute that contains attributes.
    #[must_use]
    pub(in crate::linux) fn with_nested(self, kind: u16, inner: &Self) -> Self {
        self.with(kind | NLA_F_NESTED, &inner.0)
    }

    /// Returns the body of a message: a fixed part, followed by the attributes.
    pub(in crate::linux) fn after(&self, fixed: &[u8]) -> Vec<u8> {
        [fixed, &self.0].concat()
    }
}

/// Attributes of an answer. Values are parsed on access only: values of unknown attributes may have any format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct ReceivedAttributes<'a>(Vec<(u16, &'a [u8])>);

impl<'a> ReceivedAttributes<'a> {
    /// Splits `bytes` into attributes; `None` if a length is invalid.
    pub(in crate::linux) fn parse(bytes: &'a [u8]) -> Option<Self> {
        Self::parse_with(bytes, |_, _, _| None)
    }

    /// Like [`Self::parse`]. `value_length` returns the length of a value that is longer than its attribute can say,
    /// from the attributes before it, its kind, and all bytes after its header.
    pub(in crate::linux) fn parse_with(
        mut bytes: &'a [u8],
        value_length: impl Fn(&Self, u16, &[u8]) -> Option<usize>,
    ) -> Option<Self> {
        let mut found = Self(Vec::new());
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
            let [low, high, kind_low, kind_high] = *header;
            let kind = u16::from_ne_bytes([kind_low, kind_high]) & KIND;
            let length = value_length(&found, kind, rest)
                .map_or_else(|| usize::from(u16::from_ne_bytes([low, high])), |length| HEADER + length);
            found.0.push((kind, bytes.get(HEADER..length)?));
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Some(found)
    }

    /// Returns all kinds and values in order.
    pub(in crate::linux) fn iter(&self) -> impl Iterator<Item = (u16, &'a [u8])> {
        self.0.iter().copied()
    }

    /// Returns the value of the first attribute of a kind.
    pub(in crate::linux) fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.all(kind).next()
    }

    /// Returns the values of all attributes of a kind.
    pub(in crate::linux) fn all(&self, kind: u16) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(found, _)| *found == kind).map(|(_, value)| value)
    }

    pub(in crate::linux) fn has(&self, kind: u16) -> bool {
        self.get(kind).is_some()
    }

    /// Returns a number; `None` if it is missing or has another length.
    pub(in crate::linux) fn u16(&self, kind: u16) -> Option<u16> {
        self.array(kind).map(u16::from_ne_bytes)
    }

    /// Returns a number; `None` if it is missing or has another length.
    pub(in crate::linux) fn u32(&self, kind: u16) -> Option<u32> {
        self.array(kind).map(u32::from_ne_bytes)
    }

    /// Returns a value of exactly this length.
    pub(in crate::linux) fn array<const LENGTH: usize>(&self, kind: u16) -> Option<[u8; LENGTH]> {
        self.get(kind)?.try_into().ok()
    }

    /// Returns a text without its zero byte.
    pub(in crate::linux) fn text(&self, kind: u16) -> Option<String> {
        self.get(kind).map(text)
    }

    /// Returns the attributes inside an attribute, which are empty if it is missing; `None` if they are invalid.
    pub(in crate::linux) fn nested(&self, kind: u16) -> Option<Self> {
        Self::parse(self.get(kind).unwrap_or_default())
    }
}

/// Parses a text up to its zero byte.
pub(in crate::linux) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encoded_attributes_are_parsed() {
        let inner = Attributes::default().with_u8(1, 7);
        let bytes = Attributes::default()
            .with_text(2, "pci")
            .with_nested(3, &inner)
            .with_u16(4, 0x0102)
            .with_u32(5, 0x0102_0304)
            .with_flag(6)
            .after(&[9; 4]);
        let read = ReceivedAttributes::parse(&bytes[4..]).unwrap();
        assert_eq!((read.iter().count(), read.text(2)), (5, Some("pci".to_owned())));
        assert_eq!(read.nested(3).unwrap().get(1), Some(&[7][..]));
        assert_eq!((read.u16(4), read.u32(5), read.has(6)), (Some(0x0102), Some(0x0102_0304), true));
    }

    #[test]
    fn a_missing_value_or_one_of_another_length_is_none() {
        let bytes = Attributes::default().with_u16(1, 7).after(&[]);
        let read = ReceivedAttributes::parse(&bytes).unwrap();
        assert_eq!((read.get(2), read.has(2), read.u16(2), read.text(2)), (None, false, None, None));
        assert_eq!((read.u32(1), read.array::<6>(1)), (None, None));
        assert_eq!(read.nested(2).unwrap().iter().count(), 0);
    }

    #[test]
    fn rejects_invalid_lengths() {
        assert_eq!(ReceivedAttributes::parse(&[3, 0, 1, 0]), None);
        assert_eq!(ReceivedAttributes::parse(&[9, 0, 1, 0, 0, 0, 0, 0]), None);
        assert_eq!(ReceivedAttributes::parse(&[]), Some(ReceivedAttributes(Vec::new())));
        let bytes = Attributes::default().with(1, &[9, 0, 1, 0]).after(&[]);
        assert_eq!(ReceivedAttributes::parse(&bytes).unwrap().nested(1), None);
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = ReceivedAttributes::parse(&bytes);
        }

        #[test]
        fn any_encoded_attributes_are_parsed(values in prop::collection::vec((0_u16..500, prop::collection::vec(any::<u8>(), 0..20)), 0..8)) {
            let written = values.iter().fold(Attributes::default(), |written, (kind, value)| written.with(*kind, value));
            let bytes = written.after(&[]);
            let read = ReceivedAttributes::parse(&bytes).unwrap();
            prop_assert!(read.iter().eq(values.iter().map(|(kind, value)| (*kind, value.as_slice()))));
        }
    }
}
