//! Times, as the protocol compares them.

use vfleet_api::meta::{MicroTime, Timestamp};

use crate::prelude::*;

/// A time: microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

impl Moment {
    /// Now, but later than `last`: also when the clock was set back.
    pub fn later_than(last: Option<Self>, now: Self) -> Self {
        last.map_or(now, |last| now.max(Self(last.0.saturating_add(1))))
    }

    /// So many seconds later.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }

    /// As the API writes it.
    pub fn to_time(self) -> MicroTime {
        let timestamp = Timestamp::from_microsecond(self.0);
        // Out of range are years after 9999 and before -9999.
        MicroTime(timestamp.unwrap_or(if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX }))
    }

    /// As an annotation writes it.
    pub fn text(self) -> String {
        self.to_time().0.to_string()
    }

    /// What [`Moment::text`] wrote. `None` for anything else.
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
