//! One call of a plugin by a container runtime.

use std::collections::BTreeMap;

use serde_json::Value;
use vfleet_api::PciAddress;
use vfleet_plan::cni::attachment::{AddContext, AddPlan};
use vfleet_plan::cni::config::{InfinibandConfig, LogSettings, NetworkConfig, RdmaConfig, SriovConfig};
use vfleet_plan::cni::facts::AttachmentFacts;
use vfleet_plan::cni::journal::{AttachmentKey, Plugin};
use vfleet_plan::cni::protocol::{CniArgs, CniError, Invocation};
use vfleet_plan::cni::{infiniband, rdma, sriov};

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
        let settings = PluginSettings::parse(plugin, &network, &invocation.args);
        let (variables, stdin) = (variables.clone(), stdin.to_vec());
        Ok(Self { plugin, invocation, variables, network, settings, stdin })
    }

    /// Returns the keys of the plugin, or the error in them.
    pub fn settings(&self) -> Result<&PluginSettings, CniError> {
        self.settings.as_ref().map_err(Clone::clone)
    }

    /// Returns the attachment of this call to a device.
    pub fn key(&self, device: PciAddress) -> AttachmentKey {
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
}

impl PluginSettings {
    fn parse(plugin: Plugin, network: &NetworkConfig, args: &CniArgs) -> Result<Self, CniError> {
        Ok(match plugin {
            Plugin::Sriov => Self::Sriov(SriovConfig::parse(network, args)?),
            Plugin::Infiniband => Self::Infiniband(InfinibandConfig::parse(network, args)?),
            Plugin::Rdma => Self::Rdma(RdmaConfig::parse(network, args)?),
        })
    }

    /// Returns the device of the attachment.
    pub const fn device(&self) -> PciAddress {
        match self {
            Self::Sriov(config) => config.device,
            Self::Infiniband(config) => config.device,
            Self::Rdma(config) => config.device,
        }
    }

    /// Returns the settings of the log.
    pub const fn log(&self) -> &LogSettings {
        match self {
            Self::Sriov(config) => &config.log,
            Self::Infiniband(config) => &config.log,
            Self::Rdma(config) => &config.log,
        }
    }

    /// Plans an ADD.
    pub fn plan_add(&self, context: AddContext<'_>, facts: &AttachmentFacts) -> Result<AddPlan, CniError> {
        match self {
            Self::Sriov(config) => sriov::plan_add(config, context, facts),
            Self::Infiniband(config) => infiniband::plan_add(config, context, facts),
            Self::Rdma(config) => rdma::plan_add(config, context, facts),
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
