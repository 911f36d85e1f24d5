//! Handshakes as a new API server would make them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::{Door, bundles, policy};

/// Whether the server at this port is accepted by somebody who trusts `bundle`; if not, why.
pub async fn accepts(port: u16, bundle: &str) -> Result<(), String> {
    connect(port, bundle).await.map(drop)
}

async fn connect(port: u16, bundle: &str) -> Result<TlsStream<TcpStream>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| error.to_string())
}

/// Asks a server, each time over a new connection.
pub struct Fresh {
    port: u16,
    bundle: String,
}

impl Fresh {
    pub(super) fn new(port: u16, bundle: String) -> Self {
        Self { port, bundle }
    }

    /// Whether it says that it stops.
    pub async fn is_stopping(&self) -> bool {
        let said = self.answer("GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        said.is_ok_and(|said| said.starts_with("HTTP/1.1 503") && said.contains("stops"))
    }

    /// Asks about a policy that nobody objects to; gives what goes wrong.
    pub async fn ask(&self) -> Result<(), String> {
        let body = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "fresh", "kind": { "kind": "SriovNetworkNodePolicy" }, "operation": "CREATE",
                "namespace": "elsewhere", "name": "fresh", "object": policy("fresh", 1),
            },
        })
        .to_string();
        let head = format!(
            "POST /validating-custom-resource HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let said = self.answer(&format!("{head}{body}")).await?;
        if said.contains("\"allowed\":true") { Ok(()) } else { Err(said) }
    }

    async fn answer(&self, request: &str) -> Result<String, String> {
        let mut stream = connect(self.port, &self.bundle).await?;
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
        Ok(answer)
    }
}

/// Makes handshakes all the time, trusting whom the configuration says at that moment.
pub struct Prober {
    tried: Arc<AtomicU32>,
    failures: Arc<std::sync::Mutex<Vec<String>>>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Prober {
    /// Until it is dropped.
    pub async fn start(door: &Door) -> Self {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(door.cluster.administrator());
        let name = door.name("vfleet-admission");
        let found = api.get(&name).await.unwrap();
        let (publish, trusted) = watch::channel(bundles(&found)[0].clone());
        let only_it = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let follow = async move {
            let mut seen = watcher(api, only_it).default_backoff().applied_objects().boxed();
            while let Some(found) = seen.next().await {
                if let Ok(Some(bundle)) = found.map(|found| bundles(&found).first().cloned()) {
                    publish.send_replace(bundle);
                }
            }
        };
        let (tried, failures) = (Arc::new(AtomicU32::new(0)), Arc::default());
        let probing = probe(door.service.port(), trusted, Arc::clone(&tried), Arc::clone(&failures));
        let tasks =
            [AbortOnDropHandle::new(tokio::spawn(follow)), AbortOnDropHandle::new(tokio::spawn(probing))];
        Self { tried, failures, _tasks: tasks }
    }

    /// Waits for so many more.
    pub async fn more(&self, handshakes: u32) {
        let until = self.tried.load(Ordering::Relaxed) + handshakes;
        let mut ticks = tokio::time::interval(Duration::from_millis(25));
        while self.tried.load(Ordering::Relaxed) < until {
            ticks.tick().await;
        }
    }

    /// How many handshakes there were, and what those said that failed.
    pub fn result(&self) -> (u32, Vec<String>) {
        (self.tried.load(Ordering::Relaxed), self.failures.lock().unwrap().clone())
    }
}

async fn probe(
    port: u16,
    trusted: watch::Receiver<String>,
    tried: Arc<AtomicU32>,
    failures: Arc<std::sync::Mutex<Vec<String>>>,
) {
    let mut ticks = tokio::time::interval(Duration::from_millis(25));
    loop {
        ticks.tick().await;
        let bundle = trusted.borrow().clone();
        if let Err(error) = accepts(port, &bundle).await {
            failures.lock().unwrap().push(error);
        }
        tried.fetch_add(1, Ordering::Relaxed);
    }
}
