//! Timestamps of the drain protocol.

use vfleet_api::meta::{MicroTime, Timestamp};

use crate::prelude::*;

/// Point in time in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

impl Moment {
    /// Returns `now`, or a time just after `last` if the clock was set back.
    pub fn later_than(last: Option<Self>, now: Self) -> Self {
        last.map_or(now, |last| now.max(Self(last.0.saturating_add(1))))
    }

    /// Returns the time `seconds` later.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }

    /// Converts to the time type of the Kubernetes API.
    pub fn to_time(self) -> MicroTime {
        let timestamp = Timestamp::from_microsecond(self.0);
        // Years beyond 9999 and -9999 are out of range.
        MicroTime(timestamp.unwrap_or(if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX }))
    }

    /// Returns the text for annotations.
    pub fn text(self) -> String {
        self.to_time().0.to_string()
    }

    /// Parses the output of [`Moment::text`].
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<Timestamp>().ok().map(Self::from)
    }
}

impl From<Timestamp> for Moment {
    fn from(time: Timestamp) -> Self {
        Self(time.as_microsecond())
    }
}

impl From<&MicroTime> for Moment {
    fn from(time: &MicroTime) -> Self {
        time.0.into()
    }
}
