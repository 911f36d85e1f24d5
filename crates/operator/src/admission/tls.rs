//! TLS for the webhooks, with a certificate that can be exchanged while it serves.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use tokio_rustls::TlsAcceptor;

/// The certificate that is served, for all who need it. New connections get the one that was set last.
#[derive(Clone, Default)]
pub(crate) struct Resolver(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Resolver {
    /// Serves this one from now on.
    pub(crate) fn set(&self, key: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
    }

    /// Whether there is one.
    pub(crate) fn is_loaded(&self) -> bool {
        self.current().is_some()
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl std::fmt::Debug for Resolver {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("is_loaded", &self.is_loaded()).finish()
    }
}

impl ResolvesServerCert for Resolver {
    /// Whatever name is asked for. As long as there is none, the handshake ends.
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

/// How connections are made. API servers have no certificate of their own, so none is asked for.
pub(crate) fn acceptor(certificate: Resolver, only_tls13: bool) -> Result<TlsAcceptor, rustls::Error> {
    let versions = if only_tls13 { &[&TLS13][..] } else { &[&TLS13, &TLS12] };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
