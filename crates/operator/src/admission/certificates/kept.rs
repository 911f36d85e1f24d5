//! The Secret with own certificates, and what becomes of it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use vfleet_plan::certificates::{KeptTimes, NextGeneration};

use super::make::Made;
use super::pem::{authority_of, blocks, check, pair};

/// Keys of the Secret.
pub(crate) const CHAIN: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";
pub(crate) const AUTHORITIES: &str = "ca.crt";
const NEXT_CHAIN: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const TIMES: &str = "generations.json";

/// Some more than there ever are, unless somebody spoils the Secret again and again.
const MOST_AUTHORITIES: usize = 5;

/// What a Secret holds.
pub(crate) type Data = BTreeMap<String, ByteString>;

/// Own certificates, as kept. They have keys, so they cannot be printed.
#[derive(Clone, Default)]
pub(in super::super) struct Kept {
    /// When what was made. What cannot be served as it is counts as not there.
    pub(in super::super) times: KeptTimes,
    current: Pair,
    next: Pair,
    /// Whom the API server shall trust, each in PEM.
    authorities: Vec<String>,
}

#[derive(Clone, Default)]
struct Pair {
    chain: String,
    key: String,
}

impl Kept {
    /// Reads what is kept, to be served as `name`.
    pub(in super::super) fn read(data: &Data, name: &str, now: Timestamp) -> Self {
        let text = |key: &str| {
            data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok()).unwrap_or_default()
        };
        let bundle = text(AUTHORITIES);
        let is_good = |kept: &Pair| {
            pair(kept.chain.as_bytes(), kept.key.as_bytes())
                .and_then(|pair| check(&pair.cert, bundle.as_bytes(), name, now))
                .is_ok()
        };
        let times: KeptTimes = serde_json::from_str(&text(TIMES)).unwrap_or_default();
        let current = Pair { chain: text(CHAIN), key: text(KEY) };
        let next = Pair { chain: text(NEXT_CHAIN), key: text(NEXT_KEY) };
        Self {
            times: KeptTimes {
                current: times.current.filter(|_| is_good(&current)),
                next: times.next.filter(|_| is_good(&next)),
            },
            current,
            next,
            authorities: blocks(&bundle),
        }
    }

    /// Whom the API server shall trust.
    pub(in super::super) fn bundle(&self) -> String {
        self.authorities.concat()
    }

    /// With `made` to be served at once, where nobody asks yet.
    pub(super) fn first(made: Made) -> Self {
        Self {
            authorities: authority_of(&made.chain).into_iter().collect(),
            times: KeptTimes { current: Some(made.generation), next: None },
            current: Pair { chain: made.chain, key: made.key },
            next: Pair::default(),
        }
    }

    /// With `made` to be trusted, and served later. `trusted` are those that the API server trusts: where what is served
    /// was lost here, they are all that is known of whom replicas still serve.
    pub(super) fn with_next(self, made: Made, trusted: Vec<String>) -> Self {
        let before = match &self.times.current {
            Some(_) => authority_of(&self.current.chain).into_iter().collect(),
            None => trusted,
        };
        let mut authorities: Vec<_> = authority_of(&made.chain).into_iter().collect();
        for authority in before {
            if !authorities.contains(&authority) && authorities.len() < MOST_AUTHORITIES {
                authorities.push(authority);
            }
        }
        Self {
            authorities,
            times: KeptTimes {
                next: Some(NextGeneration { generation: made.generation, trusted_since: None }),
                ..self.times
            },
            next: Pair { chain: made.chain, key: made.key },
            ..self
        }
    }

    /// With the next one trusted from now on.
    pub(super) fn trusted(mut self, now: Timestamp) -> Self {
        if let Some(next) = &mut self.times.next {
            next.trusted_since = Some(now.as_second());
        }
        self
    }

    /// With the next one served. The one before stays trusted, until others have seen this.
    pub(super) fn promoted(self) -> Self {
        Self {
            // Whom it was trusted with goes when the next one is made.
            authorities: self.authorities,
            times: KeptTimes { current: self.times.next.map(|next| next.generation), next: None },
            current: self.next,
            next: Pair::default(),
        }
    }

    /// What to write into the Secret: a merge patch of its data, with nothing left of what was.
    pub(super) fn patch(&self) -> Value {
        let bytes = |text: &str| (!text.is_empty()).then(|| ByteString(text.as_bytes().to_vec()));
        json!({
            CHAIN: bytes(&self.current.chain),
            KEY: bytes(&self.current.key),
            AUTHORITIES: bytes(&self.bundle()),
            NEXT_CHAIN: bytes(&self.next.chain),
            NEXT_KEY: bytes(&self.next.key),
            TIMES: bytes(&json!(self.times).to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::make::make;
    use super::*;

    const NAME: &str = "vfleet-webhook.ns.svc";

    fn made(now: i64) -> Made {
        let names = [NAME.to_owned(), "127.0.0.1".to_owned()];
        make(&names, at(now), Duration::from_secs(100)).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second + 1_000_000).unwrap()
    }

    fn stored(kept: &Kept) -> Data {
        let data: BTreeMap<String, Option<ByteString>> = serde_json::from_value(kept.patch()).unwrap();
        data.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    /// As an API server that trusts `bundle` sees what is served.
    fn is_trusted(kept: &Kept, bundle: &str, second: i64) -> bool {
        let served = pair(kept.current.chain.as_bytes(), kept.current.key.as_bytes()).unwrap();
        check(&served.cert, bundle.as_bytes(), NAME, at(second)).is_ok()
    }

    #[test]
    fn through_a_whole_renewal_old_and_new_are_trusted_by_old_and_new() {
        let first = Kept::first(made(0));
        let bundle_before = first.bundle();
        assert!(is_trusted(&first, &bundle_before, 0));

        let next = Kept::read(&stored(&first), NAME, at(60)).with_next(made(60), vec![]);
        let bundle = next.bundle();
        assert!(is_trusted(&first, &bundle, 60) && is_trusted(&next, &bundle_before, 60));

        let trusted = Kept::read(&stored(&next), NAME, at(61)).trusted(at(61));
        assert_eq!(trusted.bundle(), bundle);
        let promoted = Kept::read(&stored(&trusted), NAME, at(70)).promoted();
        assert!(is_trusted(&promoted, &bundle, 70) && is_trusted(&next, &promoted.bundle(), 70));
        assert!(!is_trusted(&promoted, &bundle_before, 70));

        let read = Kept::read(&stored(&promoted), NAME, at(70));
        assert_eq!(read.times.current.as_ref().unwrap().made_at, at(60).as_second());
        assert!(read.times.next.is_none());
        assert_eq!(stored(&promoted).keys().collect::<Vec<_>>(), [AUTHORITIES, TIMES, CHAIN, KEY]);
        // And the one before goes with the next.
        assert_eq!(blocks(&read.with_next(made(130), vec![]).bundle()).len(), 2);
    }

    #[test]
    fn what_cannot_be_served_counts_as_not_there() {
        let good = stored(&Kept::first(made(0)).with_next(made(60), vec![]));
        let other = stored(&Kept::first(made(0)));
        let is_there = |data: &Data, second| {
            let times = Kept::read(data, NAME, at(second)).times;
            (times.current.is_some(), times.next.is_some())
        };
        assert_eq!(is_there(&good, 61), (true, true));
        assert_eq!(is_there(&good, 101), (false, true), "the first has ended");
        assert_eq!(is_there(&Data::new(), 0), (false, false));
        let with = |key: &str, value: Option<&ByteString>| {
            let mut data = good.clone();
            match value {
                Some(value) => data.insert(key.to_owned(), value.clone()),
                None => data.remove(key),
            };
            is_there(&data, 61)
        };
        let rubbish = ByteString(b"\xff rubbish".to_vec());
        for (key, rest) in [(CHAIN, (false, true)), (KEY, (false, true)), (NEXT_KEY, (true, false))] {
            for value in [None, Some(&rubbish), other.get(CHAIN), other.get(KEY)] {
                assert_eq!(with(key, value), rest, "{key}");
            }
        }
        for value in [None, Some(&rubbish), other.get(AUTHORITIES)] {
            assert_eq!(with(AUTHORITIES, value), (false, false));
        }
        assert_eq!(with(TIMES, Some(&rubbish)), (false, false));
        let wrong_name = Kept::read(&good, "other.ns.svc", at(61));
        assert!(wrong_name.times.current.is_none());
    }

    #[test]
    fn what_was_trusted_stays_trusted_when_something_is_lost() {
        let before = Kept::first(made(0));
        let trusted = blocks(&before.bundle());
        for lost in
            [vec![KEY], vec![CHAIN], vec![TIMES], vec![AUTHORITIES], vec![CHAIN, KEY, AUTHORITIES, TIMES]]
        {
            let mut data = stored(&before);
            data.retain(|key, _| !lost.contains(&key.as_str()));
            let healed = Kept::read(&data, NAME, at(1)).with_next(made(1), trusted.clone());
            let bundle = healed.bundle();
            assert!(is_trusted(&before, &bundle, 1), "{lost:?}: replicas still serve it");
            let read = Kept::read(&stored(&healed), NAME, at(2));
            assert!(read.times.current.is_none() && read.times.next.is_some(), "{lost:?}");
            let promoted = read.trusted(at(2)).promoted();
            assert_eq!(promoted.bundle(), bundle, "{lost:?}");
            assert!(is_trusted(&promoted, &bundle, 3) && is_trusted(&before, &bundle, 3), "{lost:?}");
            // What starts meanwhile can serve what was not lost.
            if lost == [TIMES] {
                assert_eq!(stored(&healed)[CHAIN], stored(&before)[CHAIN]);
            }
            let next = Kept::read(&stored(&promoted), NAME, at(60)).with_next(made(60), trusted.clone());
            assert_eq!(blocks(&next.bundle()).len(), 2, "and the one before goes with the next");
        }
    }

    #[test]
    fn losing_it_again_and_again_does_not_make_ever_more_trusted() {
        let mut kept = Kept::default();
        for second in 0..20 {
            let trusted = blocks(&kept.bundle());
            kept = Kept::default().with_next(made(second), trusted);
        }
        assert_eq!(blocks(&kept.bundle()).len(), MOST_AUTHORITIES);
    }
}
