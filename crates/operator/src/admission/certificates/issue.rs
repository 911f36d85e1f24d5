//! Issue of a new generation: a CA, and the one certificate that it ever signs.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use thiserror::Error;
use time::OffsetDateTime;
use vfleet_plan::certificates::Generation;

use super::pem::KeyPairPem;

/// Time that a certificate is valid before its creation, because the clock of an API server may be behind.
const BACKDATING: SignedDuration = SignedDuration::from_hours(1);

/// Error of [`issue`].
#[derive(Debug, Error)]
pub(super) enum IssueError {
    #[error("signing failed: {0}")]
    Signing(#[from] rcgen::Error),
    #[error("its expiry is out of range: choose a shorter lifetime")]
    Time,
}

/// Issues a certificate for these names, with a new CA behind it in the chain. The CA's key is dropped, so that nothing
/// that is stored can sign.
pub(super) fn issue(
    names: &[String],
    now: Timestamp,
    lifetime: Duration,
) -> Result<(KeyPairPem, Generation), IssueError> {
    let lifetime = SignedDuration::try_from(lifetime).map_err(|_| IssueError::Time)?;
    let ends = now.checked_add(lifetime).map_err(|_| IssueError::Time)?;
    let begins = now.checked_sub(BACKDATING).map_err(|_| IssueError::Time)?;
    let (not_before, not_after) = (date(begins)?, date(ends)?);

    let mut authority = CertificateParams::default();
    // Unique, because several CAs are trusted at the same time.
    authority.distinguished_name.push(DnType::CommonName, format!("vfleet-webhook-ca-{}", now.as_second()));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (authority.not_before, authority.not_after) = (not_before, not_after);
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut leaf = CertificateParams::new(names)?;
    leaf.distinguished_name.push(DnType::CommonName, "vfleet-webhook");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    (leaf.not_before, leaf.not_after) = (not_before, not_after);
    let key = KeyPair::generate()?;
    let chain = leaf.signed_by(&key, &issuer)?.pem() + &authority_certificate.pem();

    let generation =
        Generation { created_at: now.as_second(), not_after: ends.as_second(), names: names.to_vec() };
    Ok((KeyPairPem { chain, key: key.serialize_pem() }, generation))
}

fn date(time: Timestamp) -> Result<OffsetDateTime, IssueError> {
    OffsetDateTime::from_unix_timestamp(time.as_second()).map_err(|_| IssueError::Time)
}

/// Issues a certificate for a test.
#[cfg(test)]
pub(in crate::admission) fn issue_now(names: &[&str]) -> KeyPairPem {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    issue(&names, Timestamp::now(), Duration::from_mins(10)).unwrap().0
}
