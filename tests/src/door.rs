//! Operators that serve admission, behind one address as behind a Service, and what can be seen of them from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "what fails a test is said where it fails")]

mod load;
mod probe;
mod service;
mod stage;

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::SriovOperatorConfig;

use crate::cluster::{Cluster, Program};
use crate::objects::condition;
use crate::plane::Plane;
use crate::ports::own_ports;

pub use load::Load;
pub use probe::{Fresh, Prober, accepts};
pub use service::Service;
pub use stage::{Answered, Stage};

/// Generous: the machine that runs the tests may be busy with a virtual machine.
const DEADLINE: Duration = Duration::from_mins(2);

/// The Secret with the operator's own certificates.
pub const SECRET: &str = "vfleet-webhook-cert";

/// A namespace with operators whose webhooks the API server reaches by one URL.
pub struct Door {
    pub cluster: Cluster,
    pub service: Service,
}

/// One operator that serves.
pub struct Replica {
    pub program: Program,
    /// Port of the webhooks.
    pub port: u16,
    /// Port of the metrics.
    pub metrics: u16,
}

impl Door {
    /// A namespace with the shipped manifests, and no operator yet.
    pub async fn new(name: &str, plane: Plane) -> Self {
        let cluster = Cluster::new(name, plane).await;
        let service = tokio::task::spawn_blocking(Service::start).await.unwrap();
        Self { cluster, service }
    }

    /// An operator of this name, with more arguments and more in its environment.
    pub fn replica(&self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Replica {
        let replica = self.start(name, "0", arguments, environment);
        self.put_in(&replica);
        replica
    }

    /// An operator of this name that answers probes at `health`.
    pub fn replica_with_probes(&self, name: &str, health: u16) -> Replica {
        let replica = self.start(name, &format!("127.0.0.1:{health}"), &[], &[]);
        self.put_in(&replica);
        replica
    }

    /// The same, not to be asked yet; it says at `health` whether it is ready.
    fn start(&self, name: &str, health: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Replica {
        let [port, metrics] = own_ports().unwrap();
        let url = format!("https://127.0.0.1:{}", self.service.port());
        let (at, metrics_at) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{metrics}"));
        let usual = [
            "--webhook-bind-address",
            &at,
            "--webhook-url",
            &url,
            "--metrics-bind-address",
            &metrics_at,
            "--health-probe-bind-address",
            health,
        ];
        let environment = [environment, &[("POD_NAME", name)]].concat();
        let program = self.cluster.operator_told(&[&usual[..], arguments].concat(), &environment);
        Replica { program, port, metrics }
    }

    /// Waits until this replica serves what the API server was told to trust.
    pub async fn served_by(&self, replica: &Replica) {
        let bundle = self.trusted().await;
        let served = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(25));
            while accepts(replica.port, &bundle).await.is_err() {
                ticks.tick().await;
            }
        };
        let in_time = tokio::time::timeout(DEADLINE, served).await;
        in_time.unwrap_or_else(|_| panic!("nothing is served\n{}", self.cluster.log()));
    }

    /// Certificates that the API server was told to trust.
    pub async fn trusted(&self) -> String {
        self.secret("made", |now| !now.text("ca.crt").is_empty()).await.text("ca.crt")
    }

    /// Asks this replica by itself, each time over a new connection.
    pub async fn fresh(&self, replica: &Replica) -> Fresh {
        let bundle = self.trusted().await;
        Fresh::new(replica.port, bundle)
    }

    /// How often the API server has connected to it.
    pub fn connections(&self, replica: &Replica) -> usize {
        self.service.connections(replica.port)
    }

    /// It is to be asked again.
    pub fn put_in(&self, replica: &Replica) {
        self.service.add(replica.port);
    }

    /// It is not to be asked any more.
    pub fn take_out(&self, replica: &Replica) {
        self.service.remove(replica.port);
    }

    /// Changes the operator config as a user would; makes it when there is none.
    pub async fn configure(&self, spec: Value) {
        let config = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig",
            "metadata": { "name": "default" }, "spec": spec,
        });
        let configs: Api<SriovOperatorConfig> = self.cluster.api();
        configs.patch("default", &PatchParams::apply("test").force(), &Patch::Apply(config)).await.unwrap();
    }

    /// Waits until condition `Admission` has this reason; gives its message.
    pub async fn admission(&self, reason: &str) -> String {
        let admission = |config: &SriovOperatorConfig| {
            condition(config.status.as_ref().and_then(|status| status.conditions.as_ref()), "Admission")
        };
        let what = format!("condition Admission with reason {reason}");
        let config: SriovOperatorConfig =
            self.cluster.wait_for("default", &what, |config| admission(config).1 == reason).await;
        let (status, _, message) = admission(&config);
        assert_eq!(status == "True", reason == "Serving");
        message
    }

    /// Both features on, and the API server asks.
    pub async fn open(&self) {
        self.configure(json!({ "enableOperatorWebhook": true, "enableInjector": true })).await;
        self.admission("Serving").await;
    }

    /// The validating configuration of this installation, once it is like this.
    pub async fn validating(
        &self,
        what: &str,
        like: impl Fn(&ValidatingWebhookConfiguration) -> bool,
    ) -> ValidatingWebhookConfiguration {
        self.wait(Api::all(self.cluster.administrator()), &self.name("vfleet-admission"), what, like).await
    }

    /// The mutating configuration for pods, once it is like this.
    pub async fn injector(
        &self,
        what: &str,
        like: impl Fn(&MutatingWebhookConfiguration) -> bool,
    ) -> MutatingWebhookConfiguration {
        self.wait(Api::all(self.cluster.administrator()), &self.name("vfleet-injector"), what, like).await
    }

    /// The name of a configuration of this installation.
    pub fn name(&self, configuration: &str) -> String {
        format!("{configuration}.{}", self.cluster.namespace())
    }

    /// What is in a Secret, once it is like this.
    pub async fn secret(&self, what: &str, like: impl Fn(&Contents) -> bool) -> Contents {
        let contents = |secret: &Secret| Contents(secret.data.clone().unwrap_or_default());
        let secret: Secret =
            self.wait(self.cluster.api(), SECRET, what, |secret: &Secret| like(&contents(secret))).await;
        contents(&secret)
    }

    /// Changes data of a Secret.
    pub async fn put(&self, secret: &str, data: Value) {
        let secrets: Api<Secret> = self.cluster.api();
        let patch = Patch::Merge(json!({ "data": data }));
        secrets.patch(secret, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn wait<K>(&self, api: Api<K>, name: &str, what: &str, like: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let like = |object: Option<&K>| object.is_some_and(&like);
        let found = tokio::time::timeout(DEADLINE, await_condition(api, name, like)).await;
        // Not what it is: it may be a secret.
        found
            .unwrap_or_else(|_| panic!("{name} never came to: {what}\n{}", self.cluster.log()))
            .unwrap()
            .unwrap()
    }
}

/// Data of a Secret.
#[derive(Clone, PartialEq)]
pub struct Contents(std::collections::BTreeMap<String, ByteString>);

impl Contents {
    /// The text under this key; empty when there is none.
    pub fn text(&self, key: &str) -> String {
        self.0.get(key).map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
    }
}

impl Replica {
    /// How many questions of this kind it has answered.
    pub fn asked(&self, webhook: &str) -> u64 {
        let label = format!("webhook=\"{webhook}\"");
        let lines = self.metrics();
        let counts = lines.lines().filter(|line| line.starts_with("vfleet_admission_requests_total{"));
        counts
            .filter(|line| line.contains(&label))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// All its metrics.
    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// A policy that nobody objects to.
pub fn policy(name: &str, vfs: usize) -> Value {
    json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy",
        "metadata": { "name": name },
        "spec": {
            "resourceName": "nics", "numVfs": vfs, "nodeSelector": { "rack": "none" },
            "nicSelector": { "pfNames": ["ens1f0"] },
        },
    })
}

/// What all webhooks of a configuration tell the API server to trust.
pub fn bundles(configuration: &ValidatingWebhookConfiguration) -> Vec<String> {
    let webhooks = configuration.webhooks.iter().flatten();
    let bundle = |ByteString(bytes): &ByteString| String::from_utf8_lossy(bytes).into_owned();
    webhooks.map(|webhook| webhook.client_config.ca_bundle.as_ref().map(bundle).unwrap_or_default()).collect()
}
