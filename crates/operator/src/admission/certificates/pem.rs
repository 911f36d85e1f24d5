//! Certificates in PEM, and what they are good for.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
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
    let mut roots = RootCertStore::empty();
    for certificate in certificates(bundle, "ca.crt")? {
        roots.add(certificate).map_err(|error| Unusable::Authority(error.to_string()))?;
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()))
            .build()
            .map_err(|error| Unusable::Authority(error.to_string()))?;
    let (leaf, others) = chain.split_first().ok_or(Unusable::Missing("tls.crt"))?;
    let name = ServerName::try_from(name)
        .map_err(|_| Unusable::Untrusted(rustls::Error::General(format!("{name} is no name"))))?;
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    verifier.verify_server_cert(leaf, others, &name, &[], now).map(drop).map_err(Unusable::Untrusted)
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
