//! Open vSwitch hardware offload (OpenShift): a pool names a machine config pool, which gets a machine config for it.

use serde_json::{Value, json};
use vfleet_api::conditions::{HARDWARE_OFFLOAD, Verdict};
use vfleet_api::keys::{INSTALLATION_LABEL, MACHINE_CONFIG_ROLE, MANAGED_BY_LABEL, OPERATOR_FIELD_MANAGER};
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;

use crate::prelude::*;

/// The control plane is not for packets of pods.
const MASTER: &str = "master";

/// No wait: the switch itself is only about to start.
const DROP_IN: &str =
    "[Service]\nExecStartPre=/usr/bin/ovs-vsctl --no-wait set Open_vSwitch . other_config:hw-offload=true\n";

/// Where the offload that a pool asks for stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadStanding {
    /// There are no machine config pools in this cluster.
    NotOpenShift,
    /// It is not done for the control plane.
    Master,
    /// There is no such machine config pool.
    NoMachineConfigPool,
    /// The machine config is not there yet.
    Pending,
    /// The machine config is there.
    Written,
}

/// The machine config pool that a pool asks offload for.
pub fn offload_wanted(spec: &SriovNetworkPoolConfigSpec) -> Option<&str> {
    spec.ovs_hardware_offload_config.as_ref()?.name.as_deref().filter(|name| !name.is_empty())
}

/// Where it stands. `has_pool`: the machine config pool is there; `has_config`: its machine config is.
pub fn offload_standing(mcp: &str, has_pool: bool, has_config: bool) -> OffloadStanding {
    match (has_pool, has_config) {
        _ if mcp == MASTER => OffloadStanding::Master,
        (false, _) => OffloadStanding::NoMachineConfigPool,
        (true, false) => OffloadStanding::Pending,
        (true, true) => OffloadStanding::Written,
    }
}

/// What is said about it.
pub fn offload_verdict(mcp: &str, standing: OffloadStanding) -> Verdict {
    let config = machine_config_name(mcp);
    let (holds, reason, message) = match standing {
        OffloadStanding::NotOpenShift => {
            let text = "this cluster has no machine config pools (OpenShift): nothing is done";
            (false, "NotOpenShift", text.to_owned())
        }
        OffloadStanding::Master => {
            let text = "it is not done for the machine config pool master: name one of workers";
            (false, "MasterIgnored", text.to_owned())
        }
        OffloadStanding::NoMachineConfigPool => {
            let text = format!("there is no machine config pool {mcp}: make it, or name another one");
            (false, "NoMachineConfigPool", text)
        }
        OffloadStanding::Pending => (false, "Pending", format!("machine config {config} is being made")),
        OffloadStanding::Written => {
            (true, "MachineConfigWritten", format!("machine config {config} is there, which switches it on"))
        }
    };
    Verdict { type_: HARDWARE_OFFLOAD, holds, reason, message }
}

/// What becomes of the machine config for a machine config pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadAction {
    Nothing,
    /// Make it, or put it right.
    Apply,
    /// Nobody wants it any more.
    Delete,
}

/// What to do. `is_wanted`: a pool asks for it. What a missing machine config pool had stays: it may come back.
pub fn offload_action(mcp: &str, is_wanted: bool, has_pool: bool, has_config: bool) -> OffloadAction {
    match (is_wanted && mcp != MASTER, has_pool, has_config) {
        (true, true, _) => OffloadAction::Apply,
        (true, false, _) | (false, _, false) => OffloadAction::Nothing,
        (false, _, true) => OffloadAction::Delete,
    }
}

/// The name of the machine config for a machine config pool.
pub fn machine_config_name(mcp: &str) -> String {
    format!("00-{mcp}-ovs-hw-offload")
}

/// The machine config pool that a machine config of this name is for.
pub fn machine_config_pool_of(name: &str) -> Option<&str> {
    name.strip_prefix("00-")?.strip_suffix("-ovs-hw-offload")
}

/// The machine config for a machine config pool: it brings a drop-in for the unit of Open vSwitch. It says which
/// `installation` wants it (the operator's namespace): others must not take it away because none of their pools does.
pub fn machine_config(mcp: &str, installation: &str) -> Value {
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
    fn it_is_made_where_it_is_wanted_and_goes_when_nobody_wants_it() {
        use OffloadAction::{Apply, Delete, Nothing};
        for (is_wanted, has_pool, has_config, expected) in [
            (true, true, false, Apply),
            (true, true, true, Apply),
            (true, false, false, Nothing),
            (true, false, true, Nothing),
            (false, true, true, Delete),
            (false, false, true, Delete),
            (false, true, false, Nothing),
        ] {
            assert_eq!(offload_action("worker", is_wanted, has_pool, has_config), expected);
        }
        assert_eq!(offload_action("master", true, true, false), Nothing);
    }

    #[test]
    fn a_pool_is_told_why_nothing_is_done() {
        for (mcp, has_pool, has_config, reason) in [
            ("master", true, false, "MasterIgnored"),
            ("worker", false, false, "NoMachineConfigPool"),
            ("worker", true, false, "Pending"),
            ("worker", true, true, "MachineConfigWritten"),
        ] {
            let verdict = offload_verdict(mcp, offload_standing(mcp, has_pool, has_config));
            assert_eq!((verdict.reason, verdict.holds), (reason, reason == "MachineConfigWritten"));
        }
    }

    #[test]
    fn its_name_tells_whose_it_is() {
        let config = machine_config("worker", "home");
        assert_eq!(config["metadata"]["name"], "00-worker-ovs-hw-offload");
        assert_eq!(config["metadata"]["labels"][INSTALLATION_LABEL], "home");
        assert_eq!(machine_config_pool_of("00-worker-ovs-hw-offload"), Some("worker"));
        assert_eq!(machine_config_pool_of("99-worker-ssh"), None);
    }
}
