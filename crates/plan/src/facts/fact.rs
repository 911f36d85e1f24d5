use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A fact with three states. "Cannot be told now" never looks like "there is none": what was decided by the fact
/// stays decided until it is known again (decision 16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact<T> {
    /// The machine says that it is this.
    Value(T),
    /// The machine says that there is none.
    None,
    /// The machine does not say, or could not be asked.
    #[default]
    Unknown,
}

impl<T> Fact<T> {
    /// Returns the value, where it is known that there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::None | Self::Unknown => None,
        }
    }

    /// Returns the same fact about a reference to the value.
    pub const fn as_ref(&self) -> Fact<&T> {
        match self {
            Self::Value(value) => Fact::Value(value),
            Self::None => Fact::None,
            Self::Unknown => Fact::Unknown,
        }
    }

    /// Returns whether the machine does not say.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Returns the fact itself, or `last` while it is unknown.
    #[must_use]
    pub fn or_last(self, last: Self) -> Self {
        match self {
            Self::Unknown => last,
            known => known,
        }
    }
}

impl<T> From<Option<T>> for Fact<T> {
    /// Returns the fact that an answer of the machine gives: a value, or none.
    fn from(answer: Option<T>) -> Self {
        answer.map_or(Self::None, Self::Value)
    }
}

/// A value is written as it is, none as `null`. What is unknown is left out, by `skip_serializing_if` and `default`.
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
