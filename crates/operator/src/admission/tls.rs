//! TLS of the webhook server, with a certificate that can be replaced at runtime.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use tokio_rustls::TlsAcceptor;

/// Certificate of the webhook server. New connections get the last one that was set.
#[derive(Clone, Default)]
pub(crate) struct CertificateResolver(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl CertificateResolver {
    /// Serves this certificate from now on.
    pub(crate) fn set(&self, key: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
    }

    /// Returns whether a certificate was set.
    pub(crate) fn is_loaded(&self) -> bool {
        self.current().is_some()
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl std::fmt::Debug for CertificateResolver {
    /// Leaves out the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateResolver").field("is_loaded", &self.is_loaded()).finish()
    }
}

impl ResolvesServerCert for CertificateResolver {
    /// Returns the certificate for any server name. Without one the handshake fails.
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

/// Returns the TLS acceptor. API servers present no client certificate, so none is requested.
pub(crate) fn build_acceptor(
    certificate: CertificateResolver,
    only_tls13: bool,
) -> Result<TlsAcceptor, rustls::Error> {
    let versions = if only_tls13 { &[&TLS13][..] } else { &[&TLS13, &TLS12] };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
