//! A namespace of the shared control plane with vfleet in it: the real programs, each with its own rights.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "what fails a test is said where it fails")]

mod traces;

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

use traces::{MADE_FOR, remove_traces};

/// Generous: the machine that runs the tests may be busy with a virtual machine.
const DEADLINE: Duration = Duration::from_mins(3);

/// The service accounts that the programs run as.
pub const OPERATOR: &str = "vfleet-operator";
pub const AGENT: &str = "sriov-network-config-daemon";
pub const DEVICE_PLUGIN: &str = "sriov-device-plugin";
pub const SIM: &str = "vfleet-sim";

/// The lab's machine, with other addresses on each node.
pub fn machine() -> String {
    let mut machine = Machine::lab();
    for pf in &mut machine.pfs {
        pf.mac = None;
    }
    // JSON is YAML, too.
    serde_json::to_string(&machine).unwrap()
}

pub struct Cluster {
    plane: Arc<ControlPlane>,
    client: Client,
    namespace: String,
    files: tempfile::TempDir,
}

/// A program that ends with the test.
pub struct Program(Child);

impl Program {
    /// As if the machine's power had failed.
    pub fn kill(mut self) {
        self.end();
    }

    /// Sends it a signal: `TERM`, `STOP`, `CONT`.
    pub fn signal(&self, signal: &str) {
        let sent =
            Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Lets it have no more open files than most container runtimes do.
    pub fn limit_open_files(&self) {
        let id = self.0.id().to_string();
        let limited = Command::new("prlimit").args(["--pid", &id, "--nofile=1024:1024"]).status().unwrap();
        assert!(limited.success(), "prlimit: {limited}");
    }

    /// Number of files that it has open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count()
    }

    /// Waits until it ends by itself.
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

/// Every operator of the plane looks after all nodes, and every write is held to all policies: without those of tests that
/// are over, there is little to do for the others.
impl Drop for Cluster {
    fn drop(&mut self) {
        let cleaned = self.plane.ask(async |client| remove_traces(&client, &self.namespace).await);
        if let Err(error) = cleaned {
            eprintln!("{}: not cleaned up: {error:#}", self.namespace);
        }
    }
}

impl Cluster {
    /// Makes a namespace on `plane` with vfleet's accounts and roles.
    pub async fn new(name: &str, plane: Plane) -> Self {
        let cluster = Self::before_install(name, plane).await;
        cluster.install().unwrap();
        cluster
    }

    /// A new namespace in which nothing of vfleet was installed yet.
    pub async fn before_install(name: &str, plane: Plane) -> Self {
        let plane = tokio::task::spawn_blocking(move || plane.get()).await.unwrap();
        let namespace = plane.namespace(name).await.unwrap();
        let client = plane.client().await.unwrap();
        Self { plane, client, namespace, files: tempfile::tempdir().unwrap() }
    }

    /// The shipped accounts, roles and admission policies, for this namespace.
    pub fn install(&self) -> anyhow::Result<()> {
        let directory = self.manifests();
        std::fs::create_dir_all(&directory)?;
        let status = Command::new(vfleet())
            .args(["manifests", "--namespace", &self.namespace, "--dir"])
            .arg(&directory)
            .status()?;
        assert!(status.success(), "vfleet manifests: {status}");
        // All of them, also when one is refused.
        let files = ["rbac.yaml", "sim-rbac.yaml", "node-scope.yaml", "admission.yaml"];
        files.map(|file| self.apply_manifest(file)).into_iter().collect()
    }

    /// Agents may tell an external drainer what they need, from some moment soon on.
    pub fn allow_external_drainer(&self) {
        self.apply_manifest("external-drainer.yaml").unwrap();
    }

    fn apply_manifest(&self, file: &str) -> anyhow::Result<()> {
        self.plane.apply(&self.manifests().join(file), &self.namespace).map(drop)
    }

    /// The operator may not do anything to this resource any more, until the next `install`.
    pub async fn take_right_away(&self, resource: &str) {
        let cluster_wide: Api<ClusterRole> = Api::all(self.administrator());
        let name = format!("{OPERATOR}.{}", self.namespace);
        let rules = cluster_wide.get(&name).await.unwrap().rules;
        self.apply_rules(&cluster_wide, &name, rules, resource).await;
        let home: Api<Role> = self.api();
        let rules = home.get(OPERATOR).await.unwrap().rules;
        self.apply_rules(&home, OPERATOR, rules, resource).await;
    }

    async fn apply_rules<K>(&self, api: &Api<K>, name: &str, rules: Option<Vec<PolicyRule>>, without: &str)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let mut rules = rules.unwrap_or_default();
        for rule in &mut rules {
            rule.resources.iter_mut().for_each(|named| named.retain(|named| named != without));
        }
        rules.retain(|rule| rule.resources.as_ref().is_some_and(|named| !named.is_empty()));
        let role = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": { "name": name }, "rules": rules,
        });
        // As the same who has installed them, who can then give them back.
        let parameters = PatchParams::apply("kubectl").force();
        api.patch(name, &parameters, &Patch::Apply(role)).await.unwrap();
    }

    /// The directory of what `vfleet manifests` writes for this namespace.
    pub fn manifests(&self) -> PathBuf {
        self.files.path().join("deploy")
    }

    /// What kubectl says, as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let command = [&["--namespace", &self.namespace], arguments].concat();
        self.plane.kubectl(&command).unwrap().into_stdout().unwrap()
    }

    /// Applies the objects of a file, as the administrator would with kubectl.
    pub fn apply_file(&self, path: &str) {
        self.plane.apply(Path::new(path), &self.namespace).unwrap();
    }

    /// A file with this text; gives its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// What all programs of this cluster log.
    fn log_file(&self) -> PathBuf {
        self.files.path().join("programs.log")
    }

    /// A kubeconfig that names the API server by name, so that the programs have to look it up.
    fn kubeconfig(&self, account: &str, pod: Option<&str>) -> String {
        let server = format!("https://localhost:{}", self.plane.port());
        let name = format!("{}.kubeconfig", pod.unwrap_or(account));
        self.file(&name, &self.kubeconfig_at(&server, account, pod))
    }

    fn kubeconfig_at(&self, server: &str, account: &str, pod: Option<&str>) -> String {
        let by_address = self.plane.kubeconfig_for_service_account(&self.namespace, account, pod).unwrap();
        self.plane.kubeconfig_at(server, &by_address).unwrap()
    }

    /// A client with the rights of a service account.
    pub async fn client_as(&self, account: &str, pod: Option<&str>) -> Client {
        self.plane.client_for_service_account(&self.namespace, account, pod).await.unwrap()
    }

    /// A client with all rights.
    pub fn administrator(&self) -> Client {
        self.client.clone()
    }

    /// The pod that an agent on `node` would run in: its token says where it runs. kwok plays the pod.
    pub fn agent_pod(&self, node: &str) -> String {
        let name = format!("agent-{node}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "serviceAccountName": AGENT, "nodeName": node,
                "containers": [{ "name": "agent", "image": "none" }],
            },
        });
        let file = self.file(&format!("{name}.json"), &pod.to_string());
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

    pub fn operator(&self) -> Program {
        self.operator_with(&[])
    }

    /// The operator with more in its environment.
    pub fn operator_with(&self, environment: &[(&str, &str)]) -> Program {
        // Several of them run on one machine.
        self.operator_serving("0", environment)
    }

    /// The operator with metrics and probes at this address.
    pub fn operator_serving(&self, address: &str, environment: &[(&str, &str)]) -> Program {
        let addresses = ["--metrics-bind-address", address, "--health-probe-bind-address", address];
        self.operator_told(&[&addresses[..], &["--webhook-bind-address", "0"]].concat(), environment)
    }

    /// The operator with these arguments.
    pub fn operator_told(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Program {
        self.start(&self.kubeconfig(OPERATOR, None), &[&["operator"], arguments].concat(), environment)
    }

    /// The control plane that the test's namespace is on.
    pub fn plane(&self) -> &Arc<ControlPlane> {
        &self.plane
    }

    /// What all programs have logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A kubeconfig of the agent of `node` in the lab's machine; gives its path there.
    pub fn kubeconfig_in_the_lab(&self, vm: &Vm, node: &str) -> String {
        let text = self.kubeconfig_at("https://10.0.2.100:6443", AGENT, Some(&self.agent_pod(node)));
        vm.put(Path::new(&self.file("kubeconfig", &text))).unwrap()
    }

    /// A node that runs an agent, unless it exists.
    pub async fn create_worker(&self, node: &str) {
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        if api.get_opt(node).await.unwrap().is_none() {
            let labels = [
                ("node-role.kubernetes.io/worker", ""),
                ("kubernetes.io/os", "linux"),
                (MADE_FOR, self.namespace.as_str()),
            ];
            self.plane.create_node(node, &labels).await.unwrap();
        }
    }

    /// A node goes, if it is there.
    pub async fn remove_worker(&self, node: &str) {
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        match api.delete(node, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{node} cannot be deleted: {error}"),
        }
    }

    /// A simulated agent, and its node.
    pub async fn agent(&self, node: &str, machine: &str) -> Program {
        let file = self.file("machine.yaml", machine);
        self.agent_with(node, &["--sim", &file], &[]).await
    }

    /// An agent on whatever machine the arguments say, and its node.
    pub async fn agent_with(&self, node: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Program {
        self.create_worker(node).await;
        let kubeconfig = self.kubeconfig(AGENT, Some(&self.agent_pod(node)));
        self.start(&kubeconfig, &[&["agent", "--node", node], arguments].concat(), environment)
    }

    /// Starts the agent of a node that may not exist.
    pub fn start_agent_without_node(&self, node: &str, arguments: &[&str]) -> Program {
        self.start(&self.kubeconfig(AGENT, Some(&self.agent_pod(node))), arguments, &[])
    }

    /// The init container of the separate device plugin, in this pod.
    pub fn plugin_that_waits(&self, pod: &str) -> Program {
        let kubeconfig = self.kubeconfig(DEVICE_PLUGIN, Some(pod));
        let arguments = ["wait-for-config", "--pod-name", pod, "--pod-namespace", &self.namespace];
        self.start(&kubeconfig, &arguments, &[])
    }

    pub fn sim(&self, names: &[String], machine: &str) -> Program {
        let file = self.file("machine.yaml", machine);
        self.start(
            &self.kubeconfig(SIM, None),
            &["sim", "--names", &names.join(","), "--machine", &file],
            &[],
        )
    }

    /// Applies a policy for all nodes; for the resource `nics` unless it says otherwise.
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

    /// Asks for so many VFs by a policy, and waits until the node has them: proof that all parts work.
    pub async fn make_vfs(&self, node: &str, pf: &str, count: usize) {
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

    /// Waits for a node state like this.
    pub async fn wait(&self, node: &str, what: &str, like: impl Fn(&State) -> bool) -> State {
        self.wait_telling(node, what, like, || self.log()).await
    }

    /// The same, with somebody else's log in the complaint.
    pub async fn wait_telling(
        &self,
        node: &str,
        what: &str,
        like: impl Fn(&State) -> bool,
        log: impl FnOnce() -> String,
    ) -> State {
        let api: Api<SriovNetworkNodeState> = Api::namespaced(self.client.clone(), &self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let mut states =
            watcher(api.clone(), config).default_backoff().applied_objects().map_ok(State).boxed();
        let found = async {
            loop {
                match states.next().await.unwrap() {
                    Ok(state) if like(&state) => return state,
                    _ => {}
                }
            }
        };
        let Ok(state) = tokio::time::timeout(DEADLINE, found).await else {
            panic!("{node} never came to: {what}; it is {:#?}\n{}", api.get_opt(node).await, log());
        };
        state
    }

    pub async fn expect_event(&self, node: &str, type_: &str, reason: &str) {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let is_it = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.type_.as_deref() == Some(type_)
                && event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(node)
                && event.note.as_ref().is_some_and(|note| !note.is_empty())
        };
        let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
        let found = async { while !events.next().await.unwrap().as_ref().is_ok_and(is_it) {} };
        tokio::time::timeout(DEADLINE, found)
            .await
            .unwrap_or_else(|_| panic!("no {type_} event {reason} about {node}\n{}", self.log()));
    }
}

/// A node state, with what the tests ask of it.
#[derive(Clone, Debug)]
pub struct State(SriovNetworkNodeState);

impl State {
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

    /// Succeeded, with the spec as it is now.
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

    /// The status and the reason of a condition that may not be there.
    pub fn find_condition(&self, type_: &str) -> Option<(String, String)> {
        let conditions = self.status().conditions.unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition.type_ == type_)?;
        Some((condition.status, condition.reason))
    }

    /// Changes with every write.
    pub fn version(&self) -> &str {
        self.0.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// The names of all cards.
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
