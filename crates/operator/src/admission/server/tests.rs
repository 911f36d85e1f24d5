mod documented;
mod hostile;
mod no_questions;
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
use crate::admission::certificates::testing::{Generation, generation};

/// Says in each answer what it was asked, and fails when it is told to.
struct Echo {
    /// Pods named `good-later` wait for one of these.
    told: Arc<Semaphore>,
}

impl Echo {
    fn answer(request: &ReviewRequest<'_>) -> Answer {
        assert_ne!(request.name, "fail", "as asked");
        if request.name.starts_with("good") {
            return Answer::Admit { warnings: vec![request.name.to_owned()], patch: Vec::new() };
        }
        let mut findings = Findings::default();
        findings.error("T01", "Test", "metadata.name", format!("{} of {}", request.name, request.uid));
        Answer::Refuse { code: 422, reason: "Invalid", findings }
    }
}

impl Answers for Echo {
    async fn validate(&self, request: &ReviewRequest<'_>) -> Answer {
        Self::answer(request)
    }

    fn mutate(&self, request: &ReviewRequest<'_>) -> Answer {
        Self::answer(request)
    }

    async fn pod(&self, request: ReviewRequest<'_>) -> Answer {
        tokio::task::yield_now().await;
        if request.name == "good-later" {
            self.told.acquire().await.unwrap().forget();
        }
        Self::answer(&request)
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

fn served(stop: &CancellationToken) -> Served<Echo> {
    let echo = Echo { told: Arc::new(Semaphore::new(0)) };
    Served::new(Arc::new(echo), Arc::new(Metrics::new()), stop.clone())
}

fn asked(body: impl Into<axum::body::Body>) -> Request {
    let kind = "application/json; charset=utf-8";
    Request::post(VALIDATE).header(header::CONTENT_TYPE, kind).body(body.into()).unwrap()
}

async fn responded(served: &Served<Echo>, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
    let response = served.respond(Question::Validate, asked(body)).await;
    let status = response.status();
    (status, axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec())
}

/// A server at a port of its own, until dropped.
struct Webhooks {
    address: SocketAddr,
    certificate: Resolver,
    told: Arc<Semaphore>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl Webhooks {
    async fn start(only_tls13: bool) -> Self {
        Self::start_with(only_tls13, LIMITS).await
    }

    /// With a certificate, which those who connect can trust.
    async fn certified(limits: Limits) -> (Self, Generation) {
        let (server, generation) = (Self::start_with(false, limits).await, generation(&["127.0.0.1"]));
        server.certificate.set(generation.pair());
        (server, generation)
    }

    async fn start_with(only_tls13: bool, limits: Limits) -> Self {
        let certificate = Resolver::default();
        let (stop, told) = (CancellationToken::new(), Arc::new(Semaphore::new(0)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = acceptor(certificate.clone(), only_tls13).unwrap();
        let echo = Echo { told: Arc::clone(&told) };
        let router = router(Arc::new(echo), Arc::new(Metrics::new()), stop.clone());
        let over = stop.clone().cancelled_owned();
        let serving =
            tokio::spawn(Server::new("test", router, limits).with_tls(acceptor).serve(listener, over));
        Self { address, certificate, told, stop, serving }
    }

    async fn connect(&self, trusts: &Generation) -> io::Result<Client> {
        self.connect_with(usual_versions(), trusts).await
    }

    async fn connect_with(&self, config: Versions, trusts: &Generation) -> io::Result<Client> {
        let stream = TcpStream::connect(self.address).await?;
        shake_hands(stream, trusting(config, trusts)).await
    }
}

type Versions = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

fn usual_versions() -> Versions {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    config.with_safe_default_protocol_versions().unwrap()
}

fn trusting(config: Versions, trusts: &Generation) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let chain = CertificateDer::pem_slice_iter(trusts.chain.as_bytes());
    roots.add(chain.last().unwrap().unwrap()).unwrap();
    config.with_root_certificates(roots).with_no_client_auth()
}

async fn shake_hands(stream: TcpStream, config: ClientConfig) -> io::Result<Client> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(Client)
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A connection that stays.
struct Client(TlsStream<TcpStream>);

impl Client {
    /// Gives the status, and what is in the answer.
    async fn ask(&mut self, line: &str, kind: &str, body: &[u8]) -> (u16, String) {
        self.begin(line, kind, body.len()).await;
        // A body that is too long may be refused before all of it is sent.
        let _ = self.0.write_all(body).await;
        self.answer().await.unwrap()
    }

    async fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) =
            self.ask(&format!("POST {path}"), "application/json", body.to_string().as_bytes()).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn begin(&mut self, line: &str, kind: &str, length: usize) {
        let head =
            format!("{line} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
        self.0.write_all(head.as_bytes()).await.unwrap();
    }

    /// Begins to ask.
    async fn send_head(&mut self, path: &str, length: usize) {
        self.begin(&format!("POST {path}"), "application/json", length).await;
    }

    /// Asks, and does not wait.
    async fn send(&mut self, path: &str, body: &[u8]) {
        self.send_head(path, body.len()).await;
        self.0.write_all(body).await.unwrap();
    }

    async fn answer(&mut self) -> io::Result<(u16, String)> {
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
async fn only_questions_are_answered() {
    let server = Webhooks::start(false).await;
    let generation = generation(&["127.0.0.1"]);
    server.certificate.set(generation.pair());
    let mut client = server.connect(&generation).await.unwrap();
    let good = review("u1", "good").to_string();
    for path in [VALIDATE, MUTATE, PODS] {
        let (status, answer) = client.post(path, &review("u1", "good")).await;
        assert_eq!(status, 200);
        assert_eq!(answer["response"], json!({ "uid": "u1", "allowed": true, "warnings": ["good"] }));
        assert_eq!(client.ask(&format!("GET {path}"), "application/json", b"").await.0, 405);
        assert_eq!(client.ask(&format!("POST {path}"), "text/plain", good.as_bytes()).await.0, 415);
        assert_eq!(client.ask(&format!("POST {path}"), "application/json", b"{}").await.0, 400);
    }
    // A body that nobody reads ends the connection.
    let mut lost = server.connect(&generation).await.unwrap();
    assert_eq!(lost.ask("POST /other", "application/json", good.as_bytes()).await.0, 404);
    assert_eq!(client.ask("GET /readyz", "", b"").await, (200, "ok".to_owned()));
    // What may be sent at most is read, and looked at; one more is not.
    let mut body = vec![b' '; REVIEWS.largest];
    let line = format!("POST {VALIDATE}");
    assert_eq!(client.ask(&line, "application/json", &body).await.0, 400);
    body.push(b' ');
    assert_eq!(client.ask(&line, "application/json", &body).await.0, 413);
}

#[tokio::test]
async fn a_fault_in_a_rule_ends_one_answer_and_nothing_else() {
    let server = Webhooks::start(false).await;
    let generation = generation(&["127.0.0.1"]);
    server.certificate.set(generation.pair());
    let mut client = server.connect(&generation).await.unwrap();
    for path in [VALIDATE, MUTATE, PODS] {
        assert_eq!(client.post(path, &review("u1", "fail")).await.0, 500);
        assert_eq!(client.post(path, &review("u1", "good")).await.0, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_to_many_at_once_never_mix() {
    let server = Arc::new(Webhooks::start(false).await);
    let generation = Arc::new(generation(&["127.0.0.1"]));
    server.certificate.set(generation.pair());
    let asking = (0..200).map(|number| {
        let (server, generation) = (Arc::clone(&server), Arc::clone(&generation));
        tokio::spawn(async move {
            let mut client = server.connect(&generation).await.unwrap();
            let path = [VALIDATE, MUTATE, PODS][number % 3];
            let verdict = if number % 2 == 0 { "good" } else { "bad" };
            for round in 0..5 {
                let (uid, name) = (format!("u{number}-{round}"), format!("{verdict}-{number}"));
                let (status, answer) = client.post(path, &review(&uid, &name)).await;
                let response = &answer["response"];
                assert_eq!((status, response["uid"].as_str()), (200, Some(uid.as_str())));
                assert_eq!(response["allowed"], number % 2 == 0);
                let said =
                    if number % 2 == 0 { &response["warnings"][0] } else { &response["status"]["message"] };
                let expected = if number % 2 == 0 { name } else { format!("metadata.name: {name} of {uid}") };
                assert_eq!(said, &json!(expected));
            }
        })
    });
    for asked in futures::future::join_all(asking).await {
        asked.unwrap();
    }
}

#[tokio::test]
async fn a_certificate_is_exchanged_while_it_serves() {
    let server = Webhooks::start(false).await;
    let (first, second) = (generation(&["127.0.0.1"]), generation(&["127.0.0.1"]));
    assert!(server.connect(&first).await.is_err(), "there is no certificate yet");
    server.certificate.set(first.pair());
    let mut early = server.connect(&first).await.unwrap();
    assert_eq!(early.post(VALIDATE, &review("u", "good")).await.0, 200);

    server.certificate.set(second.pair());
    assert_eq!(early.post(VALIDATE, &review("u", "good")).await.0, 200, "what is open stays open");
    assert!(server.connect(&first).await.is_err());
    assert_eq!(server.connect(&second).await.unwrap().post(VALIDATE, &review("u", "good")).await.0, 200);
}

#[tokio::test]
async fn nothing_older_than_asked_for_is_spoken() {
    let old = || {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS12])
            .unwrap()
    };
    let generation = generation(&["127.0.0.1"]);
    for (only_tls13, works) in [(false, true), (true, false)] {
        let server = Webhooks::start(only_tls13).await;
        server.certificate.set(generation.pair());
        assert_eq!(server.connect_with(old(), &generation).await.is_ok(), works);
        assert!(server.connect(&generation).await.is_ok());
    }
}
