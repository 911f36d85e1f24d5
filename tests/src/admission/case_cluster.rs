//! Objects of admission cases on a real API server. The operator answers admission requests, but does not lead, so that
//! it changes no objects.

use std::collections::BTreeSet;
use std::time::Duration;

use fixture_kube::network_attachment_crds;
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::{AdmissionCluster, DEADLINE, Replica};
use crate::cluster::OPERATOR;
use crate::plane::Plane;
use crate::ports::reserve_ports;

const API_PATH: &str = "/apis/sriovnetwork.openshift.io/v1";

/// Plural names of the kinds of vfleet.
const PLURALS: [&str; 8] = [
    "sriovnetworknodepolicies",
    "sriovnetworkpoolconfigs",
    "sriovnetworknodestates",
    "sriovoperatorconfigs",
    "sriovnetworks",
    "sriovibnetworks",
    "ovsnetworks",
    "bridgenetworks",
];

/// Cluster with the objects of one admission case at a time.
pub struct CaseCluster {
    pub admission: AdmissionCluster,
    /// Client with the identity of the operator, whose writes are not checked.
    operator: Client,
    user: Client,
    /// Paths of created objects, to be removed later.
    created: Vec<String>,
    namespaces: BTreeSet<String>,
}

/// Response of the API server.
#[derive(Debug)]
pub struct ApiResponse {
    /// HTTP status code.
    pub code: u16,
    /// Object, or status with the error.
    pub body: Value,
    pub warnings: Vec<String>,
}

impl ApiResponse {
    /// Returns the errors as `field: text`; empty if the object was admitted.
    pub fn errors(&self) -> Vec<String> {
        if self.code < 300 {
            return Vec::new();
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let describe = |cause: &Value| match cause["field"].as_str() {
            Some(field) => format!("{field}: {}", text(&cause["message"])),
            None => text(&cause["message"]),
        };
        match self.body["details"]["causes"].as_array() {
            Some(causes) if !causes.is_empty() => causes.iter().map(describe).collect(),
            _ => vec![text(&self.body["message"])],
        }
    }

    /// Returns whether a webhook refused the object.
    pub fn is_from_webhook(&self) -> bool {
        self.body["message"].as_str().is_some_and(|message| message.starts_with("admission webhook "))
    }
}

impl CaseCluster {
    /// Creates a namespace with registered webhooks and without a leading operator.
    pub async fn new(name: &str, plane: Plane) -> Self {
        let admission = AdmissionCluster::new(name, plane).await;
        admission.cluster.plane().apply_crds(network_attachment_crds()).unwrap();
        let leader = admission.start_replica("leader", &[], &[]);
        admission.enable().await;
        admission.remove_endpoint(&leader);
        leader.program.kill();
        // Another holder has the lease for a long time, so that no replica leads.
        let lease = json!({ "spec": { "holderIdentity": "nobody", "leaseDurationSeconds": 86_400 } });
        admission.cluster.kubectl(&["patch", "lease", OPERATOR, "--type=merge", "-p", &lease.to_string()]);
        let account = format!("system:serviceaccount:{}:{OPERATOR}", admission.cluster.namespace());
        let plane = admission.cluster.plane();
        Self {
            operator: plane.client_for(&account, &["system:masters"]).await.unwrap(),
            user: admission.cluster.admin_client(),
            created: Vec::new(),
            namespaces: BTreeSet::from([admission.cluster.namespace().to_owned()]),
            admission,
        }
    }

    /// Removes all objects and creates these instead.
    pub async fn replace_objects(&mut self, objects: &[Value]) {
        for path in std::mem::take(&mut self.created).into_iter().rev() {
            self.remove(&path).await;
        }
        for namespace in self.namespaces.clone() {
            for plural in PLURALS {
                let path = format!("{API_PATH}/namespaces/{namespace}/{plural}");
                let answer = send(&self.operator, "DELETE", &path, None).await;
                assert!(answer.code < 300, "{path}: {answer:?}");
            }
        }
        for object in objects {
            self.put_object(object).await;
        }
    }

    /// Creates an object with its status, or replaces the object of the same name. An object with a deletion timestamp
    /// is deleted afterwards.
    pub async fn put_object(&mut self, object: &Value) {
        let path = self.path(object);
        let mut object = self.with_namespace(object);
        let status = object.as_object_mut().unwrap().remove("status");
        let deletion = object["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
        if object["kind"] == "Namespace" {
            self.create_namespace(&object).await;
            return;
        }
        self.prepare_namespace(&object).await;
        self.remove(&path).await;
        let (collection, _) = path.rsplit_once('/').unwrap();
        let answer = send(&self.operator, "POST", collection, Some(&object)).await;
        assert!(answer.code < 300, "could not create {path}: {answer:?}");
        self.created.push(path.clone());
        if let Some(status) = status {
            let written = json!({ "status": status });
            let answer = send(&self.operator, "PATCH", &format!("{path}/status"), Some(&written)).await;
            assert!(answer.code < 300, "could not write the status of {path}: {answer:?}");
        }
        if deletion.is_some() {
            let answer = send(&self.operator, "DELETE", &path, None).await;
            assert!(answer.code < 300, "{path}: {answer:?}");
        }
    }

    /// Starts a replica that answers admission requests and does not lead. Waits until it is ready.
    pub async fn start_follower(&self, environment: &[(&str, &str)]) -> Replica {
        let [health] = reserve_ports().unwrap();
        let replica =
            self.admission.start_detached("follower", &format!("127.0.0.1:{health}"), &[], environment);
        let ready = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            while !is_ready(health).await {
                ticks.tick().await;
            }
        };
        let result = tokio::time::timeout(DEADLINE, ready).await;
        result.unwrap_or_else(|_| {
            panic!("timed out waiting for a ready replica\n{}", self.admission.cluster.log())
        });
        self.admission.add_endpoint(&replica);
        replica
    }

    /// Stops a replica.
    pub fn end(&self, replica: Replica) {
        self.admission.remove_endpoint(&replica);
        replica.program.kill();
    }

    /// Creates an object as a user, with dry run.
    pub async fn create(&self, object: &Value) -> ApiResponse {
        let path = self.path(object);
        let (collection, _) = path.rsplit_once('/').unwrap();
        send(&self.user, "POST", &format!("{collection}?dryRun=All"), Some(&self.with_namespace(object)))
            .await
    }

    /// Updates an existing object as a user, with dry run.
    pub async fn update(&self, object: &Value) -> ApiResponse {
        let path = self.path(object);
        let current = send(&self.user, "GET", &path, None).await;
        let mut object = self.with_namespace(object);
        object["metadata"]["resourceVersion"] = current.body["metadata"]["resourceVersion"].clone();
        send(&self.user, "PUT", &format!("{path}?dryRun=All"), Some(&object)).await
    }

    /// Deletes an existing object as a user, with dry run.
    pub async fn delete(&self, object: &Value) -> ApiResponse {
        send(&self.user, "DELETE", &format!("{}?dryRun=All", self.path(object)), None).await
    }

    /// Creates an object as a user.
    pub async fn create_persistently(&mut self, object: &Value) -> ApiResponse {
        let path = self.path(object);
        let (collection, _) = path.rsplit_once('/').unwrap();
        let answer = send(&self.user, "POST", collection, Some(&self.with_namespace(object))).await;
        self.created.push(path);
        answer
    }

    /// Reads an object.
    pub async fn get(&self, object: &Value) -> ApiResponse {
        send(&self.user, "GET", &self.path(object), None).await
    }

    /// Creates the namespace of an object if necessary.
    pub async fn prepare_namespace(&mut self, object: &Value) {
        if let Some(namespace) = object["metadata"]["namespace"].as_str()
            && !self.namespaces.contains(namespace)
        {
            let object =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            self.create_namespace(&object).await;
        }
    }

    async fn create_namespace(&mut self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let answer = send(&self.operator, "POST", "/api/v1/namespaces", Some(object)).await;
        assert!(answer.code < 300 || answer.code == 409, "{answer:?}");
        // Pods need this service account, and no controller creates it here.
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
        let answer = send(&self.operator, "POST", &path, Some(&account)).await;
        assert!(answer.code < 300 || answer.code == 409, "{answer:?}");
        self.namespaces.insert(name);
    }

    async fn remove(&self, path: &str) {
        let without_finalizers = json!({ "metadata": { "finalizers": null } });
        let answer = send(&self.operator, "PATCH", path, Some(&without_finalizers)).await;
        if answer.code == 404 {
            return;
        }
        assert!(answer.code < 300, "{path}: {answer:?}");
        let answer = send(&self.operator, "DELETE", path, None).await;
        assert!(answer.code < 300 || answer.code == 404, "{path}: {answer:?}");
    }

    fn with_namespace(&self, object: &Value) -> Value {
        let mut object = object.clone();
        let is_cluster_scoped = ["Node", "Namespace"].iter().any(|kind| object["kind"] == **kind);
        if !is_cluster_scoped && object["metadata"]["namespace"].as_str().is_none() {
            object["metadata"]["namespace"] = json!(self.admission.cluster.namespace());
        }
        object
    }

    fn path(&self, object: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let namespace = text(&self.with_namespace(object)["metadata"]["namespace"]);
        let plural = match kind.as_str() {
            "NetworkAttachmentDefinition" => "network-attachment-definitions".to_owned(),
            "SriovNetworkNodePolicy" => "sriovnetworknodepolicies".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let version = text(&object["apiVersion"]);
        let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        match kind.as_str() {
            "Node" | "Namespace" => format!("{root}/{plural}/{name}"),
            _ => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
        }
    }
}

/// Sends a request; returns the response with its warnings, which the client library does not provide.
async fn send(client: &Client, method: &str, path: &str, body: Option<&Value>) -> ApiResponse {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let bytes = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = client.send(request.body(Body::from(bytes)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let headers = response.headers().get_all("warning").iter();
    let warnings =
        headers.filter_map(|value| parse_warning(std::str::from_utf8(value.as_bytes()).ok()?)).collect();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| json!({ "message": String::from_utf8_lossy(&bytes) }));
    ApiResponse { code, body, warnings }
}

/// Returns the text of a warning header `299 - "text"`.
fn parse_warning(header: &str) -> Option<String> {
    let quoted = header.split_once('"')?.1.strip_suffix('"')?;
    let mut text = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    Some(text)
}

async fn is_ready(port: u16) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return false };
    let request = "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).await.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.starts_with("HTTP/1.1 200")
}
