//! TLS handshakes like those of a new API server.

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

use super::{AdmissionCluster, ca_bundles, policy};

/// Checks that a client that trusts `bundle` accepts the server at this port.
pub async fn check_certificate(port: u16, bundle: &str) -> Result<(), String> {
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

/// Client that sends requests to one server, each over a new connection.
pub struct DirectClient {
    port: u16,
    bundle: String,
}

impl DirectClient {
    pub(super) fn new(port: u16, bundle: String) -> Self {
        Self { port, bundle }
    }

    /// Returns whether the server reports that it is stopping.
    pub async fn is_stopping(&self) -> bool {
        let response = self.send("GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        response.is_ok_and(|text| text.starts_with("HTTP/1.1 503") && text.contains("shutting down"))
    }

    /// Requests admission of a valid policy.
    pub async fn request_admission(&self) -> Result<(), String> {
        let body = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "direct", "kind": { "kind": "SriovNetworkNodePolicy" }, "operation": "CREATE",
                "namespace": "elsewhere", "name": "direct", "object": policy("direct", 1),
            },
        })
        .to_string();
        let head = format!(
            "POST /validating-custom-resource HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let response = self.send(&format!("{head}{body}")).await?;
        if response.contains("\"allowed\":true") { Ok(()) } else { Err(response) }
    }

    async fn send(&self, request: &str) -> Result<String, String> {
        let mut stream = connect(self.port, &self.bundle).await?;
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
        Ok(answer)
    }
}

/// Prober that makes handshakes continuously, with the CA bundle of the webhook configuration at that moment.
pub struct TlsProber {
    attempts: Arc<AtomicU32>,
    failures: Arc<std::sync::Mutex<Vec<String>>>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl TlsProber {
    /// Starts probing, until the prober is dropped.
    pub async fn start(admission: &AdmissionCluster) -> Self {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(admission.cluster.admin_client());
        let name = admission.configuration_name("vfleet-admission");
        let found = api.get(&name).await.unwrap();
        let (publish, trusted) = watch::channel(ca_bundles(&found)[0].clone());
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let follow = async move {
            let mut configurations = watcher(api, config).default_backoff().applied_objects().boxed();
            while let Some(found) = configurations.next().await {
                if let Ok(Some(bundle)) = found.map(|found| ca_bundles(&found).first().cloned()) {
                    publish.send_replace(bundle);
                }
            }
        };
        let (attempts, failures) = (Arc::new(AtomicU32::new(0)), Arc::default());
        let probing = probe(admission.service.port(), trusted, Arc::clone(&attempts), Arc::clone(&failures));
        let tasks =
            [AbortOnDropHandle::new(tokio::spawn(follow)), AbortOnDropHandle::new(tokio::spawn(probing))];
        Self { attempts, failures, _tasks: tasks }
    }

    /// Waits for this many more handshakes.
    pub async fn wait_for_more(&self, handshakes: u32) {
        let target = self.attempts.load(Ordering::Relaxed) + handshakes;
        let mut ticks = tokio::time::interval(Duration::from_millis(25));
        while self.attempts.load(Ordering::Relaxed) < target {
            ticks.tick().await;
        }
    }

    /// Returns the number of handshakes and the errors.
    pub fn result(&self) -> (u32, Vec<String>) {
        (self.attempts.load(Ordering::Relaxed), self.failures.lock().unwrap().clone())
    }
}

async fn probe(
    port: u16,
    trusted: watch::Receiver<String>,
    attempts: Arc<AtomicU32>,
    failures: Arc<std::sync::Mutex<Vec<String>>>,
) {
    let mut ticks = tokio::time::interval(Duration::from_millis(25));
    loop {
        ticks.tick().await;
        let bundle = trusted.borrow().clone();
        if let Err(error) = check_certificate(port, &bundle).await {
            failures.lock().unwrap().push(error);
        }
        attempts.fetch_add(1, Ordering::Relaxed);
    }
}
