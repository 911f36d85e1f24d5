//! Renewal schedule of the operator's webhook certificates.
//!
//! A generation is a CA that was created for one certificate, and that certificate. The API server must trust a
//! generation before it is served, and replicas start to serve it at different times. So the old and the new CA are
//! trusted side by side for a while, and no request fails. Times are seconds since 1970.

use serde::{Deserialize, Serialize};

use crate::prelude::*;

/// Longest time for all API servers to load a changed `caBundle`, and for all replicas to load a changed Secret.
const LONGEST_OVERLAP: i64 = 3600;

/// Overlap when the current generation is lost. It is short because a replica that starts now has nothing to serve.
const OVERLAP_AFTER_LOSS: i64 = 10;

/// Facts of one generation, without its certificates and key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// Time of creation.
    #[serde(rename = "madeAt")]
    pub created_at: i64,
    /// Time of expiry.
    pub not_after: i64,
    /// Host names and IP addresses that the certificate is valid for.
    pub names: Vec<String>,
}

/// Generation that is trusted but not served yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextGeneration {
    /// Facts of the generation.
    #[serde(flatten)]
    pub generation: Generation,
    /// Time since which every webhook's `caBundle` has contained its CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_since: Option<i64>,
}

/// Generations in the Secret, stored there as `generations.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateGenerations {
    /// Generation that is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Generation>,
    /// Generation that is served next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextGeneration>,
}

/// State of `caBundle` in the webhook configurations, compared with the CAs in the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaBundleState {
    /// No webhook is configured, so the API server needs to trust no CA.
    NoWebhooks,
    /// Some webhook lacks a CA.
    Outdated,
    /// Every webhook has all CAs.
    UpToDate,
}

/// Next step of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalStep {
    /// Create a generation and serve it at once: there is none to serve, and the API server calls no webhook.
    IssueFirst,
    /// Create the next generation, to be trusted but not served yet.
    IssueNext,
    /// Record that the next generation is trusted from now on.
    RecordTrust,
    /// Serve the next generation.
    Promote,
    /// Do nothing until this time or a change.
    Wait {
        /// Time of the next check.
        until: i64,
    },
}

/// Returns the next step for certificates that shall be valid for `names`.
///
/// No step ever serves a generation that the API server does not trust yet.
pub fn plan_renewal(
    generations: &CertificateGenerations,
    names: &[String],
    bundle: CaBundleState,
    now: i64,
    lifetime: i64,
) -> RenewalStep {
    let is_alive = |generation: &Generation| now < generation.not_after;
    let next = generations.next.as_ref();
    let next = next.filter(|next| is_alive(&next.generation) && next.generation.names == names);
    let current = generations.current.as_ref().filter(|current| is_alive(current));
    match (current, next) {
        (None, None) if bundle == CaBundleState::NoWebhooks => RenewalStep::IssueFirst,
        (None, None) => RenewalStep::IssueNext,
        (None, Some(next)) => plan_promotion(next, bundle, now, overlap(lifetime).min(OVERLAP_AFTER_LOSS)),
        (Some(current), None) => {
            let due = renewal_time(current, lifetime);
            let is_due = now >= due || current.names != names;
            if is_due { RenewalStep::IssueNext } else { RenewalStep::Wait { until: due } }
        }
        (Some(current), Some(next)) => match plan_promotion(next, bundle, now, overlap(lifetime)) {
            // If the clock was set back, the current generation may end earlier.
            RenewalStep::Wait { until } => RenewalStep::Wait { until: until.min(current.not_after) },
            step => step,
        },
    }
}

/// Returns the next step for a generation that is served once it has been trusted for `overlap`.
fn plan_promotion(next: &NextGeneration, bundle: CaBundleState, now: i64, overlap: i64) -> RenewalStep {
    match (bundle, next.trusted_since) {
        (CaBundleState::NoWebhooks, _) => RenewalStep::Promote,
        (CaBundleState::Outdated, _) => RenewalStep::Wait { until: now.saturating_add(overlap) },
        (CaBundleState::UpToDate, None) => RenewalStep::RecordTrust,
        (CaBundleState::UpToDate, Some(since)) => {
            let due = since.saturating_add(overlap);
            if now >= due { RenewalStep::Promote } else { RenewalStep::Wait { until: due } }
        }
    }
}

/// Returns when the next generation is issued: after two thirds of the lifetime, also when `lifetime` was shortened
/// since.
fn renewal_time(current: &Generation, lifetime: i64) -> i64 {
    let lifetime = lifetime.min(current.not_after.saturating_sub(current.created_at)).max(0);
    current.created_at.saturating_add(lifetime.saturating_mul(2) / 3)
}

/// Returns how long a generation is trusted before it is served.
fn overlap(lifetime: i64) -> i64 {
    (lifetime / 12).clamp(1, LONGEST_OVERLAP)
}

#[cfg(test)]
mod tests {
    use super::CaBundleState::{NoWebhooks, Outdated, UpToDate};
    use super::RenewalStep::{IssueFirst, IssueNext, Promote, RecordTrust, Wait};
    use super::*;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;

    fn names() -> Vec<String> {
        vec!["a.svc".to_owned()]
    }

    fn generation(created_at: i64, lifetime: i64) -> Generation {
        Generation { created_at, not_after: created_at + lifetime, names: names() }
    }

    fn generations(
        current: Option<Generation>,
        next: Option<(Generation, Option<i64>)>,
    ) -> CertificateGenerations {
        let next = next.map(|(generation, trusted_since)| NextGeneration { generation, trusted_since });
        CertificateGenerations { current, next }
    }

    #[test]
    fn a_generation_is_served_after_the_overlap() {
        let old = || Some(generation(0, DAY));
        let next = |trusted_since| Some((generation(16 * HOUR, DAY), trusted_since));
        let (untrusted, trusted) = (|| next(None), || next(Some(17 * HOUR)));
        let both_expired = (old(), Some((generation(1, DAY), Some(2))));
        for (current, next, bundle, now, expected) in [
            // There is nothing to serve.
            (None, None, NoWebhooks, 0, IssueFirst),
            (old(), None, NoWebhooks, DAY, IssueFirst),
            (both_expired.0, both_expired.1, NoWebhooks, DAY + 1, IssueFirst),
            (None, None, Outdated, 0, IssueNext),
            (None, None, UpToDate, 0, IssueNext),
            // A regular renewal.
            (old(), untrusted(), Outdated, 17 * HOUR, Wait { until: 18 * HOUR }),
            (old(), untrusted(), Outdated, DAY - 1, Wait { until: DAY }),
            (old(), untrusted(), UpToDate, 17 * HOUR, RecordTrust),
            (old(), trusted(), UpToDate, 17 * HOUR + 1, Wait { until: 18 * HOUR }),
            (old(), trusted(), UpToDate, 18 * HOUR, Promote),
            // One configuration lacks the CA: calls of its webhooks would fail.
            (old(), trusted(), Outdated, 18 * HOUR, Wait { until: 19 * HOUR }),
            // The current generation has expired or is lost: the overlap is short, but the CA is trusted first.
            (old(), untrusted(), Outdated, DAY, Wait { until: DAY + 10 }),
            (old(), trusted(), UpToDate, DAY, Promote),
            (None, untrusted(), Outdated, 17 * HOUR, Wait { until: 17 * HOUR + 10 }),
            (None, untrusted(), UpToDate, 17 * HOUR, RecordTrust),
            (None, trusted(), UpToDate, 17 * HOUR + 9, Wait { until: 17 * HOUR + 10 }),
            (None, trusted(), UpToDate, 17 * HOUR + 10, Promote),
            (None, trusted(), Outdated, 17 * HOUR + 10, Wait { until: 17 * HOUR + 20 }),
            // Admission was disabled meanwhile.
            (None, untrusted(), NoWebhooks, 17 * HOUR, Promote),
        ] {
            let stored = generations(current, next);
            let step = plan_renewal(&stored, &names(), bundle, now, DAY);
            assert_eq!(step, expected, "{stored:?} {bundle:?} at {now}");
        }
    }

    #[test]
    fn the_next_generation_is_issued_in_the_last_third_or_for_other_names() {
        let mut stored = generations(Some(generation(0, 90 * DAY)), None);
        let other = ["b.svc".to_owned()];
        let at = |now| plan_renewal(&stored, &names(), UpToDate, now, 90 * DAY);
        assert_eq!(at(0), Wait { until: 60 * DAY });
        assert_eq!(at(60 * DAY - 1), Wait { until: 60 * DAY });
        assert_eq!(at(60 * DAY), IssueNext);
        assert_eq!(plan_renewal(&stored, &other, UpToDate, 1, 90 * DAY), IssueNext);
        // The lifetime was shortened.
        assert_eq!(plan_renewal(&stored, &names(), UpToDate, 3 * DAY, 3 * DAY), IssueNext);

        stored.next = Some(NextGeneration { generation: generation(1, DAY), trusted_since: None });
        assert_eq!(plan_renewal(&stored, &other, UpToDate, 2, 90 * DAY), IssueNext);
        stored.current = None;
        assert_eq!(plan_renewal(&stored, &other, NoWebhooks, 2, 90 * DAY), IssueFirst);
    }

    #[test]
    fn the_stored_form_does_not_change() {
        let stored = generations(Some(generation(1, 2)), Some((generation(3, 4), Some(5))));
        let text = r#"{"current":{"madeAt":1,"notAfter":3,"names":["a.svc"]},"next":{"madeAt":3,"notAfter":7,"names":["a.svc"],"trustedSince":5}}"#;
        assert_eq!(serde_json::to_string(&stored).unwrap(), text);
        assert_eq!(serde_json::from_str::<CertificateGenerations>(text).unwrap(), stored);
        assert_eq!(serde_json::from_str::<CertificateGenerations>("{}").unwrap(), generations(None, None));
    }

    /// Simulation of renewals.
    #[derive(Default)]
    struct Simulation {
        stored: CertificateGenerations,
        issued_at: i64,
        promotions: i64,
    }

    impl Simulation {
        /// Executes all steps that are due, for an API server that loads a bundle `delay` seconds after the change.
        fn run(&mut self, now: i64, lifetime: i64, delay: i64) {
            loop {
                let bundle = match self.stored.current {
                    None => NoWebhooks,
                    Some(_) if now < self.issued_at + delay => Outdated,
                    Some(_) => UpToDate,
                };
                match plan_renewal(&self.stored, &names(), bundle, now, lifetime) {
                    IssueFirst => {
                        assert_eq!(now, 0, "only at the start there is nothing to serve");
                        self.stored.current = Some(generation(now, lifetime));
                    }
                    IssueNext => {
                        self.issued_at = now;
                        let generation = generation(now, lifetime);
                        self.stored.next = Some(NextGeneration { generation, trusted_since: None });
                    }
                    RecordTrust => self.stored.next.as_mut().unwrap().trusted_since = Some(now),
                    Promote => {
                        let next = self.stored.next.take().unwrap();
                        assert!(now >= next.trusted_since.unwrap() + overlap(lifetime));
                        self.stored.current = Some(next.generation);
                        self.promotions += 1;
                    }
                    Wait { until } => {
                        assert!(until > now, "{until} is not after {now}");
                        return;
                    }
                }
            }
        }
    }

    /// Runs through many lifetimes second by second, with an operator that is down at times.
    #[test]
    fn the_served_generation_is_alive_and_was_trusted_before() {
        for (lifetime, delay, downtime) in
            [(36, 0, 0), (36, 2, 0), (120, 5, 10), (24, 1, 2), (90 * 60, 60, 300)]
        {
            let (mut simulation, mut back_at) = (Simulation::default(), 0);
            for now in 0..lifetime * 10 {
                if now % 7 == 3 && now >= back_at {
                    back_at = now + downtime;
                }
                if now >= back_at {
                    simulation.run(now, lifetime, delay);
                }
                let ends = simulation.stored.current.as_ref().unwrap().not_after;
                assert!(now < ends, "lifetime {lifetime}: expired at {now}");
            }
            assert!(simulation.promotions >= 9, "lifetime {lifetime}: {} promotions", simulation.promotions);
        }
    }
}
