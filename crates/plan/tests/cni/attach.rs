//! ADD from the bytes that a runtime gives to the plan.

use std::collections::BTreeMap;
use std::error::Error;

use serde_json::Value;
use vfleet_api::PciAddress;
use vfleet_plan::cni::attachment::{AddContext, AddPlan};
use vfleet_plan::cni::config::{
    AcceleratedBridgeConfig, InfinibandConfig, MirrorConfig, NetworkConfig, OvsConfig, OvsFlatFile, RdmaConfig,
    SriovConfig,
};
use vfleet_plan::cni::facts::{AttachmentFacts, FileFacts};
use vfleet_plan::cni::journal::{AttachmentKey, Plugin};
use vfleet_plan::cni::protocol::{CniError, Invocation};
use vfleet_plan::cni::{accelerated_bridge, infiniband, mirror, ovs, rdma, sriov};

/// Path of the file that all networks of Open vSwitch share.
const OVS_FILE: &str = "/etc/cni/net.d/ovs.d/ovs.conf";

/// ADD of a runtime.
pub(crate) struct Attempt {
    /// Standard input.
    pub(crate) config: Vec<u8>,
    /// Differences from the usual environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// Differences from the usual facts.
    pub(crate) facts: Value,
    /// Content of the file that all networks of Open vSwitch share.
    pub(crate) ovs_file: Option<String>,
}

impl Attempt {
    /// Returns the facts, by the plugin that the configuration names.
    pub(crate) fn facts(&self) -> Result<AttachmentFacts, Box<dyn Error>> {
        let text = String::from_utf8_lossy(&self.config);
        let bases = [
            (r#""ib-sriov""#, include_str!("base/ib-sriov.yaml")),
            (r#""rdma""#, include_str!("base/rdma.yaml")),
            (r#""ovs""#, include_str!("base/ovs.yaml")),
            (r#""accelerated-bridge""#, include_str!("base/accelerated-bridge.yaml")),
            (r#""ovs-mirror-"#, include_str!("base/ovs-mirror.yaml")),
        ];
        let base = bases.into_iter().find(|(name, _)| text.contains(name));
        let mut facts: Value =
            serde_saphyr::from_str(base.map_or(include_str!("base/sriov.yaml"), |(_, base)| base))?;
        if text.contains(r#""ovs""#) && !text.to_lowercase().contains(r#""deviceid""#) {
            facts["device"] = Value::Null;
            for key in ["isSwitchdev", "representor", "uplink"] {
                facts["switch"].as_object_mut().ok_or("the switch side is an object")?.remove(key);
            }
        }
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
        let context = |plugin, device: Option<PciAddress>| AddContext {
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
        let args = &invocation.args;
        let file = self.ovs_file.clone().map(|content| FileFacts::Present { path: OVS_FILE.to_owned(), content });
        let file = file.map_or(Ok(None), |file| OvsFlatFile::parse(&file))?;
        match network.plugin_type.as_str() {
            "ib-sriov" => {
                let config = InfinibandConfig::parse(&network, args)?;
                infiniband::plan_add(&config, context(Plugin::Infiniband, Some(config.device)), facts)
            }
            "rdma" => {
                let config = RdmaConfig::parse(&network, args)?;
                rdma::plan_add(&config, context(Plugin::Rdma, Some(config.device)), facts)
            }
            "ovs" => {
                let config = OvsConfig::parse(&network, args, file.as_ref())?;
                ovs::plan_add(&config, context(Plugin::Ovs, config.device), facts)
            }
            "accelerated-bridge" => {
                let config = AcceleratedBridgeConfig::parse(&network, args)?;
                let context = context(Plugin::AcceleratedBridge, Some(config.device));
                accelerated_bridge::plan_add(&config, context, facts)
            }
            "ovs-mirror-producer" => {
                let config = MirrorConfig::parse(true, &network, args, file.as_ref())?;
                mirror::plan_add(&config, context(Plugin::OvsMirrorProducer, None), facts)
            }
            "ovs-mirror-consumer" => {
                let config = MirrorConfig::parse(false, &network, args, file.as_ref())?;
                mirror::plan_add(&config, context(Plugin::OvsMirrorConsumer, None), facts)
            }
            _ => {
                let config = SriovConfig::parse(&network, args)?;
                sriov::plan_add(&config, context(Plugin::Sriov, Some(config.device)), facts)
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
