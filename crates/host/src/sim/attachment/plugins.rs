//! Plugins on a simulated machine that others delegate to, such as those for IP addresses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::super::host::{SimHost, lock};
use crate::HostError;
use crate::attachment::{DelegateCall, DelegateOutput};

/// Directory of installed plugins.
const DIRECTORY: &str = "/opt/cni/bin";

type PluginProgram = Arc<dyn Fn(&DelegateRecord) -> DelegateOutput + Send + Sync>;

/// Installed plugins and their runs.
#[derive(Default)]
pub(in crate::sim) struct SimPlugins {
    programs: Mutex<BTreeMap<PathBuf, PluginProgram>>,
    runs: Mutex<Vec<DelegateRecord>>,
    /// Addresses that the simulated plugins for IP addresses have given out, by plugin, network, container and interface.
    addresses: Arc<Mutex<BTreeMap<IpamKey, u8>>>,
}

type IpamKey = [String; 4];

/// Run of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegateRecord {
    /// Name of the plugin.
    pub plugin: String,
    /// Its variables `CNI_*`.
    pub environment: BTreeMap<String, String>,
    /// Its standard input.
    pub stdin: Vec<u8>,
}

impl DelegateRecord {
    /// Returns a variable of its environment; empty if it is not set.
    pub fn variable(&self, name: &str) -> &str {
        self.environment.get(name).map_or("", String::as_str)
    }

    /// Returns the command.
    pub fn command(&self) -> &str {
        self.variable("CNI_COMMAND")
    }
}

impl SimPlugins {
    pub(super) fn find(&self, plugin: &str, search_path: &[String]) -> Option<PathBuf> {
        let programs = lock(&self.programs);
        let paths = search_path.iter().map(|directory| Path::new(directory).join(plugin));
        paths.into_iter().find(|path| programs.contains_key(path))
    }

    pub(super) fn run(&self, call: &DelegateCall<'_>) -> Result<DelegateOutput, HostError> {
        let path = self.find(call.plugin, call.search_path);
        let not_found = || HostError::ProgramNotFound { program: call.plugin.to_owned() };
        let program =
            lock(&self.programs).get(&path.ok_or_else(not_found)?).cloned().ok_or_else(not_found)?;
        let record = DelegateRecord {
            plugin: call.plugin.to_owned(),
            environment: call.environment.clone(),
            stdin: call.stdin.to_vec(),
        };
        lock(&self.runs).push(record.clone());
        Ok(program(&record))
    }
}

impl SimHost {
    /// Installs a plugin in `/opt/cni/bin`, or replaces it.
    pub fn install_plugin(
        &self,
        name: &str,
        program: impl Fn(&DelegateRecord) -> DelegateOutput + Send + Sync + 'static,
    ) {
        let path = Path::new(DIRECTORY).join(name);
        lock(&self.machine.plugins.programs).insert(path, Arc::new(program));
    }

    /// Installs a plugin that gives out one IPv4 and one IPv6 address for each interface of a container, until DEL. A second ADD
    /// for the same interface fails, a second DEL succeeds.
    pub fn install_ipam(&self, name: &str) {
        let addresses = Arc::clone(&self.machine.plugins.addresses);
        self.install_plugin(name, move |run| run_ipam(run, &mut lock(&addresses)));
    }

    /// Removes a plugin.
    pub fn remove_plugin(&self, name: &str) {
        lock(&self.machine.plugins.programs).remove(&Path::new(DIRECTORY).join(name));
    }

    /// Returns the runs of plugins, in sequence.
    pub fn delegate_records(&self) -> Vec<DelegateRecord> {
        lock(&self.machine.plugins.runs).clone()
    }

    /// Returns the addresses that plugins of [`SimHost::install_ipam`] have given out and not got back: plugin, network,
    /// container and interface.
    pub fn given_addresses(&self) -> Vec<[String; 4]> {
        lock(&self.machine.plugins.addresses).keys().cloned().collect()
    }
}

fn run_ipam(run: &DelegateRecord, addresses: &mut BTreeMap<IpamKey, u8>) -> DelegateOutput {
    let Ok(config) = serde_json::from_slice::<Value>(&run.stdin) else {
        return failure(6, "standard input is not JSON");
    };
    let network = config["name"].as_str().unwrap_or_default();
    let variable = |name| run.variable(name).to_owned();
    let key = [run.plugin.clone(), network.to_owned(), variable("CNI_CONTAINERID"), variable("CNI_IFNAME")];
    match run.command() {
        "ADD" if addresses.contains_key(&key) => failure(101, "the interface has an address already"),
        "ADD" => {
            let is_free = |number: &u8| !addresses.values().any(|used| used == number);
            let Some(number) = (2..=254).find(is_free) else { return failure(102, "no address is free") };
            addresses.insert(key, number);
            success(&ipam_result(config["cniVersion"].as_str().unwrap_or("0.2.0"), number))
        }
        "DEL" => {
            addresses.remove(&key);
            output(true, String::new())
        }
        "CHECK" if !addresses.contains_key(&key) => failure(103, "the interface has no address"),
        "CHECK" | "GC" | "STATUS" => output(true, String::new()),
        command => failure(4, &format!("unknown command {command}")),
    }
}

/// Returns the result of ADD in a version of CNI, for an address with this number.
fn ipam_result(version: &str, number: u8) -> Value {
    let (ipv4, ipv6) = (format!("192.0.2.{number}/24"), format!("2001:db8::{number:x}/64"));
    let (gateway, route) = ("192.0.2.1", json!({"dst": "198.51.100.0/24"}));
    if matches!(version, "0.1.0" | "0.2.0") {
        let ipv4 = json!({"ip": ipv4, "gateway": gateway, "routes": [route]});
        return json!({"cniVersion": version, "ip4": ipv4, "ip6": {"ip": ipv6}, "dns": {}});
    }
    let ipv4 = json!({"version": "4", "address": ipv4, "gateway": gateway});
    let ips = [ipv4, json!({"version": "6", "address": ipv6})];
    json!({"cniVersion": version, "ips": ips, "routes": [route], "dns": {}})
}

fn success(result: &Value) -> DelegateOutput {
    output(true, result.to_string())
}

fn failure(code: u32, message: &str) -> DelegateOutput {
    output(false, json!({"cniVersion": "1.0.0", "code": code, "msg": message}).to_string())
}

fn output(is_success: bool, stdout: String) -> DelegateOutput {
    let outcome = if is_success { "exit status 0" } else { "exit status 1" };
    DelegateOutput {
        is_success,
        outcome: outcome.to_owned(),
        stdout: stdout.into_bytes(),
        stderr: String::new(),
    }
}
