use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Observed value with three states. Unknown is not the same as none: a decision that depends on the fact is kept until
/// the fact is known again (decision 16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact<T> {
    /// The machine reports this value.
    Value(T),
    /// The machine reports that there is none.
    None,
    /// The machine does not report it, or could not be read.
    #[default]
    Unknown,
}

impl<T> Fact<T> {
    /// Returns the value, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::None | Self::Unknown => None,
        }
    }

    /// Returns the fact with a reference to its value.
    pub const fn as_ref(&self) -> Fact<&T> {
        match self {
            Self::Value(value) => Fact::Value(value),
            Self::None => Fact::None,
            Self::Unknown => Fact::Unknown,
        }
    }

    /// Returns whether the fact is unknown.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Returns the fact, or `last` while it is unknown.
    #[must_use]
    pub fn or_last(self, last: Self) -> Self {
        match self {
            Self::Unknown => last,
            known => known,
        }
    }
}

impl<T> From<Option<T>> for Fact<T> {
    /// Converts a successful answer of the machine: a value, or none.
    fn from(answer: Option<T>) -> Self {
        answer.map_or(Self::None, Self::Value)
    }
}

/// Serializes a value as itself and none as `null`. Unknown facts are skipped with `skip_serializing_if` and `default`.
impl<T: Serialize> Serialize for Fact<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_ref().value().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Fact<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<T>::deserialize(deserializer).map(Self::from)
    }
}
