//! A new generation: an authority, and the one certificate that it ever signs.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use thiserror::Error;
use time::OffsetDateTime;
use vfleet_plan::certificates::Generation;

/// Clocks differ: an API server that is behind must not take it for one of the future.
const VALID_BEFORE: SignedDuration = SignedDuration::from_hours(1);

/// No certificate could be made.
#[derive(Debug, Error)]
pub(super) enum NotMade {
    #[error("it cannot be signed: {0}")]
    Signing(#[from] rcgen::Error),
    #[error("it would end at a time that cannot be written: choose a shorter lifetime")]
    Time,
}

/// What was made. It has a key in it, so it cannot be printed.
pub(super) struct Made {
    /// The certificate, and its authority behind it, in PEM.
    pub(super) chain: String,
    /// Its key, in PEM.
    pub(super) key: String,
    pub(super) generation: Generation,
}

/// Makes a generation for these names. The authority's key is gone afterwards: nothing that is kept can sign.
pub(super) fn make(names: &[String], now: Timestamp, lifetime: Duration) -> Result<Made, NotMade> {
    let lifetime = SignedDuration::try_from(lifetime).map_err(|_| NotMade::Time)?;
    let ends = now.checked_add(lifetime).map_err(|_| NotMade::Time)?;
    let begins = now.checked_sub(VALID_BEFORE).map_err(|_| NotMade::Time)?;
    let (not_before, not_after) = (date(begins)?, date(ends)?);

    let mut authority = CertificateParams::default();
    // Another name each time: several of them are trusted at once.
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
    let certificate = leaf.signed_by(&key, &issuer)?;

    Ok(Made {
        chain: certificate.pem() + &authority_certificate.pem(),
        key: key.serialize_pem(),
        generation: Generation {
            made_at: now.as_second(),
            not_after: ends.as_second(),
            names: names.to_vec(),
        },
    })
}

fn date(time: Timestamp) -> Result<OffsetDateTime, NotMade> {
    OffsetDateTime::from_unix_timestamp(time.as_second()).map_err(|_| NotMade::Time)
}
