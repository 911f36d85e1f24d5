//! Certificates in PEM, and the checks that an API server makes.

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

/// Reason why a certificate cannot be served. The text never contains a part of a key.
#[derive(Debug, Error)]
pub(crate) enum UnusableCertificate {
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("ca.crt is missing, and ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_CA_CRT is not set")]
    NoAuthority,
    #[error("{0} is not valid PEM")]
    NoPem(&'static str),
    #[error("tls.crt and tls.key do not match, or cannot be used: {0}")]
    Pair(rustls::Error),
    #[error("ca.crt contains no usable CA: {0}")]
    Authority(String),
    #[error("the API server would refuse it: {0}")]
    Untrusted(rustls::Error),
    #[error("tls.crt cannot be parsed")]
    Unreadable,
}

/// Certificate with its CAs, and its key, in PEM. It has no `Debug`, because of the key.
#[derive(Clone, Default)]
pub(crate) struct KeyPairPem {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl KeyPairPem {
    /// Returns the last certificate of the chain.
    pub(crate) fn authority(&self) -> Option<String> {
        split_certificates(&self.chain).pop()
    }

    /// Parses the pair for a TLS server.
    pub(crate) fn parse(&self) -> Result<CertifiedKey, UnusableCertificate> {
        parse_pair(self.chain.as_bytes(), self.key.as_bytes())
    }
}

/// Parses a chain and its key for a TLS server. Fails if they do not match.
pub(crate) fn parse_pair(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, UnusableCertificate> {
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| UnusableCertificate::NoPem("tls.key"))?;
    CertifiedKey::from_der(parse_certificates(chain, "tls.crt")?, key, &ring::default_provider())
        .map_err(UnusableCertificate::Pair)
}

/// Checks that an API server with this CA `bundle` accepts `chain` as `name`.
pub(crate) fn check(
    chain: &[CertificateDer<'_>],
    bundle: &[u8],
    name: &str,
    now: Timestamp,
) -> Result<(), UnusableCertificate> {
    let trusted = parse_certificates(bundle, "ca.crt")?;
    // A certificate in the bundle needs no issuer, and may be a CA itself.
    if chain.first().is_some_and(|leaf| trusted.contains(leaf)) {
        return check_alone(chain, name, now);
    }
    let unusable = |error: &dyn std::error::Error| UnusableCertificate::Authority(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()))
            .build()
            .map_err(|error| unusable(&error))?;
    let (leaf, others) = chain.split_first().ok_or(UnusableCertificate::Missing("tls.crt"))?;
    let (name, now) = (server_name(name)?, unix_time(now.as_second()));
    verifier
        .verify_server_cert(leaf, others, &name, &[], now)
        .map(drop)
        .map_err(UnusableCertificate::Untrusted)
}

/// Checks that `chain` is a currently valid server certificate for `name`, without checking its issuer.
pub(crate) fn check_alone(
    chain: &[CertificateDer<'_>],
    name: &str,
    now: Timestamp,
) -> Result<(), UnusableCertificate> {
    let leaf = chain.first().ok_or(UnusableCertificate::Missing("tls.crt"))?;
    let (_, parsed) =
        x509_parser::parse_x509_certificate(leaf).map_err(|_| UnusableCertificate::Unreadable)?;
    let untrusted = |error: CertificateError| Err(UnusableCertificate::Untrusted(error.into()));
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
    let leaf = ParsedCertificate::try_from(leaf).map_err(UnusableCertificate::Untrusted)?;
    verify_server_name(&leaf, &server_name(name)?).map_err(UnusableCertificate::Untrusted)
}

fn server_name(name: &str) -> Result<ServerName<'_>, UnusableCertificate> {
    let invalid = |_| rustls::Error::General(format!("{name} is not a server name"));
    ServerName::try_from(name).map_err(invalid).map_err(UnusableCertificate::Untrusted)
}

fn unix_time(seconds: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

/// Returns the expiry of a certificate.
pub(crate) fn expiry(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

fn parse_certificates(
    pem: &[u8],
    key: &'static str,
) -> Result<Vec<CertificateDer<'static>>, UnusableCertificate> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(UnusableCertificate::NoPem(key))
}

/// Splits a bundle into the certificates that an API server can trust, each in PEM.
pub(crate) fn split_certificates(bundle: &str) -> Vec<String> {
    let can_be_trusted = |block: &String| {
        CertificateDer::from_pem_slice(block.as_bytes())
            .is_ok_and(|certificate| RootCertStore::empty().add(certificate).is_ok())
    };
    let blocks = bundle.split_inclusive(END).filter(|block| block.ends_with(END));
    blocks.map(|block| format!("{}\n", block.trim())).filter(can_be_trusted).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    use time::OffsetDateTime;

    use super::*;

    /// Issues a self-signed certificate like `openssl req -x509`.
    fn self_signed(purpose: Option<ExtendedKeyUsagePurpose>) -> (Vec<CertificateDer<'static>>, String) {
        let mut params = CertificateParams::new(vec!["here.svc".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.extended_key_usages = purpose.into_iter().collect();
        params.not_before = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(100);
        params.not_after = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(200);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        (vec![certificate.der().clone()], certificate.pem())
    }

    #[test]
    fn a_self_signed_certificate_can_be_its_own_ca() {
        let (chain, bundle) = self_signed(None);
        let at = |second, name, bundle: &str| {
            let now = Timestamp::from_second(second).unwrap();
            check(&chain, bundle.as_bytes(), name, now).map_err(|error| error.to_string())
        };
        assert_eq!(at(150, "here.svc", &bundle), Ok(()));
        assert!(at(99, "here.svc", &bundle).unwrap_err().contains("not valid yet"));
        assert!(at(201, "here.svc", &bundle).unwrap_err().contains("xpired"));
        assert!(at(150, "there.svc", &bundle).unwrap_err().contains("not valid for"));
        assert!(at(150, "here.svc", &self_signed(None).1).is_err());
    }

    #[test]
    fn a_client_certificate_is_not_a_server_certificate() {
        let now = Timestamp::from_second(150).unwrap();
        for (purpose, is_good) in
            [(ExtendedKeyUsagePurpose::ServerAuth, true), (ExtendedKeyUsagePurpose::ClientAuth, false)]
        {
            assert_eq!(check_alone(&self_signed(Some(purpose)).0, "here.svc", now).is_ok(), is_good);
        }
    }
}
