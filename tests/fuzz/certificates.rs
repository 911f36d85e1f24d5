//! Certificates, keys and bundles in PEM.

use k8s_openapi::jiff::Timestamp;
use vfleet_operator::fuzzing;
use vfleet_plan::certificates::{CaBundleState, CertificateGenerations, RenewalStep, plan_renewal};

use crate::driver::{Target, Verdict};

/// Name and time for which the certificates of the corpus are valid.
const NAME: &str = "vfleet-webhook.vfleet-system.svc";
const NOW: i64 = 1_800_000_000;
/// Separator of the parts of one input.
const SEPARATOR: &str = "\n=====\n";

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn parts<const N: usize>(text: &str) -> [&str; N] {
    let mut parts = text.split(SEPARATOR);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

#[test]
fn certificate() {
    Target::new("certificate").with_words(&[SEPARATOR]).with_cases(400).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        match fuzzing::certificate(parts::<3>(&text).map(str::as_bytes), NAME, now()) {
            Ok(end) => {
                assert!(end.is_some_and(|end| end >= now()), "{end:?}: a certificate that has ended");
                Verdict::Accepted
            }
            Err(reason) => {
                assert!(!reason.is_empty());
                Verdict::Refused
            }
        }
    });
}

#[test]
fn authorities() {
    Target::new("authorities").with_cases(600).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let found = fuzzing::authorities(&text);
        assert_eq!(fuzzing::authorities(&found.concat()), found);
        let given = vfleet_operator::parse_ca_certificate(&text);
        assert!(given.is_ok_and(|pem| pem.contains("BEGIN CERTIFICATE")) || found.is_empty());
        Verdict::of(!found.is_empty())
    });
}

/// Asserts that no certificate is served before it is trusted, regardless of the stored times.
fn check_times(times: &CertificateGenerations) {
    for now in [i64::MIN, -1, 0, NOW, i64::MAX] {
        for lifetime in [1, 90 * 24 * 3600] {
            let untrusted = plan_renewal(times, &[NAME.to_owned()], CaBundleState::Outdated, now, lifetime);
            assert!(untrusted != RenewalStep::Promote, "served before it is trusted");
            let _ = plan_renewal(times, &[NAME.to_owned()], CaBundleState::UpToDate, now, lifetime);
            let _ = plan_renewal(times, &[], CaBundleState::NoWebhooks, now, lifetime);
        }
    }
}

#[test]
fn kept_certificates() {
    Target::new("kept_certificates").with_words(&[SEPARATOR]).with_cases(300).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let [chain, key, bundle, times] = parts::<4>(&text);
        if let Ok(times) = serde_json::from_str(times) {
            check_times(&times);
        }
        let data = [("tls.crt", chain), ("tls.key", key), ("ca.crt", bundle), ("generations.json", times)];
        let data = data.map(|(name, text)| (name, text.as_bytes()));
        let (times, bundle) = fuzzing::kept_certificates(data, NAME, now());
        check_times(&times);
        assert_eq!(fuzzing::authorities(&bundle).concat(), bundle);
        Verdict::of(times.current.is_some())
    });
}
