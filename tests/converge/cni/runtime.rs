//! Container runtime, which calls the plugins of a pod one after the other.

use std::collections::BTreeMap;

use super::switch::switch_lines;
use serde_json::{Value, json};
use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_cni::call::PluginCall;
use vfleet_cni::engine;
use vfleet_host::SimHost;
use vfleet_host::sim::{Kernel, SimVf};
use vfleet_plan::cni::journal::{AttachmentKey, Journal, Phase, Plugin};
use vfleet_plan::cni::protocol::CniError;

/// Name of the interface in each pod.
pub(crate) const INTERFACE: &str = "net1";

/// Pod with one attachment to a network: a chain of plugins.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) container_id: &'static str,
    pub(crate) netns: &'static str,
    pub(crate) chain: Vec<Value>,
}

impl Pod {
    /// Returns pod number `number` with its network. Its namespace is created by [`Pod::start`].
    pub(crate) fn new(number: usize, chain: &[Value]) -> Self {
        const PODS: [(&str, &str); 3] =
            [("a0", "/run/netns/a"), ("b1", "/run/netns/b"), ("c2", "/run/netns/c")];
        let (container_id, netns) = PODS[number];
        Self { container_id, netns, chain: chain.to_vec() }
    }

    /// Creates the namespace of the pod.
    pub(crate) fn start(&self, host: &SimHost) {
        host.modify_kernel(|kernel| kernel.create_namespace(self.netns));
    }

    /// Attaches the pod. Returns the result of the last plugin.
    pub(crate) fn add(&self, host: &SimHost) -> Result<Value, CniError> {
        let mut result = None;
        for config in &self.chain {
            result = self.call(host, "ADD", config, result.as_ref())?;
        }
        Ok(result.expect("ADD has a result"))
    }

    /// Compares the attachment with the result of ADD, if the version of CNI has CHECK.
    pub(crate) fn check(&self, host: &SimHost, result: &Value) -> Result<(), CniError> {
        let has_check = |config: &&Value| !matches!(config["cniVersion"].as_str(), Some("0.2.0" | "0.3.1"));
        for config in self.chain.iter().filter(has_check) {
            self.call(host, "CHECK", config, Some(result))?;
        }
        Ok(())
    }

    /// Detaches the pod, and tries again once, as kubelet does for ever.
    pub(crate) fn del(&self, host: &SimHost) -> Result<(), CniError> {
        self.del_once(host).or_else(|_| self.del_once(host))
    }

    /// Detaches the pod.
    pub(crate) fn del_once(&self, host: &SimHost) -> Result<(), CniError> {
        for config in self.chain.iter().rev() {
            self.call(host, "DEL", config, None)?;
        }
        Ok(())
    }

    fn call(
        &self,
        host: &SimHost,
        command: &str,
        config: &Value,
        previous: Option<&Value>,
    ) -> Result<Option<Value>, CniError> {
        let variables =
            [("CNI_CONTAINERID", self.container_id), ("CNI_NETNS", self.netns), ("CNI_IFNAME", INTERFACE)];
        let mut config = config.clone();
        if let Some(previous) = previous {
            config["prevResult"] = previous.clone();
        }
        call(host, command, &config, &variables)
    }
}

/// Detaches all pods of a network.
pub(crate) fn collect_all(host: &SimHost, chain: &[Value]) -> Result<(), CniError> {
    for config in chain {
        let mut config = config.clone();
        config["cniVersion"] = json!("1.1.0");
        config["cni.dev/valid-attachments"] = json!([]);
        call(host, "GC", &config, &[])?;
    }
    Ok(())
}

fn call(
    host: &SimHost,
    command: &str,
    config: &Value,
    variables: &[(&str, &str)],
) -> Result<Option<Value>, CniError> {
    let common = [("CNI_COMMAND", command), ("CNI_PATH", "/opt/cni/bin")];
    let all = common.iter().chain(variables);
    let variables: BTreeMap<String, String> =
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let plugin = config["type"].as_str().and_then(Plugin::find).expect("a plugin");
    let call = PluginCall::parse(plugin, &variables, config.to_string().as_bytes())?;
    engine::execute(host, &call)
}

/// Returns everything on the machine that an attachment may change, in lines.
pub(crate) fn state(host: &SimHost) -> Vec<String> {
    let kernel = host.kernel();
    let mut lines = vf_lines(&kernel);
    for (key, text) in &kernel.cni.journals {
        let phase = serde_json::from_str(text).map(|journal: Journal| journal.phase);
        lines.push(format!("journal of {key:?}: {phase:?}"));
    }
    lines.extend(kernel.cni.go_caches.keys().map(|key| format!("cache {key:?}")));
    lines.extend(kernel.cni.go_allocations.iter().map(|allocation| format!("allocation {allocation:?}")));
    lines.extend(switch_lines(&kernel));
    lines.extend(host.given_addresses().iter().map(|key| format!("address of {key:?}")));
    lines
}

/// Returns the same without what only the runtime can free: addresses, and journals that say so.
pub(crate) fn device_state(host: &SimHost) -> Vec<String> {
    let mut lines = state(host);
    let returned = format!("{:?}", Ok::<_, ()>(Phase::Returned));
    lines.retain(|line| !line.starts_with("address") && !line.ends_with(&returned));
    lines
}

/// Returns the state of all VFs. Indexes of interfaces, whether they are up, and who has chosen a MAC are not restored.
fn vf_lines(kernel: &Kernel) -> Vec<String> {
    let vfs = kernel.pfs.iter().flat_map(|pf| &pf.vfs);
    let to_line = |vf: &SimVf| {
        let no_guid = |guid: Guid| guid.0 == [0; 8] || guid.0 == [0xff; 8];
        let guid = Some(vf.admin_guid).filter(|guid| !no_guid(*guid));
        let rdma = vf.rdma.as_ref().map(|rdma| {
            (rdma.device.clone(), Some(rdma.port_guid).filter(|guid| !no_guid(*guid)), vf.rdma_namespace)
        });
        let link = vf.link.as_ref().map(|link| {
            let mut alt_names = link.alt_names.clone();
            alt_names.sort();
            (link.name.clone(), alt_names, link.mac, link.mtu, link.ips.clone(), vf.namespace)
        });
        let own_mac = vf.link.as_ref().map(|link| link.mac);
        let admin_mac = Some(vf.admin_mac).filter(|mac| Some(*mac) != own_mac && *mac != MacAddr::ZERO);
        let overridden = &vf.driver_override;
        let representor = vf.representor.as_ref().map(|name| (name, vf.representor_link));
        format!(
            "{}: driver {:?} {overridden:?}, representor {representor:?}, MAC {admin_mac:?}, GUID {guid:?}, {:?}, RDMA {rdma:?}, interface {link:?}",
            vf.address, vf.driver, vf.settings
        )
    };
    vfs.map(to_line).collect()
}

/// Returns the phase of the journal of a pod for a device, or for its interface without one.
pub(crate) fn phase(host: &SimHost, pod: &Pod, device: PciAddress) -> Option<Phase> {
    let kernel = host.kernel();
    let is_of_pod = |key: &&AttachmentKey| {
        let is_chained =
            matches!(key.plugin, Plugin::Rdma | Plugin::OvsMirrorProducer | Plugin::OvsMirrorConsumer);
        key.container_id == pod.container_id && key.device.is_none_or(|found| found == device) && !is_chained
    };
    let key = kernel.cni.journals.keys().find(is_of_pod)?;
    kernel.cni.journal(key).expect("an intact journal").map(|journal| journal.phase)
}
