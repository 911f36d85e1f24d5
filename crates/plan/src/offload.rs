//! Open vSwitch hardware offload (OpenShift): a pool names a MachineConfigPool, for which a MachineConfig is created.

use serde_json::{Value, json};
use vfleet_api::conditions::{ConditionUpdate, HARDWARE_OFFLOAD};
use vfleet_api::keys::{INSTALLATION_LABEL, MACHINE_CONFIG_ROLE, MANAGED_BY_LABEL, OPERATOR_FIELD_MANAGER};
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;

use crate::prelude::*;

/// MachineConfigPool of the control plane, which runs no pods with VFs.
const MASTER: &str = "master";

/// Drop-in for the unit of Open vSwitch. `--no-wait` because ovs-vswitchd is not running yet.
const DROP_IN: &str =
    "[Service]\nExecStartPre=/usr/bin/ovs-vsctl --no-wait set Open_vSwitch . other_config:hw-offload=true\n";

/// State of the offload that a pool requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadState {
    /// The cluster has no MachineConfigPools.
    NotOpenShift,
    /// The pool names the control plane, for which offload is not supported.
    Master,
    /// The MachineConfigPool does not exist.
    NoMachineConfigPool,
    /// The MachineConfig does not exist yet.
    Pending,
    /// The MachineConfig exists.
    Written,
}

/// Returns the MachineConfigPool for which a pool requests offload.
pub fn requested_offload_pool(spec: &SriovNetworkPoolConfigSpec) -> Option<&str> {
    spec.ovs_hardware_offload_config.as_ref()?.name.as_deref().filter(|name| !name.is_empty())
}

/// Returns the state of the offload. `has_pool`: the MachineConfigPool exists; `has_config`: its MachineConfig exists.
pub fn offload_state(mcp: &str, has_pool: bool, has_config: bool) -> OffloadState {
    match (has_pool, has_config) {
        _ if mcp == MASTER => OffloadState::Master,
        (false, _) => OffloadState::NoMachineConfigPool,
        (true, false) => OffloadState::Pending,
        (true, true) => OffloadState::Written,
    }
}

/// Returns the condition HardwareOffload of a pool.
pub fn offload_condition(mcp: &str, state: OffloadState) -> ConditionUpdate {
    let config = machine_config_name(mcp);
    let (status, reason, message) = match state {
        OffloadState::NotOpenShift => {
            let text = "the cluster has no MachineConfigPools (OpenShift), so offload is not configured";
            (false, "NotOpenShift", text.to_owned())
        }
        OffloadState::Master => {
            let text =
                "offload is not supported for MachineConfigPool master: name a MachineConfigPool of workers";
            (false, "MasterNotSupported", text.to_owned())
        }
        OffloadState::NoMachineConfigPool => {
            let text = format!("MachineConfigPool {mcp} does not exist: create it, or name another one");
            (false, "MachineConfigPoolNotFound", text)
        }
        OffloadState::Pending => (false, "Pending", format!("MachineConfig {config} is being created")),
        OffloadState::Written => {
            (true, "MachineConfigWritten", format!("MachineConfig {config} enables offload"))
        }
    };
    ConditionUpdate { type_: HARDWARE_OFFLOAD, status, reason, message }
}

/// Action on the MachineConfig for a MachineConfigPool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadAction {
    Nothing,
    /// Create or correct the MachineConfig.
    Apply,
    /// Delete the MachineConfig: no pool requests it.
    Delete,
}

/// Decides the action. `is_requested`: a pool requests offload. The MachineConfig of a missing MachineConfigPool stays:
/// the pool may be created again.
pub fn decide_offload(mcp: &str, is_requested: bool, has_pool: bool, has_config: bool) -> OffloadAction {
    match (is_requested && mcp != MASTER, has_pool, has_config) {
        (true, true, _) => OffloadAction::Apply,
        (true, false, _) | (false, _, false) => OffloadAction::Nothing,
        (false, _, true) => OffloadAction::Delete,
    }
}

/// Returns the name of the MachineConfig for a MachineConfigPool.
pub fn machine_config_name(mcp: &str) -> String {
    format!("00-{mcp}-ovs-hw-offload")
}

/// Returns the MachineConfigPool that a MachineConfig of this name is for.
pub fn machine_config_pool_of(name: &str) -> Option<&str> {
    name.strip_prefix("00-")?.strip_suffix("-ovs-hw-offload")
}

/// Builds the MachineConfig for a MachineConfigPool, with a drop-in for the unit of Open vSwitch. A label names the
/// `installation` (namespace of the operator), so that other installations do not delete the MachineConfig.
pub fn build_machine_config(mcp: &str, installation: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {
            "name": machine_config_name(mcp),
            "labels": {
                MACHINE_CONFIG_ROLE: mcp,
                MANAGED_BY_LABEL: OPERATOR_FIELD_MANAGER,
                INSTALLATION_LABEL: installation,
            },
        },
        "spec": { "config": {
            "ignition": { "version": "3.2.0" },
            "systemd": { "units": [{
                "name": "ovs-vswitchd.service",
                "dropins": [{ "name": "10-hw-offload.conf", "contents": DROP_IN }],
            }] },
        } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_config_exists_while_a_pool_requests_offload() {
        use OffloadAction::{Apply, Delete, Nothing};
        for (is_requested, has_pool, has_config, expected) in [
            (true, true, false, Apply),
            (true, true, true, Apply),
            (true, false, false, Nothing),
            (true, false, true, Nothing),
            (false, true, true, Delete),
            (false, false, true, Delete),
            (false, true, false, Nothing),
        ] {
            assert_eq!(decide_offload("worker", is_requested, has_pool, has_config), expected);
        }
        assert_eq!(decide_offload("master", true, true, false), Nothing);
    }

    #[test]
    fn the_condition_tells_why_offload_is_not_configured() {
        for (mcp, has_pool, has_config, reason) in [
            ("master", true, false, "MasterNotSupported"),
            ("worker", false, false, "MachineConfigPoolNotFound"),
            ("worker", true, false, "Pending"),
            ("worker", true, true, "MachineConfigWritten"),
        ] {
            let condition = offload_condition(mcp, offload_state(mcp, has_pool, has_config));
            assert_eq!((condition.reason, condition.status), (reason, reason == "MachineConfigWritten"));
        }
    }

    #[test]
    fn name_and_label_identify_pool_and_installation() {
        let config = build_machine_config("worker", "home");
        assert_eq!(config["metadata"]["name"], "00-worker-ovs-hw-offload");
        assert_eq!(config["metadata"]["labels"][INSTALLATION_LABEL], "home");
        assert_eq!(machine_config_pool_of("00-worker-ovs-hw-offload"), Some("worker"));
        assert_eq!(machine_config_pool_of("99-worker-ssh"), None);
    }
}
