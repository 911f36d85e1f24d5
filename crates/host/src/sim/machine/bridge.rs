//! Description of the software bridges of a machine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Types of interfaces that Open vSwitch supports without DPDK.
const INTERFACE_TYPES: [&str; 7] = ["system", "internal", "tap", "patch", "vxlan", "geneve", "gre"];

/// Description of Open vSwitch on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MachineOvs {
    /// Open vSwitch is installed.
    pub installed: bool,
    /// Its daemons start with the machine.
    pub running: bool,
    /// `other_config:hw-offload` is `true`.
    pub offload: bool,
    /// Supported types of interfaces.
    pub interface_types: BTreeSet<String>,
    /// Bridges of other programs.
    pub bridges: Vec<MachineBridge>,
}

impl Default for MachineOvs {
    fn default() -> Self {
        Self {
            installed: true,
            running: true,
            offload: false,
            interface_types: INTERFACE_TYPES.map(str::to_owned).into(),
            bridges: Vec::new(),
        }
    }
}

/// Description of a bridge of another program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineBridge {
    /// Name.
    pub name: String,
    /// Names of the interfaces that are its ports.
    #[serde(default)]
    pub ports: Vec<String>,
}
