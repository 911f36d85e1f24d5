//! Secret of own certificates, and its changes in a renewal.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use vfleet_plan::certificates::{CertificateGenerations, Generation, NextGeneration};

use super::pem::{KeyPairPem, check, split_certificates};

/// Keys of the Secret.
pub(crate) const CHAIN: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";
pub(crate) const AUTHORITIES: &str = "ca.crt";
const NEXT_CHAIN: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const GENERATIONS: &str = "generations.json";

/// Number of CAs that are trusted. It is reached only if the Secret is damaged again and again.
const MAX_AUTHORITIES: usize = 5;

/// Data of a Secret.
pub(crate) type SecretData = BTreeMap<String, ByteString>;

/// Own certificates in the Secret. They have no `Debug`, because of the keys.
#[derive(Clone, Default)]
pub(in super::super) struct OwnCertificates {
    /// Generations, without those whose certificate cannot be served.
    pub(in super::super) generations: CertificateGenerations,
    current: KeyPairPem,
    next: KeyPairPem,
    /// CAs to trust, each in PEM.
    authorities: Vec<String>,
}

impl OwnCertificates {
    /// Parses the Secret. Certificates must be valid for `name`.
    pub(in super::super) fn parse(data: &SecretData, name: &str, now: Timestamp) -> Self {
        let text = |key: &str| {
            data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok()).unwrap_or_default()
        };
        let bundle = text(AUTHORITIES);
        let is_good = |pair: &KeyPairPem| {
            pair.parse().and_then(|pair| check(&pair.cert, bundle.as_bytes(), name, now)).is_ok()
        };
        let stored: CertificateGenerations = serde_json::from_str(&text(GENERATIONS)).unwrap_or_default();
        let current = KeyPairPem { chain: text(CHAIN), key: text(KEY) };
        let next = KeyPairPem { chain: text(NEXT_CHAIN), key: text(NEXT_KEY) };
        let generations = CertificateGenerations {
            current: stored.current.filter(|_| is_good(&current)),
            next: stored.next.filter(|_| is_good(&next)),
        };
        Self { generations, current, next, authorities: split_certificates(&bundle) }
    }

    /// Returns the CA bundle that the API server must trust.
    pub(in super::super) fn bundle(&self) -> String {
        self.authorities.concat()
    }

    /// Returns a Secret in which `pair` is served at once.
    pub(super) fn first((pair, generation): (KeyPairPem, Generation)) -> Self {
        Self {
            authorities: pair.authority().into_iter().collect(),
            generations: CertificateGenerations { current: Some(generation), next: None },
            current: pair,
            next: KeyPairPem::default(),
        }
    }

    /// Adds `pair` to be trusted now and served later. If the current generation is lost, replicas may still serve it,
    /// so the CAs in the webhook configurations (`trusted`) stay.
    pub(super) fn with_next(
        mut self,
        (pair, generation): (KeyPairPem, Generation),
        trusted: Vec<String>,
    ) -> Self {
        let previous = match &self.generations.current {
            Some(_) => self.current.authority().into_iter().collect(),
            None => trusted,
        };
        self.authorities = pair.authority().into_iter().collect();
        for authority in previous {
            if !self.authorities.contains(&authority) && self.authorities.len() < MAX_AUTHORITIES {
                self.authorities.push(authority);
            }
        }
        self.generations.next = Some(NextGeneration { generation, trusted_since: None });
        self.next = pair;
        self
    }

    /// Records that the next generation is trusted from now on.
    pub(super) fn with_trust(mut self, now: Timestamp) -> Self {
        if let Some(next) = &mut self.generations.next {
            next.trusted_since = Some(now.as_second());
        }
        self
    }

    /// Serves the next generation. The previous CA stays trusted until another generation is issued, because other
    /// replicas load the Secret later.
    pub(super) fn promoted(mut self) -> Self {
        self.generations.current = self.generations.next.take().map(|next| next.generation);
        self.current = std::mem::take(&mut self.next);
        self
    }

    /// Returns a merge patch that replaces all data of the Secret.
    pub(super) fn to_patch(&self) -> Value {
        let bytes = |text: &str| (!text.is_empty()).then(|| ByteString(text.as_bytes().to_vec()));
        json!({
            CHAIN: bytes(&self.current.chain),
            KEY: bytes(&self.current.key),
            AUTHORITIES: bytes(&self.bundle()),
            NEXT_CHAIN: bytes(&self.next.chain),
            NEXT_KEY: bytes(&self.next.key),
            GENERATIONS: bytes(&json!(self.generations).to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::issue::issue;
    use super::*;

    const NAME: &str = "vfleet-webhook.ns.svc";

    fn issued(now: i64) -> (KeyPairPem, Generation) {
        let names = [NAME.to_owned(), "127.0.0.1".to_owned()];
        issue(&names, at(now), Duration::from_secs(100)).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second + 1_000_000).unwrap()
    }

    fn stored(certificates: &OwnCertificates) -> SecretData {
        let data: BTreeMap<String, Option<ByteString>> =
            serde_json::from_value(certificates.to_patch()).unwrap();
        data.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    /// Returns the certificates after a write and a read.
    fn reloaded(certificates: &OwnCertificates, second: i64) -> OwnCertificates {
        OwnCertificates::parse(&stored(certificates), NAME, at(second))
    }

    /// Returns whether an API server with this bundle accepts the current certificate.
    fn is_trusted(certificates: &OwnCertificates, bundle: &str, second: i64) -> bool {
        let served = certificates.current.parse().unwrap();
        check(&served.cert, bundle.as_bytes(), NAME, at(second)).is_ok()
    }

    #[test]
    fn old_and_new_certificates_are_trusted_during_a_renewal() {
        let first = OwnCertificates::first(issued(0));
        let bundle_before = first.bundle();
        assert!(is_trusted(&first, &bundle_before, 0));

        let next = reloaded(&first, 60).with_next(issued(60), vec![]);
        let bundle = next.bundle();
        assert!(is_trusted(&first, &bundle, 60) && is_trusted(&next, &bundle_before, 60));

        let trusted = reloaded(&next, 61).with_trust(at(61));
        assert_eq!(trusted.bundle(), bundle);
        let promoted = reloaded(&trusted, 70).promoted();
        assert!(is_trusted(&promoted, &bundle, 70) && is_trusted(&next, &promoted.bundle(), 70));
        assert!(!is_trusted(&promoted, &bundle_before, 70));

        let last = reloaded(&promoted, 70);
        assert_eq!(last.generations.current.as_ref().unwrap().created_at, at(60).as_second());
        assert!(last.generations.next.is_none());
        assert_eq!(stored(&promoted).keys().collect::<Vec<_>>(), [AUTHORITIES, GENERATIONS, CHAIN, KEY]);
        // The oldest CA is removed when another generation is issued.
        assert_eq!(split_certificates(&last.with_next(issued(130), vec![]).bundle()).len(), 2);
    }

    #[test]
    fn certificates_that_cannot_be_served_are_ignored() {
        let good = stored(&OwnCertificates::first(issued(0)).with_next(issued(60), vec![]));
        let other = stored(&OwnCertificates::first(issued(0)));
        let usable = |data: &SecretData, name, second| {
            let generations = OwnCertificates::parse(data, name, at(second)).generations;
            (generations.current.is_some(), generations.next.is_some())
        };
        assert_eq!(usable(&good, NAME, 61), (true, true));
        assert_eq!(usable(&good, NAME, 101), (false, true), "the first has expired");
        assert_eq!(usable(&good, "other.ns.svc", 61), (false, false));
        assert_eq!(usable(&SecretData::new(), NAME, 0), (false, false));
        let with = |key: &str, value: Option<&ByteString>| {
            let mut data = good.clone();
            match value {
                Some(value) => data.insert(key.to_owned(), value.clone()),
                None => data.remove(key),
            };
            usable(&data, NAME, 61)
        };
        let garbage = ByteString(b"\xff garbage".to_vec());
        for (key, expected) in [(CHAIN, (false, true)), (KEY, (false, true)), (NEXT_KEY, (true, false))] {
            for value in [None, Some(&garbage), other.get(CHAIN), other.get(KEY)] {
                assert_eq!(with(key, value), expected, "{key}");
            }
        }
        for value in [None, Some(&garbage), other.get(AUTHORITIES)] {
            assert_eq!(with(AUTHORITIES, value), (false, false));
        }
        assert_eq!(with(GENERATIONS, Some(&garbage)), (false, false));
    }

    #[test]
    fn trusted_cas_stay_trusted_if_a_part_of_the_secret_is_lost() {
        let before = OwnCertificates::first(issued(0));
        let trusted = split_certificates(&before.bundle());
        let all = vec![CHAIN, KEY, AUTHORITIES, GENERATIONS];
        for lost in [vec![KEY], vec![CHAIN], vec![GENERATIONS], vec![AUTHORITIES], all] {
            let mut data = stored(&before);
            data.retain(|key, _| !lost.contains(&key.as_str()));
            let repaired = OwnCertificates::parse(&data, NAME, at(1)).with_next(issued(1), trusted.clone());
            let bundle = repaired.bundle();
            assert!(is_trusted(&before, &bundle, 1), "{lost:?}: replicas still serve the lost one");
            let read = reloaded(&repaired, 2);
            assert!(read.generations.current.is_none() && read.generations.next.is_some(), "{lost:?}");
            let promoted = read.with_trust(at(2)).promoted();
            assert_eq!(promoted.bundle(), bundle, "{lost:?}");
            assert!(is_trusted(&promoted, &bundle, 3) && is_trusted(&before, &bundle, 3), "{lost:?}");
            // A replica that starts now can serve the rest.
            if lost == [GENERATIONS] {
                assert_eq!(stored(&repaired)[CHAIN], stored(&before)[CHAIN]);
            }
            let next = reloaded(&promoted, 60).with_next(issued(60), trusted.clone());
            assert_eq!(split_certificates(&next.bundle()).len(), 2, "{lost:?}: the lost CA is removed");
        }
    }

    #[test]
    fn the_number_of_trusted_cas_is_limited() {
        let mut certificates = OwnCertificates::default();
        for second in 0..20 {
            let trusted = split_certificates(&certificates.bundle());
            certificates = OwnCertificates::default().with_next(issued(second), trusted);
        }
        assert_eq!(split_certificates(&certificates.bundle()).len(), MAX_AUTHORITIES);
    }
}
