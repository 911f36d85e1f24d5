//! Operators that serve admission webhooks behind one address, like the pods of a Service.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "a failed expectation is explained where it fails")]

mod case_cluster;
mod load;
mod probe;
mod service;

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
use crate::ports::reserve_ports;

pub use case_cluster::{ApiResponse, CaseCluster};
pub use load::WriteLoad;
pub use probe::{DirectClient, TlsProber, check_certificate};
pub use service::Service;

/// Deadline of waits; generous, because a virtual machine may run at the same time.
const DEADLINE: Duration = Duration::from_mins(2);

/// Secret with the certificates of the operator.
pub const SECRET: &str = "vfleet-webhook-cert";

/// Cluster whose operators serve webhooks, which the API server reaches at one URL.
pub struct AdmissionCluster {
    pub cluster: Cluster,
    pub service: Service,
}

/// Replica of the operator that serves webhooks.
pub struct Replica {
    pub program: Program,
    /// Port of the webhooks.
    pub port: u16,
    /// Port of the metrics.
    pub metrics: u16,
}

impl AdmissionCluster {
    /// Creates a namespace with the shipped manifests and without operator.
    pub async fn new(name: &str, plane: Plane) -> Self {
        let cluster = Cluster::new(name, plane).await;
        let service = tokio::task::spawn_blocking(Service::start).await.unwrap();
        Self { cluster, service }
    }

    /// Starts a replica with additional arguments and environment variables, and adds it to the Service.
    pub fn start_replica(&self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Replica {
        let replica = self.start_detached(name, "0", arguments, environment);
        self.add_endpoint(&replica);
        replica
    }

    /// Starts a replica that answers probes at port `health`, and adds it to the Service.
    pub fn start_replica_with_probes(&self, name: &str, health: u16) -> Replica {
        let replica = self.start_detached(name, &format!("127.0.0.1:{health}"), &[], &[]);
        self.add_endpoint(&replica);
        replica
    }

    /// Starts a replica without adding it to the Service. It answers probes at `health`.
    fn start_detached(
        &self,
        name: &str,
        health: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Replica {
        let [port, metrics] = reserve_ports().unwrap();
        let url = format!("https://127.0.0.1:{}", self.service.port());
        let (address, metrics_address) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{metrics}"));
        let defaults = [
            "--webhook-bind-address",
            &address,
            "--webhook-url",
            &url,
            "--metrics-bind-address",
            &metrics_address,
            "--health-probe-bind-address",
            health,
        ];
        let environment = [environment, &[("POD_NAME", name)]].concat();
        let program =
            self.cluster.start_operator_with_args(&[&defaults[..], arguments].concat(), &environment);
        Replica { program, port, metrics }
    }

    /// Waits until a replica serves a certificate that the API server trusts.
    pub async fn wait_until_serving(&self, replica: &Replica) {
        let bundle = self.trusted_bundle().await;
        let serving = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(25));
            while check_certificate(replica.port, &bundle).await.is_err() {
                ticks.tick().await;
            }
        };
        let result = tokio::time::timeout(DEADLINE, serving).await;
        result.unwrap_or_else(|_| {
            panic!("timed out waiting for a trusted certificate\n{}", self.cluster.log())
        });
    }

    /// Returns the certificates that the API server trusts.
    pub async fn trusted_bundle(&self) -> String {
        self.wait_for_secret("certificates", |data| !data.text("ca.crt").is_empty()).await.text("ca.crt")
    }

    /// Returns a client that sends requests to one replica, each over a new connection.
    pub async fn direct_client(&self, replica: &Replica) -> DirectClient {
        let bundle = self.trusted_bundle().await;
        DirectClient::new(replica.port, bundle)
    }

    /// Returns how often the API server has connected to a replica.
    pub fn connections(&self, replica: &Replica) -> usize {
        self.service.connections(replica.port)
    }

    /// Adds a replica to the Service.
    pub fn add_endpoint(&self, replica: &Replica) {
        self.service.add(replica.port);
    }

    /// Removes a replica from the Service.
    pub fn remove_endpoint(&self, replica: &Replica) {
        self.service.remove(replica.port);
    }

    /// Applies a spec of the operator config.
    pub async fn configure(&self, spec: Value) {
        let config = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig",
            "metadata": { "name": "default" }, "spec": spec,
        });
        let configs: Api<SriovOperatorConfig> = self.cluster.api();
        configs.patch("default", &PatchParams::apply("test").force(), &Patch::Apply(config)).await.unwrap();
    }

    /// Waits until the condition `Admission` has this reason; returns its message.
    pub async fn expect_condition(&self, reason: &str) -> String {
        let find = |config: &SriovOperatorConfig| {
            condition(config.status.as_ref().and_then(|status| status.conditions.as_ref()), "Admission")
        };
        let what = format!("condition Admission with reason {reason}");
        let config: SriovOperatorConfig =
            self.cluster.wait_for("default", &what, |config| find(config).1 == reason).await;
        let (status, _, message) = find(&config);
        assert_eq!(status == "True", reason == "Serving");
        message
    }

    /// Enables both webhooks and waits until the API server calls them.
    pub async fn enable(&self) {
        self.configure(json!({ "enableOperatorWebhook": true, "enableInjector": true })).await;
        self.expect_condition("Serving").await;
    }

    /// Waits until the ValidatingWebhookConfiguration meets `condition`; returns it.
    pub async fn wait_for_validating(
        &self,
        what: &str,
        condition: impl Fn(&ValidatingWebhookConfiguration) -> bool,
    ) -> ValidatingWebhookConfiguration {
        self.wait(
            Api::all(self.cluster.admin_client()),
            &self.configuration_name("vfleet-admission"),
            what,
            condition,
        )
        .await
    }

    /// Waits until the MutatingWebhookConfiguration for pods meets `condition`; returns it.
    pub async fn wait_for_injector(
        &self,
        what: &str,
        condition: impl Fn(&MutatingWebhookConfiguration) -> bool,
    ) -> MutatingWebhookConfiguration {
        self.wait(
            Api::all(self.cluster.admin_client()),
            &self.configuration_name("vfleet-injector"),
            what,
            condition,
        )
        .await
    }

    /// Returns the name of a webhook configuration of this installation.
    pub fn configuration_name(&self, configuration: &str) -> String {
        format!("{configuration}.{}", self.cluster.namespace())
    }

    /// Waits until the data of the Secret meets `condition`; returns it.
    pub async fn wait_for_secret(&self, what: &str, condition: impl Fn(&SecretData) -> bool) -> SecretData {
        let to_data = |secret: &Secret| SecretData(secret.data.clone().unwrap_or_default());
        let secret: Secret =
            self.wait(self.cluster.api(), SECRET, what, |secret: &Secret| condition(&to_data(secret))).await;
        to_data(&secret)
    }

    /// Changes data of a Secret.
    pub async fn patch_secret(&self, secret: &str, data: Value) {
        let secrets: Api<Secret> = self.cluster.api();
        let patch = Patch::Merge(json!({ "data": data }));
        secrets.patch(secret, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn wait<K>(&self, api: Api<K>, name: &str, what: &str, condition: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let condition = |object: Option<&K>| object.is_some_and(&condition);
        let found = tokio::time::timeout(DEADLINE, await_condition(api, name, condition)).await;
        // The object is not printed, because it may be a Secret.
        found
            .unwrap_or_else(|_| panic!("timed out waiting for {name}: {what}\n{}", self.cluster.log()))
            .unwrap()
            .unwrap()
    }
}

/// Data of a Secret.
#[derive(Clone, PartialEq)]
pub struct SecretData(std::collections::BTreeMap<String, ByteString>);

impl SecretData {
    /// Returns the text of a key; empty if it does not exist.
    pub fn text(&self, key: &str) -> String {
        self.0.get(key).map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
    }
}

impl Replica {
    /// Returns how many requests for a webhook the replica has answered.
    pub fn count_requests(&self, webhook: &str) -> u64 {
        let label = format!("webhook=\"{webhook}\"");
        let lines = self.metrics();
        let counts = lines.lines().filter(|line| line.starts_with("vfleet_admission_requests_total{"));
        counts
            .filter(|line| line.contains(&label))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// Reads the metrics of the replica.
    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// Returns a valid policy.
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

/// Returns the CA bundles of all webhooks of a configuration.
pub fn ca_bundles(configuration: &ValidatingWebhookConfiguration) -> Vec<String> {
    let webhooks = configuration.webhooks.iter().flatten();
    let bundle = |ByteString(bytes): &ByteString| String::from_utf8_lossy(bytes).into_owned();
    webhooks.map(|webhook| webhook.client_config.ca_bundle.as_ref().map(bundle).unwrap_or_default()).collect()
}
