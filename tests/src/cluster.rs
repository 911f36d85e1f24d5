//! Installation of vfleet in a namespace of a shared control plane. The real programs run, each with its own service
//! account.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "a failed expectation is explained where it fails")]

mod cleanup;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use fixture_kube::ControlPlane;
use fixture_lab::Vm;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::node_state::{InterfaceExt, VirtualFunction};
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState};
use vfleet_host::sim::Machine;

use crate::plane::Plane;
use crate::programs::vfleet;

use cleanup::{CREATED_FOR, remove_cluster_objects};

/// Deadline of waits; generous, because a virtual machine may run at the same time.
const DEADLINE: Duration = Duration::from_mins(3);

/// Service account of the operator.
pub const OPERATOR: &str = "vfleet-operator";
pub const AGENT: &str = "sriov-network-config-daemon";
pub const DEVICE_PLUGIN: &str = "sriov-device-plugin";
pub const SIM: &str = "vfleet-sim";

/// Returns the description of a simulated machine like the one of the lab, with different MACs on each node.
pub fn machine() -> String {
    let mut machine = Machine::lab();
    for pf in &mut machine.pfs {
        pf.mac = None;
    }
    // JSON is valid YAML.
    serde_json::to_string(&machine).unwrap()
}

/// Installation of vfleet in its own namespace of a control plane.
pub struct Cluster {
    plane: Arc<ControlPlane>,
    client: Client,
    namespace: String,
    files: tempfile::TempDir,
}

/// Running program, which is killed when it is dropped.
pub struct Program(Child);

impl Program {
    /// Kills the program with SIGKILL, as at a power failure.
    pub fn kill(mut self) {
        self.end();
    }

    /// Sends a signal: `TERM`, `STOP`, `CONT`.
    pub fn signal(&self, signal: &str) {
        let sent =
            Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Limits the number of open files, as most container runtimes do.
    pub fn limit_open_files(&self) {
        let id = self.0.id().to_string();
        let limited = Command::new("prlimit").args(["--pid", &id, "--nofile=1024:1024"]).status().unwrap();
        assert!(limited.success(), "prlimit: {limited}");
    }

    /// Returns the number of open files.
    pub fn count_open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count()
    }

    /// Waits until the program ends by itself.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.0.wait().unwrap()
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Removes cluster-scoped objects. Every operator of the control plane reconciles all nodes, and every write is checked
/// against all admission policies, so leftovers would slow down later tests.
impl Drop for Cluster {
    fn drop(&mut self) {
        let cleaned =
            self.plane.run_with_client(async |client| remove_cluster_objects(&client, &self.namespace).await);
        if let Err(error) = cleaned {
            eprintln!("{}: cleanup failed: {error:#}", self.namespace);
        }
    }
}

impl Cluster {
    /// Creates a namespace on `plane` with the service accounts and roles of vfleet.
    pub async fn new(name: &str, plane: Plane) -> Self {
        let cluster = Self::without_vfleet(name, plane).await;
        cluster.install().unwrap();
        cluster
    }

    /// Creates a namespace on `plane` without installing vfleet.
    pub async fn without_vfleet(name: &str, plane: Plane) -> Self {
        let plane = tokio::task::spawn_blocking(move || plane.get()).await.unwrap();
        let namespace = plane.namespace(name).await.unwrap();
        let client = plane.client().await.unwrap();
        Self { plane, client, namespace, files: tempfile::tempdir().unwrap() }
    }

    /// Applies the shipped service accounts, roles and admission policies to this namespace.
    pub fn install(&self) -> anyhow::Result<()> {
        let directory = self.manifests();
        std::fs::create_dir_all(&directory)?;
        let status = Command::new(vfleet())
            .args(["manifests", "--namespace", &self.namespace, "--dir"])
            .arg(&directory)
            .status()?;
        assert!(status.success(), "vfleet manifests: {status}");
        // Apply all files, even if one is refused.
        let files = ["rbac.yaml", "sim-rbac.yaml", "node-scope.yaml", "admission.yaml"];
        files.map(|file| self.apply_manifest(file)).into_iter().collect()
    }

    /// Applies the manifest that allows agents to request drains from an external drainer.
    pub fn allow_external_drainer(&self) {
        self.apply_manifest("external-drainer.yaml").unwrap();
    }

    /// Applies the manifest that allows agents to report bridges as resources of their nodes.
    pub fn allow_bridge_resources(&self) {
        self.apply_manifest("ovs-bridge-resources.yaml").unwrap();
    }

    fn apply_manifest(&self, file: &str) -> anyhow::Result<()> {
        self.plane.apply(&self.manifests().join(file), &self.namespace).map(drop)
    }

    /// Removes all permissions of the operator for a resource, until the next `install`.
    pub async fn revoke_operator_access(&self, resource: &str) {
        let cluster_wide: Api<ClusterRole> = Api::all(self.admin_client());
        let name = format!("{OPERATOR}.{}", self.namespace);
        let rules = cluster_wide.get(&name).await.unwrap().rules;
        self.apply_rules(&cluster_wide, &name, rules, resource).await;
        let namespaced: Api<Role> = self.api();
        let rules = namespaced.get(OPERATOR).await.unwrap().rules;
        self.apply_rules(&namespaced, OPERATOR, rules, resource).await;
    }

    async fn apply_rules<K>(&self, api: &Api<K>, name: &str, rules: Option<Vec<PolicyRule>>, without: &str)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let mut rules = rules.unwrap_or_default();
        for rule in &mut rules {
            rule.resources.iter_mut().for_each(|resources| resources.retain(|resource| resource != without));
        }
        rules.retain(|rule| rule.resources.as_ref().is_some_and(|resources| !resources.is_empty()));
        let role = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": { "name": name }, "rules": rules,
        });
        // Same field manager as `install`, so that the next `install` restores the rules.
        let parameters = PatchParams::apply("kubectl").force();
        api.patch(name, &parameters, &Patch::Apply(role)).await.unwrap();
    }

    /// Returns the directory of the output of `vfleet manifests` for this namespace.
    pub fn manifests(&self) -> PathBuf {
        self.files.path().join("deploy")
    }

    /// Runs kubectl as administrator; returns its output.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let command = [&["--namespace", &self.namespace], arguments].concat();
        self.plane.kubectl(&command).unwrap().into_stdout().unwrap()
    }

    /// Applies the objects of a file with kubectl.
    pub fn apply_file(&self, path: &str) {
        self.plane.apply(Path::new(path), &self.namespace).unwrap();
    }

    /// Writes a file; returns its path.
    pub fn write_file(&self, name: &str, text: &str) -> String {
        let path = self.files.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Returns the path of the log of all programs of this cluster.
    fn log_file(&self) -> PathBuf {
        self.files.path().join("programs.log")
    }

    /// Writes a kubeconfig with the host name of the API server, so that programs must resolve it.
    fn kubeconfig(&self, account: &str, pod: Option<&str>) -> String {
        let server = format!("https://localhost:{}", self.plane.port());
        let name = format!("{}.kubeconfig", pod.unwrap_or(account));
        self.write_file(&name, &self.kubeconfig_at(&server, account, pod))
    }

    fn kubeconfig_at(&self, server: &str, account: &str, pod: Option<&str>) -> String {
        let kubeconfig = self.plane.kubeconfig_for_service_account(&self.namespace, account, pod).unwrap();
        self.plane.kubeconfig_at(server, &kubeconfig).unwrap()
    }

    /// Returns a client with the rights of a service account.
    pub async fn client_as(&self, account: &str, pod: Option<&str>) -> Client {
        self.plane.client_for_service_account(&self.namespace, account, pod).await.unwrap()
    }

    /// Returns a client with all rights.
    pub fn admin_client(&self) -> Client {
        self.client.clone()
    }

    /// Creates the pod of an agent on `node`, because the token of the agent names its pod. kwok simulates the pod.
    pub fn agent_pod(&self, node: &str) -> String {
        let name = format!("agent-{node}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "serviceAccountName": AGENT, "nodeName": node,
                "containers": [{ "name": "agent", "image": "none" }],
            },
        });
        let file = self.write_file(&format!("{name}.json"), &pod.to_string());
        self.apply_file(&file);
        name
    }

    fn start(&self, kubeconfig: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Program {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(vfleet()).args(arguments);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_file()).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        command.env("KUBECONFIG", kubeconfig).env("NAMESPACE", &self.namespace);
        command.envs(environment.iter().copied());
        Program(command.spawn().unwrap())
    }

    pub fn start_operator(&self) -> Program {
        self.start_operator_with(&[])
    }

    /// Starts the operator with additional environment variables.
    pub fn start_operator_with(&self, environment: &[(&str, &str)]) -> Program {
        // No ports, because several operators run on one machine.
        self.start_operator_at("0", environment)
    }

    /// Starts the operator with metrics and probes at this address.
    pub fn start_operator_at(&self, address: &str, environment: &[(&str, &str)]) -> Program {
        let addresses = ["--metrics-bind-address", address, "--health-probe-bind-address", address];
        self.start_operator_with_args(
            &[&addresses[..], &["--webhook-bind-address", "0"]].concat(),
            environment,
        )
    }

    /// Starts the operator with these arguments.
    pub fn start_operator_with_args(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Program {
        self.start(&self.kubeconfig(OPERATOR, None), &[&["operator"], arguments].concat(), environment)
    }

    /// Returns the control plane of this cluster.
    pub fn plane(&self) -> &Arc<ControlPlane> {
        &self.plane
    }

    /// Returns the log of all programs of this cluster so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Writes a kubeconfig for the agent of `node` to the machine of the lab; returns its path there.
    pub fn write_kubeconfig_to_lab(&self, vm: &Vm, node: &str) -> String {
        let text = self.kubeconfig_at("https://10.0.2.100:6443", AGENT, Some(&self.agent_pod(node)));
        vm.put(Path::new(&self.write_file("kubeconfig", &text))).unwrap()
    }

    /// Creates a worker node, unless it exists.
    pub async fn create_worker(&self, node: &str) {
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        if api.get_opt(node).await.unwrap().is_none() {
            let labels = [
                ("node-role.kubernetes.io/worker", ""),
                ("kubernetes.io/os", "linux"),
                (CREATED_FOR, self.namespace.as_str()),
            ];
            self.plane.create_node(node, &labels).await.unwrap();
        }
    }

    /// Deletes a node, if it exists.
    pub async fn remove_worker(&self, node: &str) {
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        match api.delete(node, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("could not delete node {node}: {error}"),
        }
    }

    /// Creates a node and starts its agent with a simulated machine.
    pub async fn start_agent(&self, node: &str, machine: &str) -> Program {
        let file = self.write_file("machine.yaml", machine);
        self.start_agent_with(node, &["--sim", &file], &[]).await
    }

    /// Creates a node and starts its agent with these arguments.
    pub async fn start_agent_with(
        &self,
        node: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Program {
        self.create_worker(node).await;
        let kubeconfig = self.kubeconfig(AGENT, Some(&self.agent_pod(node)));
        self.start(&kubeconfig, &[&["agent", "--node", node], arguments].concat(), environment)
    }

    /// Starts the agent of a node that may not exist.
    pub fn start_agent_without_node(&self, node: &str, arguments: &[&str]) -> Program {
        self.start(&self.kubeconfig(AGENT, Some(&self.agent_pod(node))), arguments, &[])
    }

    /// Starts the init container of the separate device plugin for this pod.
    pub fn start_plugin_init_container(&self, pod: &str) -> Program {
        let kubeconfig = self.kubeconfig(DEVICE_PLUGIN, Some(pod));
        let arguments = ["wait-for-config", "--pod-name", pod, "--pod-namespace", &self.namespace];
        self.start(&kubeconfig, &arguments, &[])
    }

    /// Starts a simulator of agents for these nodes.
    pub fn start_sim(&self, names: &[String], machine: &str) -> Program {
        let file = self.write_file("machine.yaml", machine);
        self.start(
            &self.kubeconfig(SIM, None),
            &["sim", "--names", &names.join(","), "--machine", &file],
            &[],
        )
    }

    /// Applies a policy for all nodes. The default resource name is `nics`.
    pub async fn apply_policy(&self, name: &str, mut spec: Value) {
        if spec["resourceName"].is_null() {
            spec["resourceName"] = json!("nics");
        }
        spec["nodeSelector"] = json!({});
        let policy = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy",
            "metadata": { "name": name }, "spec": spec,
        });
        self.policies()
            .patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&policy))
            .await
            .unwrap();
    }

    /// Applies a policy with `count` VFs and waits until the node has them, which shows that all parts work.
    pub async fn create_vfs(&self, node: &str, pf: &str, count: usize) {
        self.apply_policy("p", json!({ "numVfs": count, "nicSelector": { "pfNames": [pf] } })).await;
        let what = format!("{count} VFs");
        self.wait(node, &what, |state| state.is_synced() && state.vfs(pf).len() == count).await;
    }

    pub async fn delete_policy(&self, name: &str) {
        self.policies().delete(name, &DeleteParams::default()).await.unwrap();
    }

    fn policies(&self) -> Api<SriovNetworkNodePolicy> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until the node state meets `condition`.
    pub async fn wait(
        &self,
        node: &str,
        what: &str,
        condition: impl Fn(&NodeStateView) -> bool,
    ) -> NodeStateView {
        self.wait_with_log(node, what, condition, || self.log()).await
    }

    /// Waits until the node state meets `condition`. A timeout shows the text of `log`.
    pub async fn wait_with_log(
        &self,
        node: &str,
        what: &str,
        condition: impl Fn(&NodeStateView) -> bool,
        log: impl FnOnce() -> String,
    ) -> NodeStateView {
        let api: Api<SriovNetworkNodeState> = Api::namespaced(self.client.clone(), &self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let mut states =
            watcher(api.clone(), config).default_backoff().applied_objects().map_ok(NodeStateView).boxed();
        let found = async {
            loop {
                match states.next().await.unwrap() {
                    Ok(state) if condition(&state) => return state,
                    _ => {}
                }
            }
        };
        let Ok(state) = tokio::time::timeout(DEADLINE, found).await else {
            panic!(
                "timed out waiting for {node}: {what}; current state: {:#?}\n{}",
                api.get_opt(node).await,
                log()
            );
        };
        state
    }

    pub async fn expect_event(&self, node: &str, type_: &str, reason: &str) {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let matches = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.type_.as_deref() == Some(type_)
                && event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(node)
                && event.note.as_ref().is_some_and(|note| !note.is_empty())
        };
        let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
        let found = async { while !events.next().await.unwrap().as_ref().is_ok_and(matches) {} };
        tokio::time::timeout(DEADLINE, found)
            .await
            .unwrap_or_else(|_| panic!("no {type_} event {reason} about {node}\n{}", self.log()));
    }
}

/// Node state with accessors for tests.
#[derive(Clone, Debug)]
pub struct NodeStateView(SriovNetworkNodeState);

impl NodeStateView {
    pub fn status(&self) -> vfleet_api::SriovNetworkNodeStateStatus {
        self.0.status.clone().unwrap_or_default()
    }

    pub fn generation(&self) -> Option<i64> {
        self.0.metadata.generation
    }

    pub fn uid(&self) -> Option<&str> {
        self.0.metadata.uid.as_deref()
    }

    pub fn sync_status(&self) -> String {
        self.status().sync_status.unwrap_or_default()
    }

    pub fn error(&self) -> String {
        self.status().last_sync_error.unwrap_or_default()
    }

    /// Returns whether the current spec was applied successfully.
    pub fn is_synced(&self) -> bool {
        let conditions = self.status().conditions.unwrap_or_default();
        let current = conditions.iter().any(|condition| {
            condition.type_ == "Ready" && condition.observed_generation == self.0.metadata.generation
        });
        self.sync_status() == "Succeeded" && current
    }

    pub fn condition(&self, type_: &str) -> (String, String) {
        self.find_condition(type_).expect("a condition")
    }

    /// Returns status and reason of a condition, if it exists.
    pub fn find_condition(&self, type_: &str) -> Option<(String, String)> {
        let conditions = self.status().conditions.unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition.type_ == type_)?;
        Some((condition.status, condition.reason))
    }

    /// Returns the resource version.
    pub fn version(&self) -> &str {
        self.0.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// Returns the names of all cards.
    pub fn cards(&self) -> Vec<String> {
        let cards = self.status().interfaces.unwrap_or_default();
        cards.into_iter().filter_map(|card| card.name).collect()
    }

    pub fn card(&self, name: &str) -> InterfaceExt {
        let cards = self.status().interfaces.unwrap_or_default();
        cards.into_iter().find(|card| card.name.as_deref() == Some(name)).expect("a card")
    }

    pub fn vfs(&self, card: &str) -> Vec<VirtualFunction> {
        self.card(card).vfs.unwrap_or_default()
    }
}
