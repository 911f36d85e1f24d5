//! `SriovOperatorConfig`: settings of vfleet in a cluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Condition;

/// Settings of vfleet.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "crds",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "sriovnetwork.openshift.io",
        version = "v1",
        kind = "SriovOperatorConfig",
        plural = "sriovoperatorconfigs",
        namespaced,
        derive = "PartialEq",
        derive = "Default",
        status = "SriovOperatorConfigStatus",
        doc = "Settings of vfleet. Only the object named default in the namespace of the operator is used.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "True if all components are deployed"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "Time since the config was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SriovOperatorConfigSpec {
    /// Labels of the nodes that run an agent. Defaults to Linux nodes with the label node-role.kubernetes.io/worker.
    pub config_daemon_node_selector: Option<BTreeMap<String, String>>,
    /// Add the resource requests of networks to pods that name them.
    pub enable_injector: Option<bool>,
    /// Check objects at admission.
    pub enable_operator_webhook: Option<bool>,
    /// Log level: 0 (info), 1 (debug) or 2 (everything).
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 2)))]
    pub log_level: Option<i64>,
    /// Change nodes without draining them first.
    pub disable_drain: Option<bool>,
    /// Not used. Accepted for compatibility with existing objects.
    pub enable_ovs_offload: Option<bool>,
    /// Configuration mode: the agent configures the cards (daemon, the default), or systemd units at boot (systemd).
    pub configuration_mode: Option<ConfigurationMode>,
    /// Use the Container Device Interface (CDI) to add devices to containers.
    #[serde(rename = "useCDI")]
    pub use_cdi: Option<bool>,
    /// Vendor plugins to disable.
    pub disable_plugins: Option<Vec<PluginName>>,
    /// Feature gates: features to enable or disable, by name.
    pub feature_gates: Option<BTreeMap<String, bool>>,
    /// Additional environment variables of the agent.
    pub config_daemon_env_vars: Option<BTreeMap<String, String>>,
}

/// Configuration mode: the agent or systemd units configure the cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConfigurationMode {
    #[default]
    Daemon,
    Systemd,
}

/// Vendor plugin that can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PluginName {
    Mellanox,
}

/// Status of the operator config.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SriovOperatorConfigStatus {
    /// Not used. Accepted for compatibility with existing objects.
    pub injector: Option<String>,
    /// Not used. Accepted for compatibility with existing objects.
    pub operator_webhook: Option<String>,
    /// Conditions Ready, Degraded, Valid and Admission.
    pub conditions: Option<Vec<Condition>>,
}
