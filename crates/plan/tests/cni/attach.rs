//! ADD from the bytes that a runtime gives to the plan.

use std::collections::BTreeMap;
use std::error::Error;

use serde_json::Value;
use vfleet_api::PciAddress;
use vfleet_plan::cni::attachment::{AddContext, AddPlan};
use vfleet_plan::cni::config::{InfinibandConfig, NetworkConfig, RdmaConfig, SriovConfig};
use vfleet_plan::cni::facts::AttachmentFacts;
use vfleet_plan::cni::journal::{AttachmentKey, Plugin};
use vfleet_plan::cni::protocol::{CniError, Invocation};
use vfleet_plan::cni::{infiniband, rdma, sriov};

/// ADD of a runtime.
pub(crate) struct Attempt {
    /// Standard input.
    pub(crate) config: Vec<u8>,
    /// Differences from the usual environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// Differences from the usual facts.
    pub(crate) facts: Value,
}

impl Attempt {
    /// Returns the facts, by the plugin that the configuration names.
    pub(crate) fn facts(&self) -> Result<AttachmentFacts, Box<dyn Error>> {
        let text = String::from_utf8_lossy(&self.config);
        let base = if text.contains(r#""ib-sriov""#) {
            include_str!("base/ib-sriov.yaml")
        } else if text.contains(r#""rdma""#) {
            include_str!("base/rdma.yaml")
        } else {
            include_str!("base/sriov.yaml")
        };
        let mut facts: Value = serde_saphyr::from_str(base)?;
        if self.facts.is_object() {
            json_patch::merge(&mut facts, &self.facts);
        }
        Ok(serde_json::from_value(facts)?)
    }

    /// Plans the ADD.
    pub(crate) fn plan(&self, facts: &AttachmentFacts) -> Result<AddPlan, CniError> {
        let mut variables: BTreeMap<String, String> = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c0ffee"),
            ("CNI_NETNS", "/run/netns/pod"),
            ("CNI_IFNAME", "net1"),
            ("CNI_PATH", "/opt/cni/bin"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        variables.extend(self.environment.clone());
        let invocation = Invocation::parse(&variables)?;
        let network = NetworkConfig::parse(invocation.command, &self.config)?;
        let context = |plugin, device: PciAddress| AddContext {
            key: AttachmentKey {
                plugin,
                container_id: invocation.container_id.clone(),
                interface: invocation.interface.clone(),
                device,
            },
            network: &network.name,
            boot_id: &facts.boot_id,
            cni_path: &invocation.path_text,
            config: &network.object,
            pod: invocation.args.pod_identity(),
        };
        match network.plugin_type.as_str() {
            "ib-sriov" => {
                let config = InfinibandConfig::parse(&network, &invocation.args)?;
                infiniband::plan_add(&config, context(Plugin::Infiniband, config.device), facts)
            }
            "rdma" => {
                let config = RdmaConfig::parse(&network, &invocation.args)?;
                rdma::plan_add(&config, context(Plugin::Rdma, config.device), facts)
            }
            _ => {
                let config = SriovConfig::parse(&network, &invocation.args)?;
                sriov::plan_add(&config, context(Plugin::Sriov, config.device), facts)
            }
        }
    }
}

/// Returns facts with differences.
#[allow(dead_code, reason = "the property tests have no differences")]
pub(crate) fn patched(facts: &AttachmentFacts, patch: &Value) -> Result<AttachmentFacts, Box<dyn Error>> {
    let mut facts = serde_json::to_value(facts)?;
    if patch.is_object() {
        json_patch::merge(&mut facts, patch);
    }
    Ok(serde_json::from_value(facts)?)
}
