//! TLS.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

const LIMITS: ServerLimits = ServerLimits::FEW_CLIENTS;

/// Starts a server with TLS; also returns its certificate.
fn start(limits: ServerLimits) -> (Fixture, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let certificate = cert.der().clone();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    (Fixture::start_with(limits, |server| server.with_tls(acceptor)), certificate)
}

async fn handshake(
    stream: DuplexStream,
    trusted: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> io::Result<Client<TlsStream<DuplexStream>>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(Client)
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered() {
    let (server, certificate) = start(LIMITS);
    let mut client = handshake(server.connect(1).0, &certificate, &[]).await.unwrap();
    assert!(client.is_answered().await);
    assert!(client.is_answered().await);
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().1.len(), 1024 * 1024);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_end_is_aborted() {
    let (server, _) = start(LIMITS);
    assert_took(server.connect(1).wait_until_closed().await, LIMITS.handshake);
    let mut half = server.connect(1);
    // The header of a record of 512 bytes.
    half.send(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await;
    assert_took(half.wait_until_closed().await, LIMITS.handshake);
}

/// An API server may open a connection, send its request over another one that became free, and use the new one later.
#[tokio::test(start_paused = true)]
async fn a_connection_may_be_idle_after_its_handshake() {
    let (server, certificate) = start(LIMITS);
    let mut client = handshake(server.connect(1).0, &certificate, &[]).await.unwrap();
    advance(LIMITS.idle * 9 / 10).await;
    assert!(client.is_answered().await);
    assert_took(client.wait_until_closed().await, LIMITS.idle);
    let mut client = handshake(server.connect(1).0, &certificate, &[]).await.unwrap();
    assert_took(client.wait_until_closed().await, LIMITS.idle);
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_header_is_aborted() {
    let (server, certificate) = start(LIMITS);
    let mut client = handshake(server.connect(1).0, &certificate, &[]).await.unwrap();
    client.send(HALF_A_HEADER).await;
    assert_took(client.wait_until_closed().await, LIMITS.header);
}

#[tokio::test(start_paused = true)]
async fn only_http_1_is_supported() {
    let (server, certificate) = start(LIMITS);
    assert!(handshake(server.connect(1).0, &certificate, &[b"h2"]).await.is_err());
    let mut client = handshake(server.connect(1).0, &certificate, &[b"h2", b"http/1.1"]).await.unwrap();
    assert!(client.is_answered().await);
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let response = client.read_response().await;
    assert!(response.as_ref().is_none_or(|(status, _)| *status == 400), "{response:?}");
    let mut no_tls = server.connect(1);
    no_tls.send(GET).await;
    let mut response = Vec::new();
    let _ = no_tls.0.read_to_end(&mut response).await;
    assert!(!response.starts_with(b"HTTP"), "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn silent_connections_do_not_block_others() {
    let (server, certificate) = start(LIMITS);
    let mut before = handshake(server.connect(2).0, &certificate, &[]).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..1100 {
        held.push(server.connect(1));
    }
    let mut held_after_handshake = Vec::new();
    for _ in 0..100 {
        held_after_handshake.push(handshake(server.connect(1).0, &certificate, &[]).await.unwrap());
    }
    for peer in [1, 3] {
        let mut client = handshake(server.connect(peer).0, &certificate, &[]).await.unwrap();
        assert!(client.is_answered().await);
    }
    assert!(before.is_answered().await, "a peer with few connections keeps them");
}
