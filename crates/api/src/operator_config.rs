//! `SriovOperatorConfig`: what is deployed in the cluster, and how.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Condition;

/// What is deployed in the cluster, and how.
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
        doc = "Settings of vfleet itself. Only the object named default in the operator's namespace is honoured.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "Whether all that is wanted is deployed"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "How long ago the config was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SriovOperatorConfigSpec {
    /// Labels of the nodes that get an agent. When empty: Linux nodes with the label
    /// node-role.kubernetes.io/worker.
    pub config_daemon_node_selector: Option<BTreeMap<String, String>>,
    /// Whether pods that name a network are given its resource request.
    pub enable_injector: Option<bool>,
    /// Whether objects are checked at admission.
    pub enable_operator_webhook: Option<bool>,
    /// How much is logged: 0 (information), 1, 2 (everything).
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 2)))]
    pub log_level: Option<i64>,
    /// Change nodes without draining them first.
    pub disable_drain: Option<bool>,
    /// Not read; kept for objects that carry it.
    pub enable_ovs_offload: Option<bool>,
    /// Who configures the cards: the agent while it runs (daemon), or services at boot (systemd).
    pub configuration_mode: Option<ConfigurationMode>,
    /// Hand devices to containers by the Container Device Interface.
    #[serde(rename = "useCDI")]
    pub use_cdi: Option<bool>,
    /// Vendor support that is switched off.
    pub disable_plugins: Option<Vec<PluginName>>,
    /// Features that are switched on or off, by name.
    pub feature_gates: Option<BTreeMap<String, bool>>,
    /// Environment variables for the agent.
    pub config_daemon_env_vars: Option<BTreeMap<String, String>>,
}

/// Who configures the cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConfigurationMode {
    #[default]
    Daemon,
    Systemd,
}

/// Vendor support that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PluginName {
    Mellanox,
}

/// What is deployed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SriovOperatorConfigStatus {
    /// Not written; kept for objects that carry it.
    pub injector: Option<String>,
    /// Not written; kept for objects that carry it.
    pub operator_webhook: Option<String>,
    /// Ready, Degraded, Valid and Admission, each with its reason.
    pub conditions: Option<Vec<Condition>>,
}
