//! Attributes: the typed fields that netlink messages are made of.

const HEADER: usize = 4;
const NLA_F_NESTED: u16 = 0x8000;
/// Leaves out the two bits that describe the value.
const KIND: u16 = 0x3fff;

/// Attributes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::linux) struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds a value as it is.
    #[must_use]
    pub(in crate::linux) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        // No request comes near this length: they hold names and numbers.
        let length = u16::try_from(HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds an attribute that means something by being there.
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

    /// Adds a text, with the zero byte that ends it.
    #[must_use]
    pub(in crate::linux) fn with_text(self, kind: u16, text: &str) -> Self {
        let value = [text.as_bytes(), &[0]].concat();
        self.with(kind, &value)
    }

    /// Adds an attribute that consists of attributes.
    #[must_use]
    pub(in crate::linux) fn with_nested(self, kind: u16, inner: &Self) -> Self {
        self.with(kind | NLA_F_NESTED, &inner.0)
    }

    /// Returns the body of a message: its fixed part, and the attributes after it.
    pub(in crate::linux) fn after(&self, fixed: &[u8]) -> Vec<u8> {
        [fixed, &self.0].concat()
    }
}

/// Attributes of an answer. Those that nobody asks for are not looked at: a driver or a later kernel may say odd things
/// in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct Received<'a>(Vec<(u16, &'a [u8])>);

impl<'a> Received<'a> {
    /// Splits `bytes` into attributes; `None` when a length cannot be.
    pub(in crate::linux) fn parse(mut bytes: &'a [u8]) -> Option<Self> {
        let mut found = Vec::new();
        while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
            let [low, high, kind_low, kind_high] = *header;
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let kind = u16::from_ne_bytes([kind_low, kind_high]) & KIND;
            found.push((kind, bytes.get(HEADER..length)?));
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Some(Self(found))
    }

    /// Returns all kinds and values, in order.
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

    /// Returns a number; `None` when it is missing or of another length.
    pub(in crate::linux) fn u16(&self, kind: u16) -> Option<u16> {
        self.array(kind).map(u16::from_ne_bytes)
    }

    /// Returns a number; `None` when it is missing or of another length.
    pub(in crate::linux) fn u32(&self, kind: u16) -> Option<u32> {
        self.array(kind).map(u32::from_ne_bytes)
    }

    /// Returns a value of exactly this length.
    pub(in crate::linux) fn array<const LENGTH: usize>(&self, kind: u16) -> Option<[u8; LENGTH]> {
        self.get(kind)?.try_into().ok()
    }

    /// Returns a text up to its zero byte.
    pub(in crate::linux) fn text(&self, kind: u16) -> Option<String> {
        self.get(kind).map(text)
    }

    /// Returns the attributes inside of one, none of a missing one; `None` when they cannot be read.
    pub(in crate::linux) fn nested(&self, kind: u16) -> Option<Self> {
        Self::parse(self.get(kind).unwrap_or_default())
    }
}

/// Reads a text up to its zero byte.
pub(in crate::linux) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn writes_what_it_reads() {
        let inner = Attributes::default().with_u8(1, 7);
        let bytes = Attributes::default()
            .with_text(2, "pci")
            .with_nested(3, &inner)
            .with_u16(4, 0x0102)
            .with_u32(5, 0x0102_0304)
            .with_flag(6)
            .after(&[9; 4]);
        let read = Received::parse(&bytes[4..]).unwrap();
        assert_eq!((read.iter().count(), read.text(2)), (5, Some("pci".to_owned())));
        assert_eq!(read.nested(3).unwrap().get(1), Some(&[7][..]));
        assert_eq!((read.u16(4), read.u32(5), read.has(6)), (Some(0x0102), Some(0x0102_0304), true));
    }

    #[test]
    fn what_is_missing_or_of_another_length_is_no_value() {
        let bytes = Attributes::default().with_u16(1, 7).after(&[]);
        let read = Received::parse(&bytes).unwrap();
        assert_eq!((read.get(2), read.has(2), read.u16(2), read.text(2)), (None, false, None, None));
        assert_eq!((read.u32(1), read.array::<6>(1)), (None, None));
        assert_eq!(read.nested(2).unwrap().iter().count(), 0);
    }

    #[test]
    fn refuses_lengths_that_cannot_be() {
        assert_eq!(Received::parse(&[3, 0, 1, 0]), None);
        assert_eq!(Received::parse(&[9, 0, 1, 0, 0, 0, 0, 0]), None);
        assert_eq!(Received::parse(&[]), Some(Received(Vec::new())));
        let bytes = Attributes::default().with(1, &[9, 0, 1, 0]).after(&[]);
        assert_eq!(Received::parse(&bytes).unwrap().nested(1), None);
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Received::parse(&bytes);
        }

        #[test]
        fn reads_back_what_it_wrote(values in prop::collection::vec((0_u16..500, prop::collection::vec(any::<u8>(), 0..20)), 0..8)) {
            let written = values.iter().fold(Attributes::default(), |written, (kind, value)| written.with(*kind, value));
            let bytes = written.after(&[]);
            let read = Received::parse(&bytes).unwrap();
            prop_assert!(read.iter().eq(values.iter().map(|(kind, value)| (*kind, value.as_slice()))));
        }
    }
}
