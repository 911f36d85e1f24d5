//! One call of a plugin by a container runtime.

use std::collections::BTreeMap;

use serde_json::Value;
use vfleet_api::PciAddress;
use vfleet_plan::cni::attachment::{AddContext, AddPlan};
use vfleet_plan::cni::config::{
    AcceleratedBridgeConfig, InfinibandConfig, LogSettings, MirrorConfig, NetworkConfig, OvsConfig,
    OvsFlatFile, RdmaConfig, SriovConfig,
};
use vfleet_plan::cni::facts::{AttachmentFacts, SwitchQuery};
use vfleet_plan::cni::journal::{AttachmentKey, Plugin};
use vfleet_plan::cni::protocol::{CniArgs, CniError, Invocation};
use vfleet_plan::cni::{accelerated_bridge, infiniband, mirror, ovs, rdma, sriov};

/// Call of a plugin.
#[derive(Clone, Debug)]
pub struct PluginCall {
    /// Plugin.
    pub plugin: Plugin,
    /// Environment.
    pub invocation: Invocation,
    /// Variables of the environment, for delegated plugins.
    pub variables: BTreeMap<String, String>,
    /// Network configuration.
    pub network: NetworkConfig,
    /// Keys of the plugin in the configuration. Commands that do not need them ignore the error: nothing in them can prevent
    /// a DEL.
    pub settings: Result<PluginSettings, CniError>,
    /// File with keys that all networks of Open vSwitch share.
    pub ovs_file: Option<OvsFlatFile>,
    /// Standard input, for delegated plugins.
    pub stdin: Vec<u8>,
}

impl PluginCall {
    /// Parses the environment and standard input.
    pub fn parse(
        plugin: Plugin,
        variables: &BTreeMap<String, String>,
        stdin: &[u8],
    ) -> Result<Self, CniError> {
        let invocation = Invocation::parse(variables)?;
        let network = NetworkConfig::parse(invocation.command, stdin)?;
        let settings = PluginSettings::parse(plugin, &network, &invocation.args, None);
        let (variables, stdin) = (variables.clone(), stdin.to_vec());
        Ok(Self { plugin, invocation, variables, network, settings, ovs_file: None, stdin })
    }

    /// Returns the same call with the keys of a file that all networks of Open vSwitch share.
    #[must_use]
    pub fn with_ovs_file(self, file: OvsFlatFile) -> Self {
        let settings = PluginSettings::parse(self.plugin, &self.network, &self.invocation.args, Some(&file));
        Self { settings, ovs_file: Some(file), ..self }
    }

    /// Returns the keys of the plugin, or the error in them.
    pub fn settings(&self) -> Result<&PluginSettings, CniError> {
        self.settings.as_ref().map_err(Clone::clone)
    }

    /// Returns the attachment of this call, to a device if it has one.
    pub fn key(&self, device: Option<PciAddress>) -> AttachmentKey {
        AttachmentKey {
            plugin: self.plugin,
            container_id: self.invocation.container_id.clone(),
            interface: self.invocation.interface.clone(),
            device,
        }
    }

    /// Returns whether `key` is an attachment of this call, to whichever device.
    pub fn is_own(&self, key: &AttachmentKey) -> bool {
        *key == self.key(key.device)
    }

    /// Returns the configuration for the journal: without the result of the previous plugin, which DEL does not need.
    pub fn recorded_config(&self) -> Value {
        let mut config = self.network.object.clone();
        if let Some(object) = config.as_object_mut() {
            object.retain(|key, _| !key.eq_ignore_ascii_case("prevResult"));
        }
        config
    }
}

/// Settings of one of the plugins.
#[derive(Clone, Debug)]
pub enum PluginSettings {
    /// Settings of `sriov`.
    Sriov(SriovConfig),
    /// Settings of `ib-sriov`.
    Infiniband(InfinibandConfig),
    /// Settings of `rdma`.
    Rdma(RdmaConfig),
    /// Settings of `ovs`.
    Ovs(OvsConfig),
    /// Settings of `accelerated-bridge`.
    AcceleratedBridge(AcceleratedBridgeConfig),
    /// Settings of `ovs-mirror-producer` and `ovs-mirror-consumer`.
    Mirror(MirrorConfig),
}

impl PluginSettings {
    fn parse(
        plugin: Plugin,
        network: &NetworkConfig,
        args: &CniArgs,
        ovs_file: Option<&OvsFlatFile>,
    ) -> Result<Self, CniError> {
        Ok(match plugin {
            Plugin::Sriov => Self::Sriov(SriovConfig::parse(network, args)?),
            Plugin::Infiniband => Self::Infiniband(InfinibandConfig::parse(network, args)?),
            Plugin::Rdma => Self::Rdma(RdmaConfig::parse(network, args)?),
            Plugin::Ovs => Self::Ovs(OvsConfig::parse(network, args, ovs_file)?),
            Plugin::AcceleratedBridge => {
                Self::AcceleratedBridge(AcceleratedBridgeConfig::parse(network, args)?)
            }
            Plugin::OvsMirrorProducer => Self::Mirror(MirrorConfig::parse(true, network, args, ovs_file)?),
            Plugin::OvsMirrorConsumer => Self::Mirror(MirrorConfig::parse(false, network, args, ovs_file)?),
        })
    }

    /// Returns the device of the attachment, if it has one.
    pub const fn device(&self) -> Option<PciAddress> {
        match self {
            Self::Sriov(config) => Some(config.device),
            Self::Infiniband(config) => Some(config.device),
            Self::Rdma(config) => Some(config.device),
            Self::Ovs(config) => config.device,
            Self::AcceleratedBridge(config) => Some(config.device),
            Self::Mirror(_) => None,
        }
    }

    /// Returns the log.
    pub const fn log(&self) -> &LogSettings {
        match self {
            Self::Sriov(config) => &config.log,
            Self::Infiniband(config) => &config.log,
            Self::Rdma(config) => &config.log,
            Self::Ovs(config) => &config.log,
            Self::AcceleratedBridge(config) => &config.log,
            Self::Mirror(config) => &config.log,
        }
    }

    /// Returns the facts of the switch side that an ADD needs; `None` if there is none.
    pub fn switch_query(&self) -> Option<SwitchQuery> {
        match self {
            Self::Sriov(_) | Self::Infiniband(_) | Self::Rdma(_) => None,
            Self::Ovs(config) => Some(config.switch_query()),
            Self::AcceleratedBridge(config) => Some(config.switch_query()),
            Self::Mirror(config) => Some(config.switch_query()),
        }
    }

    /// Returns whether the attachment changes the VLANs of an uplink, which others share.
    pub const fn shares_uplink(&self) -> bool {
        matches!(self, Self::AcceleratedBridge(config) if config.sets_uplink_vlans)
    }

    /// Plans an ADD.
    pub fn plan_add(&self, context: AddContext<'_>, facts: &AttachmentFacts) -> Result<AddPlan, CniError> {
        match self {
            Self::Sriov(config) => sriov::plan_add(config, context, facts),
            Self::Infiniband(config) => infiniband::plan_add(config, context, facts),
            Self::Rdma(config) => rdma::plan_add(config, context, facts),
            Self::Ovs(config) => ovs::plan_add(config, context, facts),
            Self::AcceleratedBridge(config) => accelerated_bridge::plan_add(config, context, facts),
            Self::Mirror(config) => mirror::plan_add(config, context, facts),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

    use serde_json::json;
    use vfleet_plan::cni::config::LogLevel;

    use super::*;

    #[test]
    fn each_plugin_has_the_log_of_its_configuration() {
        let variables = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_IFNAME", "net1"),
            ("CNI_NETNS", "/run/netns/a"),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let config = json!({
            "cniVersion": "1.0.0", "name": "n", "deviceID": "0000:01:10.0", "prevResult": {},
            "logLevel": "error", "logFile": "/var/log/cni.log",
        });
        for plugin in Plugin::ALL {
            let call = PluginCall::parse(plugin, &variables, config.to_string().as_bytes()).unwrap();
            let log = call.settings().unwrap().log();
            assert_eq!((log.level, log.file.as_deref()), (LogLevel::Error, Some("/var/log/cni.log")));
        }
    }
}
