mod documented;
mod hostile;
mod invalid_requests;
mod stopping;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::version::TLS12;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use vfleet_plan::admission::Findings;

use super::*;
use crate::admission::certificates::issue_now;
use crate::admission::certificates::pem::KeyPairPem;

/// Handler that repeats the request in its response, and panics for objects named `fail`.
struct Echo {
    /// Requests for pods named `good-later` wait for a permit.
    release: Arc<Semaphore>,
}

impl Echo {
    fn respond(request: &ReviewRequest<'_>) -> AdmissionResponse {
        assert_ne!(request.name, "fail", "as requested");
        if request.name.starts_with("good") {
            return AdmissionResponse::Allow { warnings: vec![request.name.to_owned()], patch: Vec::new() };
        }
        let mut findings = Findings::default();
        findings.error("T01", "Test", "metadata.name", format!("{} of {}", request.name, request.uid));
        AdmissionResponse::Deny { code: 422, reason: "Invalid", findings }
    }
}

impl WebhookHandler for Echo {
    async fn validate(&self, request: &ReviewRequest<'_>) -> AdmissionResponse {
        Self::respond(request)
    }

    fn mutate(&self, request: &ReviewRequest<'_>) -> AdmissionResponse {
        Self::respond(request)
    }

    async fn pod(&self, request: ReviewRequest<'_>) -> AdmissionResponse {
        tokio::task::yield_now().await;
        if request.name == "good-later" {
            self.release.acquire().await.unwrap().forget();
        }
        Self::respond(&request)
    }
}

fn review(uid: &str, name: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid, "kind": { "group": "", "version": "v1", "kind": "Pod" }, "operation": "CREATE",
            "namespace": "ns", "name": name, "object": { "metadata": { "name": name } },
        },
    })
}

fn service(stop: &CancellationToken) -> WebhookService<Echo> {
    let echo = Echo { release: Arc::new(Semaphore::new(0)) };
    WebhookService::new(Arc::new(echo), Arc::new(Metrics::new()), stop.clone())
}

fn post_request(body: impl Into<axum::body::Body>) -> Request {
    let kind = "application/json; charset=utf-8";
    Request::post(VALIDATE).header(header::CONTENT_TYPE, kind).body(body.into()).unwrap()
}

async fn respond(service: &WebhookService<Echo>, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
    let response = service.respond(Webhook::Validate, post_request(body)).await;
    let status = response.status();
    (status, axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec())
}

/// Server at its own port. It stops when dropped.
struct TestServer {
    address: SocketAddr,
    certificate: CertificateResolver,
    release: Arc<Semaphore>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl TestServer {
    async fn start(only_tls13: bool) -> Self {
        Self::start_with(only_tls13, LIMITS).await
    }

    /// Starts a server with a certificate.
    async fn certified(limits: ServerLimits) -> (Self, KeyPairPem) {
        let (server, certificate) = (Self::start_with(false, limits).await, issue_now(&["127.0.0.1"]));
        server.certificate.set(certificate.parse().unwrap());
        (server, certificate)
    }

    async fn start_with(only_tls13: bool, limits: ServerLimits) -> Self {
        let certificate = CertificateResolver::default();
        let (stop, release) = (CancellationToken::new(), Arc::new(Semaphore::new(0)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = build_acceptor(certificate.clone(), only_tls13).unwrap();
        let echo = Echo { release: Arc::clone(&release) };
        let router = router(Arc::new(echo), Arc::new(Metrics::new()), stop.clone());
        let end = stop.clone().cancelled_owned();
        let serving =
            tokio::spawn(Server::new("test", router, limits).with_tls(acceptor).serve(listener, end));
        Self { address, certificate, release, stop, serving }
    }

    async fn connect(&self, trusted: &KeyPairPem) -> io::Result<Client> {
        self.connect_with(usual_versions(), trusted).await
    }

    async fn connect_with(&self, config: Versions, trusted: &KeyPairPem) -> io::Result<Client> {
        let stream = TcpStream::connect(self.address).await?;
        shake_hands(stream, trusting(config, trusted)).await
    }
}

type Versions = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

fn usual_versions() -> Versions {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    config.with_safe_default_protocol_versions().unwrap()
}

fn trusting(config: Versions, trusted: &KeyPairPem) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let chain = CertificateDer::pem_slice_iter(trusted.chain.as_bytes());
    roots.add(chain.last().unwrap().unwrap()).unwrap();
    config.with_root_certificates(roots).with_no_client_auth()
}

async fn shake_hands(stream: TcpStream, config: ClientConfig) -> io::Result<Client> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(Client)
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Client with an open connection.
struct Client(TlsStream<TcpStream>);

impl Client {
    /// Sends a request. Returns the status and the body of the response.
    async fn send_and_read(&mut self, line: &str, kind: &str, body: &[u8]) -> (u16, String) {
        self.begin(line, kind, body.len()).await;
        // A body that is too long may be refused before it is sent completely.
        let _ = self.0.write_all(body).await;
        self.read_response().await.unwrap()
    }

    async fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self
            .send_and_read(&format!("POST {path}"), "application/json", body.to_string().as_bytes())
            .await;
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn begin(&mut self, line: &str, kind: &str, length: usize) {
        let head =
            format!("{line} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
        self.0.write_all(head.as_bytes()).await.unwrap();
    }

    /// Sends only the head of a request.
    async fn send_head(&mut self, path: &str, length: usize) {
        self.begin(&format!("POST {path}"), "application/json", length).await;
    }

    /// Sends a request without reading the response.
    async fn send(&mut self, path: &str, body: &[u8]) {
        self.send_head(path, body.len()).await;
        self.0.write_all(body).await.unwrap();
    }

    async fn read_response(&mut self) -> io::Result<(u16, String)> {
        let mut text = Vec::new();
        loop {
            let mut part = [0; 4096];
            let read = self.0.read(&mut part).await?;
            text.extend_from_slice(&part[..read]);
            let so_far = String::from_utf8_lossy(&text).to_lowercase();
            if let Some((head, body)) = so_far.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |length| length.parse().unwrap());
                if body.len() >= length {
                    let whole = String::from_utf8(text).unwrap();
                    let status = whole.split(' ').nth(1).unwrap().parse().unwrap();
                    return Ok((status, whole.split_once("\r\n\r\n").unwrap().1.to_owned()));
                }
            }
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

#[tokio::test]
async fn only_admission_requests_are_answered() {
    let server = TestServer::start(false).await;
    let certificate = issue_now(&["127.0.0.1"]);
    server.certificate.set(certificate.parse().unwrap());
    let mut client = server.connect(&certificate).await.unwrap();
    let good = review("u1", "good").to_string();
    for path in [VALIDATE, MUTATE, PODS] {
        let (status, body) = client.post(path, &review("u1", "good")).await;
        assert_eq!(status, 200);
        assert_eq!(body["response"], json!({ "uid": "u1", "allowed": true, "warnings": ["good"] }));
        assert_eq!(client.send_and_read(&format!("GET {path}"), "application/json", b"").await.0, 405);
        assert_eq!(client.send_and_read(&format!("POST {path}"), "text/plain", good.as_bytes()).await.0, 415);
        assert_eq!(client.send_and_read(&format!("POST {path}"), "application/json", b"{}").await.0, 400);
    }
    // A body that is not read ends the connection.
    let mut lost = server.connect(&certificate).await.unwrap();
    assert_eq!(lost.send_and_read("POST /other", "application/json", good.as_bytes()).await.0, 404);
    assert_eq!(client.send_and_read("GET /readyz", "", b"").await, (200, "ok".to_owned()));
    // The largest body is read and parsed; a larger one is not.
    let mut body = vec![b' '; REVIEWS.largest];
    let line = format!("POST {VALIDATE}");
    assert_eq!(client.send_and_read(&line, "application/json", &body).await.0, 400);
    body.push(b' ');
    assert_eq!(client.send_and_read(&line, "application/json", &body).await.0, 413);
}

#[tokio::test]
async fn a_panic_in_a_rule_ends_only_its_request() {
    let server = TestServer::start(false).await;
    let certificate = issue_now(&["127.0.0.1"]);
    server.certificate.set(certificate.parse().unwrap());
    let mut client = server.connect(&certificate).await.unwrap();
    for path in [VALIDATE, MUTATE, PODS] {
        assert_eq!(client.post(path, &review("u1", "fail")).await.0, 500);
        assert_eq!(client.post(path, &review("u1", "good")).await.0, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_responses_are_not_mixed_up() {
    let server = Arc::new(TestServer::start(false).await);
    let certificate = Arc::new(issue_now(&["127.0.0.1"]));
    server.certificate.set(certificate.parse().unwrap());
    let requests = (0..200).map(|number| {
        let (server, certificate) = (Arc::clone(&server), Arc::clone(&certificate));
        tokio::spawn(async move {
            let mut client = server.connect(&certificate).await.unwrap();
            let path = [VALIDATE, MUTATE, PODS][number % 3];
            let prefix = if number % 2 == 0 { "good" } else { "bad" };
            for round in 0..5 {
                let (uid, name) = (format!("u{number}-{round}"), format!("{prefix}-{number}"));
                let (status, body) = client.post(path, &review(&uid, &name)).await;
                let response = &body["response"];
                assert_eq!((status, response["uid"].as_str()), (200, Some(uid.as_str())));
                assert_eq!(response["allowed"], number % 2 == 0);
                let text =
                    if number % 2 == 0 { &response["warnings"][0] } else { &response["status"]["message"] };
                let expected = if number % 2 == 0 { name } else { format!("metadata.name: {name} of {uid}") };
                assert_eq!(text, &json!(expected));
            }
        })
    });
    for result in futures::future::join_all(requests).await {
        result.unwrap();
    }
}

#[tokio::test]
async fn a_certificate_is_replaced_at_runtime() {
    let server = TestServer::start(false).await;
    let (first, second) = (issue_now(&["127.0.0.1"]), issue_now(&["127.0.0.1"]));
    assert!(server.connect(&first).await.is_err(), "there is no certificate yet");
    server.certificate.set(first.parse().unwrap());
    let mut early = server.connect(&first).await.unwrap();
    assert_eq!(early.post(VALIDATE, &review("u", "good")).await.0, 200);

    server.certificate.set(second.parse().unwrap());
    assert_eq!(early.post(VALIDATE, &review("u", "good")).await.0, 200, "open connections stay open");
    assert!(server.connect(&first).await.is_err());
    assert_eq!(server.connect(&second).await.unwrap().post(VALIDATE, &review("u", "good")).await.0, 200);
}

#[tokio::test]
async fn the_minimum_tls_version_is_respected() {
    let old = || {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS12])
            .unwrap()
    };
    let certificate = issue_now(&["127.0.0.1"]);
    for (only_tls13, works) in [(false, true), (true, false)] {
        let server = TestServer::start(only_tls13).await;
        server.certificate.set(certificate.parse().unwrap());
        assert_eq!(server.connect_with(old(), &certificate).await.is_ok(), works);
        assert!(server.connect(&certificate).await.is_ok());
    }
}
