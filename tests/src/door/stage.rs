//! Made-up clusters, one after the other, on the real API server, in front of an operator that answers but leads
//! nothing: what is there stays as it was put.

use std::collections::BTreeSet;
use std::time::Duration;

use fixture_kube::network_attachment_crds;
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::{DEADLINE, Door, Replica};
use crate::cluster::OPERATOR;
use crate::plane::Plane;
use crate::ports::own_ports;

const OURS: &str = "/apis/sriovnetwork.openshift.io/v1";

/// Kinds of ours that may be in a cluster, as the API server's paths call them.
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

/// One operator's namespace, and what was put on the stage.
pub struct Stage {
    pub door: Door,
    /// Whom nobody asks about.
    operator: Client,
    user: Client,
    /// Paths of what is to be removed.
    put: Vec<String>,
    namespaces: BTreeSet<String>,
}

/// What the API server answered.
#[derive(Debug)]
pub struct Answered {
    /// As in HTTP.
    pub code: u16,
    /// The object, or why not.
    pub body: Value,
    pub warnings: Vec<String>,
}

impl Answered {
    /// What is wrong with the object: `field: text`. Nothing when it was admitted.
    pub fn errors(&self) -> Vec<String> {
        if self.code < 300 {
            return Vec::new();
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let said = |cause: &Value| match cause["field"].as_str() {
            Some(field) => format!("{field}: {}", text(&cause["message"])),
            None => text(&cause["message"]),
        };
        match self.body["details"]["causes"].as_array() {
            Some(causes) if !causes.is_empty() => causes.iter().map(said).collect(),
            _ => vec![text(&self.body["message"])],
        }
    }

    /// Whether it was one of our webhooks that refused it.
    pub fn is_ours(&self) -> bool {
        self.body["message"].as_str().is_some_and(|message| message.starts_with("admission webhook "))
    }
}

impl Stage {
    /// A namespace whose webhooks are known to the API server, and in which nobody leads.
    pub async fn new(name: &str, plane: Plane) -> Self {
        let door = Door::new(name, plane).await;
        door.cluster.plane().apply_crds(network_attachment_crds()).unwrap();
        let leader = door.replica("leader", &[], &[]);
        door.open().await;
        door.take_out(&leader);
        leader.program.kill();
        // Somebody holds it, and nobody else tries for a long time.
        let lease = json!({ "spec": { "holderIdentity": "nobody", "leaseDurationSeconds": 86_400 } });
        door.cluster.kubectl(&["patch", "lease", OPERATOR, "--type=merge", "-p", &lease.to_string()]);
        let account = format!("system:serviceaccount:{}:{OPERATOR}", door.cluster.namespace());
        let plane = door.cluster.plane();
        Self {
            operator: plane.client_for(&account, &["system:masters"]).await.unwrap(),
            user: door.cluster.administrator(),
            put: Vec::new(),
            namespaces: BTreeSet::from([door.cluster.namespace().to_owned()]),
            door,
        }
    }

    /// Removes all that is there, and puts these instead.
    pub async fn set(&mut self, objects: &[Value]) {
        for path in std::mem::take(&mut self.put).into_iter().rev() {
            self.remove(&path).await;
        }
        for namespace in self.namespaces.clone() {
            for plural in PLURALS {
                let path = format!("{OURS}/namespaces/{namespace}/{plural}");
                let answer = send(&self.operator, "DELETE", &path, None).await;
                assert!(answer.code < 300, "{path}: {answer:?}");
            }
        }
        for object in objects {
            self.put(object).await;
        }
    }

    /// Puts one more object, in place of the one of its name. Its status is as it says, and one that says that it is
    /// going away is.
    pub async fn put(&mut self, object: &Value) {
        let path = self.path(object);
        let mut object = self.at_home(object);
        let status = object.as_object_mut().unwrap().remove("status");
        let going = object["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
        if object["kind"] == "Namespace" {
            self.namespace(&object).await;
            return;
        }
        self.prepare_namespace(&object).await;
        self.remove(&path).await;
        let (collection, _) = path.rsplit_once('/').unwrap();
        let answer = send(&self.operator, "POST", collection, Some(&object)).await;
        assert!(answer.code < 300, "{path} cannot be put: {answer:?}");
        self.put.push(path.clone());
        if let Some(status) = status {
            let written = json!({ "status": status });
            let answer = send(&self.operator, "PATCH", &format!("{path}/status"), Some(&written)).await;
            assert!(answer.code < 300, "{path}: its status cannot be put: {answer:?}");
        }
        if going.is_some() {
            let answer = send(&self.operator, "DELETE", &path, None).await;
            assert!(answer.code < 300, "{path}: {answer:?}");
        }
    }

    /// An operator that knows what is there and answers; it leads nothing.
    pub async fn follower(&self, environment: &[(&str, &str)]) -> Replica {
        let [health] = own_ports().unwrap();
        let replica = self.door.start("follower", &format!("127.0.0.1:{health}"), &[], environment);
        let ready = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            while !is_ready(health).await {
                ticks.tick().await;
            }
        };
        let in_time = tokio::time::timeout(DEADLINE, ready).await;
        in_time.unwrap_or_else(|_| panic!("it is never ready\n{}", self.door.cluster.log()));
        self.door.put_in(&replica);
        replica
    }

    /// Ends an operator.
    pub fn end(&self, replica: Replica) {
        self.door.take_out(&replica);
        replica.program.kill();
    }

    /// Tries to create an object, as somebody would, but for the last step.
    pub async fn create(&self, object: &Value) -> Answered {
        let path = self.path(object);
        let (collection, _) = path.rsplit_once('/').unwrap();
        send(&self.user, "POST", &format!("{collection}?dryRun=All"), Some(&self.at_home(object))).await
    }

    /// Tries to change an object that is there.
    pub async fn update(&self, object: &Value) -> Answered {
        let path = self.path(object);
        let there = send(&self.user, "GET", &path, None).await;
        let mut object = self.at_home(object);
        object["metadata"]["resourceVersion"] = there.body["metadata"]["resourceVersion"].clone();
        send(&self.user, "PUT", &format!("{path}?dryRun=All"), Some(&object)).await
    }

    /// Tries to delete an object that is there.
    pub async fn delete(&self, object: &Value) -> Answered {
        send(&self.user, "DELETE", &format!("{}?dryRun=All", self.path(object)), None).await
    }

    /// Creates an object, as somebody would.
    pub async fn really_create(&mut self, object: &Value) -> Answered {
        let path = self.path(object);
        let (collection, _) = path.rsplit_once('/').unwrap();
        let answer = send(&self.user, "POST", collection, Some(&self.at_home(object))).await;
        self.put.push(path);
        answer
    }

    /// An object as it is now.
    pub async fn get(&self, object: &Value) -> Answered {
        send(&self.user, "GET", &self.path(object), None).await
    }

    /// Makes the namespace of an object, if need be, so that it can be created there.
    pub async fn prepare_namespace(&mut self, object: &Value) {
        if let Some(namespace) = object["metadata"]["namespace"].as_str()
            && !self.namespaces.contains(namespace)
        {
            let object =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            self.namespace(&object).await;
        }
    }

    async fn namespace(&mut self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let answer = send(&self.operator, "POST", "/api/v1/namespaces", Some(object)).await;
        assert!(answer.code < 300 || answer.code == 409, "{answer:?}");
        // No controller makes it, and no pod is made without it.
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
        let answer = send(&self.operator, "POST", &path, Some(&account)).await;
        assert!(answer.code < 300 || answer.code == 409, "{answer:?}");
        self.namespaces.insert(name);
    }

    async fn remove(&self, path: &str) {
        let held = json!({ "metadata": { "finalizers": null } });
        let answer = send(&self.operator, "PATCH", path, Some(&held)).await;
        if answer.code == 404 {
            return;
        }
        assert!(answer.code < 300, "{path}: {answer:?}");
        let answer = send(&self.operator, "DELETE", path, None).await;
        assert!(answer.code < 300 || answer.code == 404, "{path}: {answer:?}");
    }

    fn at_home(&self, object: &Value) -> Value {
        let mut object = object.clone();
        let is_of_none = ["Node", "Namespace"].iter().any(|kind| object["kind"] == **kind);
        if !is_of_none && object["metadata"]["namespace"].as_str().is_none() {
            object["metadata"]["namespace"] = json!(self.door.cluster.namespace());
        }
        object
    }

    fn path(&self, object: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let namespace = text(&self.at_home(object)["metadata"]["namespace"]);
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

/// Sends a request; gives the answer with its warnings, which no client library hands out.
async fn send(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Answered {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let bytes = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = client.send(request.body(Body::from(bytes)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let headers = response.headers().get_all("warning").iter();
    let warnings = headers.filter_map(|value| warning(std::str::from_utf8(value.as_bytes()).ok()?)).collect();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| json!({ "message": String::from_utf8_lossy(&bytes) }));
    Answered { code, body, warnings }
}

/// The text of `299 - "text"`.
fn warning(header: &str) -> Option<String> {
    let quoted = header.split_once('"')?.1.strip_suffix('"')?;
    let mut text = String::new();
    let mut signs = quoted.chars();
    while let Some(sign) = signs.next() {
        text.extend(if sign == '\\' { signs.next() } else { Some(sign) });
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
