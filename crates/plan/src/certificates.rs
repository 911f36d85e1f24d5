//! When a certificate of the operator's webhooks is made, trusted and served.
//!
//! A generation is a certificate authority made for one certificate, and that certificate. The API server must trust a
//! generation before it is served, and replicas begin to serve it at different moments: so for a while both the old and
//! the new one are trusted, and no request fails. Times are seconds since 1970.

use serde::{Deserialize, Serialize};

use crate::prelude::*;

/// Longer than any API server takes to see a change of what it shall trust, and any replica to see what to serve.
const LONGEST_OVERLAP: i64 = 3600;

/// The same for one that was lost: replicas that still have it go on serving it, but one that starts has nothing.
const OVERLAP_AFTER_LOSS: i64 = 10;

/// A generation, by what decides about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// When it was made.
    pub made_at: i64,
    /// When it ends.
    pub not_after: i64,
    /// What it is valid for: names of hosts, and addresses.
    pub names: Vec<String>,
}

/// The generation that comes next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextGeneration {
    /// It.
    #[serde(flatten)]
    pub generation: Generation,
    /// Since when the API server was told to trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_since: Option<i64>,
}

/// The generations that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptTimes {
    /// The one that is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Generation>,
    /// The one that will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextGeneration>,
}

/// What the API server was told of the generations that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It does not ask, so it need not trust anybody.
    AsksNobody,
    /// It asks, and does not trust all of them yet.
    NotAll,
    /// It asks, and trusts all of them.
    All,
}

/// What is to be done about certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Make one, and serve it at once: there is none that could be served, and nobody asks.
    MakeFirst,
    /// Make the next one, to be trusted but not served yet.
    MakeNext,
    /// Note that the next one is trusted from now on.
    NoteTrusted,
    /// Serve the next one.
    Promote,
    /// Nothing, before this time or a change.
    Keep {
        /// When to look again.
        look_again: i64,
    },
}

/// What is to be done. `names` is what certificates shall be valid for.
///
/// Nothing is served, whatever happened, that the API server was not told to trust before.
pub fn renewal(kept: &KeptTimes, names: &[String], told: Told, now: i64, lifetime: i64) -> Renewal {
    let is_alive = |generation: &Generation| now < generation.not_after;
    let next = kept.next.as_ref().filter(|next| is_alive(&next.generation) && next.generation.names == names);
    let current = kept.current.as_ref().filter(|current| is_alive(current));
    match (current, next) {
        (None, None) if told == Told::AsksNobody => Renewal::MakeFirst,
        (None, None) => Renewal::MakeNext,
        (None, Some(next)) => succession(next, told, now, overlap(lifetime).min(OVERLAP_AFTER_LOSS)),
        (Some(current), None) => {
            let due = renewed_from(current, lifetime);
            let is_due = now >= due || current.names != names;
            if is_due { Renewal::MakeNext } else { Renewal::Keep { look_again: due } }
        }
        (Some(current), Some(next)) => match succession(next, told, now, overlap(lifetime)) {
            // With a clock that was set back, what is served may end before.
            Renewal::Keep { look_again } => Renewal::Keep { look_again: look_again.min(current.not_after) },
            step => step,
        },
    }
}

/// What becomes of a generation that is trusted first, and served after `overlap`.
fn succession(next: &NextGeneration, told: Told, now: i64, overlap: i64) -> Renewal {
    let later = Renewal::Keep { look_again: now.saturating_add(overlap) };
    match (told, next.trusted_since) {
        (Told::NotAll, _) => later,
        (Told::AsksNobody, _) => Renewal::Promote,
        (Told::All, None) => Renewal::NoteTrusted,
        (Told::All, Some(since)) => {
            let due = since.saturating_add(overlap);
            if now >= due { Renewal::Promote } else { Renewal::Keep { look_again: due } }
        }
    }
}

/// Early enough for a day or a month of trouble, and also when lifetimes were just made shorter.
fn renewed_from(current: &Generation, lifetime: i64) -> i64 {
    let lifetime = lifetime.min(current.not_after.saturating_sub(current.made_at)).max(0);
    current.made_at.saturating_add(lifetime.saturating_mul(2) / 3)
}

/// How long a generation is trusted before it is served.
pub fn overlap(lifetime: i64) -> i64 {
    (lifetime / 12).clamp(1, LONGEST_OVERLAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn names() -> Vec<String> {
        vec!["a.svc".to_owned()]
    }

    fn generation(made_at: i64, lifetime: i64) -> Generation {
        Generation { made_at, not_after: made_at + lifetime, names: names() }
    }

    fn kept(current: Generation, next: Option<(Generation, Option<i64>)>) -> KeptTimes {
        let next = next.map(|(generation, trusted_since)| NextGeneration { generation, trusted_since });
        KeptTimes { current: Some(current), next }
    }

    #[test]
    fn one_is_made_when_there_is_none_that_could_be_served() {
        assert_eq!(renewal(&KeptTimes::default(), &names(), Told::AsksNobody, 0, DAY), Renewal::MakeFirst);
        let over = kept(generation(0, DAY), None);
        assert_eq!(renewal(&over, &names(), Told::AsksNobody, DAY, DAY), Renewal::MakeFirst);
        let both_over = kept(generation(0, DAY), Some((generation(1, DAY), Some(2))));
        assert_eq!(renewal(&both_over, &names(), Told::AsksNobody, DAY + 1, DAY), Renewal::MakeFirst);
    }

    #[test]
    fn one_that_is_lost_while_the_api_server_asks_is_trusted_before_it_is_served() {
        for told in [Told::NotAll, Told::All] {
            assert_eq!(renewal(&KeptTimes::default(), &names(), told, 0, DAY), Renewal::MakeNext);
        }
        let at = |trusted_since, told, now| {
            let next = NextGeneration { generation: generation(0, DAY), trusted_since };
            renewal(&KeptTimes { current: None, next: Some(next) }, &names(), told, now, DAY)
        };
        assert_eq!(at(None, Told::NotAll, 1), Renewal::Keep { look_again: 11 });
        assert_eq!(at(None, Told::All, 2), Renewal::NoteTrusted);
        assert_eq!(at(Some(2), Told::All, 3), Renewal::Keep { look_again: 12 });
        assert_eq!(at(Some(2), Told::All, 12), Renewal::Promote);
        // Somebody took it out of a configuration again.
        assert_eq!(at(Some(2), Told::NotAll, 12), Renewal::Keep { look_again: 22 });
        // It was switched off meanwhile.
        assert_eq!(at(None, Told::AsksNobody, 3), Renewal::Promote);
    }

    #[test]
    fn the_next_one_comes_in_the_last_third_or_with_other_names() {
        let one = kept(generation(0, 90 * DAY), None);
        let at = |now| renewal(&one, &names(), Told::All, now, 90 * DAY);
        assert_eq!(at(0), Renewal::Keep { look_again: 60 * DAY });
        assert_eq!(at(60 * DAY - 1), Renewal::Keep { look_again: 60 * DAY });
        assert_eq!(at(60 * DAY), Renewal::MakeNext);
        let other = vec!["b.svc".to_owned()];
        assert_eq!(renewal(&one, &other, Told::All, 1, 90 * DAY), Renewal::MakeNext);
        // Somebody wants shorter lifetimes from now on.
        assert_eq!(renewal(&one, &names(), Told::All, 3 * DAY, 3 * DAY), Renewal::MakeNext);
    }

    #[test]
    fn the_next_one_is_served_when_it_was_trusted_for_long_enough() {
        let next = |trusted| kept(generation(0, DAY), Some((generation(16 * 3600, DAY), trusted)));
        let at = |trusted, told, now| renewal(&next(trusted), &names(), told, now, DAY);
        assert_eq!(at(None, Told::NotAll, 17 * 3600), Renewal::Keep { look_again: 18 * 3600 });
        assert_eq!(at(None, Told::NotAll, DAY - 1), Renewal::Keep { look_again: DAY });
        assert_eq!(at(None, Told::All, 17 * 3600), Renewal::NoteTrusted);
        assert_eq!(at(Some(17 * 3600), Told::All, 17 * 3600 + 1), Renewal::Keep { look_again: 18 * 3600 });
        assert_eq!(at(Some(17 * 3600), Told::All, 18 * 3600), Renewal::Promote);
        // One configuration does not have it: whoever asks by that one would be lost.
        assert_eq!(at(Some(17 * 3600), Told::NotAll, 18 * 3600), Renewal::Keep { look_again: 19 * 3600 });
        // What is served ends: even so, it is trusted first.
        assert_eq!(at(None, Told::NotAll, DAY), Renewal::Keep { look_again: DAY + 10 });
        assert_eq!(at(Some(17 * 3600), Told::All, DAY), Renewal::Promote);
    }

    #[test]
    fn a_next_one_with_other_names_is_made_again() {
        let mut kept = kept(generation(0, DAY), Some((generation(1, DAY), None)));
        let other = vec!["b.svc".to_owned()];
        assert_eq!(renewal(&kept, &other, Told::All, 2, DAY), Renewal::MakeNext);
        kept.current = None;
        assert_eq!(renewal(&kept, &other, Told::AsksNobody, 2, DAY), Renewal::MakeFirst);
    }

    #[test]
    fn it_is_kept_as_text() {
        let kept = kept(generation(1, 2), Some((generation(3, 4), Some(5))));
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<KeptTimes>(&text).unwrap(), kept);
        assert_eq!(serde_json::from_str::<KeptTimes>("{}").unwrap(), KeptTimes::default());
    }

    /// What is kept, and when the last one was made.
    #[derive(Default)]
    struct Life {
        kept: KeptTimes,
        made_at: i64,
        promotions: i64,
    }

    impl Life {
        /// Does all that is to be done now, for an API server that is told so much later.
        fn settle(&mut self, now: i64, lifetime: i64, told_after: i64) {
            loop {
                let told = match self.kept.current {
                    None => Told::AsksNobody,
                    Some(_) if now < self.made_at + told_after => Told::NotAll,
                    Some(_) => Told::All,
                };
                match renewal(&self.kept, &names(), told, now, lifetime) {
                    Renewal::MakeFirst => {
                        assert_eq!(now, 0, "only at the beginning is there nothing to serve");
                        self.kept.current = Some(generation(now, lifetime));
                    }
                    Renewal::MakeNext => {
                        self.made_at = now;
                        let generation = generation(now, lifetime);
                        self.kept.next = Some(NextGeneration { generation, trusted_since: None });
                    }
                    Renewal::NoteTrusted => self.kept.next.as_mut().unwrap().trusted_since = Some(now),
                    Renewal::Promote => {
                        let next = self.kept.next.take().unwrap();
                        assert!(now >= next.trusted_since.unwrap() + overlap(lifetime));
                        self.kept.current = Some(next.generation);
                        self.promotions += 1;
                    }
                    Renewal::Keep { look_again } => {
                        assert!(look_again > now, "{look_again} is not after {now}");
                        return;
                    }
                }
            }
        }
    }

    /// Lives through many lifetimes second by second, with an operator that is away at times.
    #[test]
    fn what_is_served_is_alive_and_was_trusted_before() {
        for (lifetime, told_after, away) in
            [(36, 0, 0), (36, 2, 0), (120, 5, 10), (24, 1, 2), (90 * 60, 60, 300)]
        {
            let (mut life, mut back_at) = (Life::default(), 0);
            for now in 0..lifetime * 10 {
                if now % 7 == 3 && now >= back_at {
                    back_at = now + away;
                }
                if now >= back_at {
                    life.settle(now, lifetime, told_after);
                }
                let ends = life.kept.current.as_ref().unwrap().not_after;
                assert!(now < ends, "{lifetime}: over at {now}");
            }
            assert!(life.promotions >= 9, "{lifetime}: {} promotions", life.promotions);
        }
    }
}
