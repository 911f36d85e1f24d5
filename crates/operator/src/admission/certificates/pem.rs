//! Certificates in PEM, and what they are good for.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use thiserror::Error;

const END: &str = "-----END CERTIFICATE-----";

/// Why a certificate cannot be served. Never says anything of what is in a key.
#[derive(Debug, Error)]
pub(crate) enum Unusable {
    #[error("there is no {0}")]
    Missing(&'static str),
    #[error("{0} is not in PEM")]
    NoPem(&'static str),
    #[error("the certificate and its key do not belong together, or cannot be used: {0}")]
    Pair(rustls::Error),
    #[error("ca.crt has nothing that could be trusted: {0}")]
    Authority(String),
    #[error("as the API server sees it: {0}")]
    Untrusted(rustls::Error),
    #[error("the certificate cannot be read")]
    Unreadable,
}

/// A chain and its key, to be served. Fails when they do not belong together.
pub(crate) fn pair(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, Unusable> {
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Unusable::NoPem("tls.key"))?;
    CertifiedKey::from_der(certificates(chain, "tls.crt")?, key, &ring::default_provider())
        .map_err(Unusable::Pair)
}

/// Whether an API server that was given `bundle` accepts `chain` as `name`.
pub(crate) fn check(
    chain: &[CertificateDer<'_>],
    bundle: &[u8],
    name: &str,
    now: Timestamp,
) -> Result<(), Unusable> {
    let trusted = certificates(bundle, "ca.crt")?;
    // It needs nobody to vouch for it then, and may be an authority itself.
    if chain.first().is_some_and(|leaf| trusted.contains(leaf)) {
        return check_alone(chain, name, now);
    }
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate).map_err(|error| Unusable::Authority(error.to_string()))?;
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()))
            .build()
            .map_err(|error| Unusable::Authority(error.to_string()))?;
    let (leaf, others) = chain.split_first().ok_or(Unusable::Missing("tls.crt"))?;
    let name = server_name(name)?;
    let now = unix_time(now.as_second());
    verifier.verify_server_cert(leaf, others, &name, &[], now).map(drop).map_err(Unusable::Untrusted)
}

/// Whether `chain` is one for a server with this `name`, and its time is now. Whoever signed it.
pub(crate) fn check_alone(chain: &[CertificateDer<'_>], name: &str, now: Timestamp) -> Result<(), Unusable> {
    let leaf = chain.first().ok_or(Unusable::Missing("tls.crt"))?;
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|_| Unusable::Unreadable)?;
    let untrusted = |error: CertificateError| Err(Unusable::Untrusted(error.into()));
    let time = unix_time(now.as_second());
    let [not_before, not_after] =
        [parsed.validity().not_before, parsed.validity().not_after].map(|time| unix_time(time.timestamp()));
    if time < not_before {
        return untrusted(CertificateError::NotValidYetContext { time, not_before });
    }
    if time > not_after {
        return untrusted(CertificateError::ExpiredContext { time, not_after });
    }
    if let Ok(Some(usage)) = parsed.extended_key_usage()
        && !usage.value.server_auth
        && !usage.value.any
    {
        return untrusted(CertificateError::InvalidPurpose);
    }
    let leaf = ParsedCertificate::try_from(leaf).map_err(Unusable::Untrusted)?;
    verify_server_name(&leaf, &server_name(name)?).map_err(Unusable::Untrusted)
}

fn server_name(name: &str) -> Result<ServerName<'_>, Unusable> {
    ServerName::try_from(name)
        .map_err(|_| Unusable::Untrusted(rustls::Error::General(format!("{name} is no name"))))
}

fn unix_time(seconds: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

/// When a certificate ends.
pub(crate) fn end_of(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(Unusable::NoPem(what))
}

/// The authority of a chain: its last certificate.
pub(crate) fn authority_of(chain: &str) -> Option<String> {
    blocks(chain).pop()
}

/// The certificates of a text that an API server could trust, each as its own text.
pub(crate) fn blocks(text: &str) -> Vec<String> {
    let can_be_trusted = |block: &String| {
        CertificateDer::from_pem_slice(block.as_bytes())
            .is_ok_and(|certificate| RootCertStore::empty().add(certificate).is_ok())
    };
    text.split_inclusive(END)
        .map(|block| format!("{}\n", block.trim()))
        .filter(|block| block.trim_end().ends_with(END))
        .filter(can_be_trusted)
        .collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    use time::OffsetDateTime;

    use super::*;

    /// As `openssl req -x509` makes them: its own authority.
    fn its_own_authority(purpose: Option<ExtendedKeyUsagePurpose>) -> (Vec<CertificateDer<'static>>, String) {
        let mut params = CertificateParams::new(vec!["here.svc".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.extended_key_usages = purpose.into_iter().collect();
        params.not_before = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(100);
        params.not_after = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(200);
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        (vec![made.der().clone()], made.pem())
    }

    #[test]
    fn one_that_is_trusted_itself_needs_no_other() {
        let (chain, bundle) = its_own_authority(None);
        let at = |second, name| {
            let now = Timestamp::from_second(second).unwrap();
            check(&chain, bundle.as_bytes(), name, now).map_err(|error| error.to_string())
        };
        assert_eq!(at(150, "here.svc"), Ok(()));
        assert!(at(99, "here.svc").unwrap_err().contains("not valid yet"));
        assert!(at(201, "here.svc").unwrap_err().contains("xpired"));
        assert!(at(150, "there.svc").unwrap_err().contains("not valid for"));
        let (_, another) = its_own_authority(None);
        let now = Timestamp::from_second(150).unwrap();
        assert!(check(&chain, another.as_bytes(), "here.svc", now).is_err());
    }

    #[test]
    fn one_for_clients_is_none_for_servers() {
        let now = Timestamp::from_second(150).unwrap();
        for (purpose, is_good) in
            [(ExtendedKeyUsagePurpose::ServerAuth, true), (ExtendedKeyUsagePurpose::ClientAuth, false)]
        {
            let (chain, _) = its_own_authority(Some(purpose));
            assert_eq!(check_alone(&chain, "here.svc", now).is_ok(), is_good);
        }
    }
}
