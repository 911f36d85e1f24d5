//! Config file of the systemd units, in the format of the Go daemon: field names in `spec` are lower case, since the
//! YAML library of Go writes them so. Field names of the API are accepted too. The file is written as JSON, which is
//! YAML.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::facts::HostUse;
use crate::files::OVSDB_SOCKET;
use crate::node::NodeOptions;
use crate::prelude::*;

/// Settings of the agent that apply at boot too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Options of the planner.
    pub options: NodeOptions,
    /// Configure one card after the other.
    pub one_card_at_a_time: bool,
    /// Cards without SR-IOV capability are lone VFs, since the machine is virtual.
    pub has_lone_vfs: bool,
    /// Addresses of the node: the cards that have them are in use by the node.
    pub node_addresses: Vec<IpAddr>,
    /// Socket of the Open vSwitch database: `PATH`, `unix:PATH` or `unix:///PATH`.
    pub ovsdb_socket: String,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            options: NodeOptions::default(),
            one_card_at_a_time: false,
            has_lone_vfs: false,
            node_addresses: Vec::new(),
            ovsdb_socket: OVSDB_SOCKET.to_owned(),
        }
    }
}

/// Content of the config file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BootConfig {
    /// Desired state.
    pub spec: SriovNetworkNodeStateSpec,
    /// Settings of the agent.
    pub settings: NodeSettings,
    /// PFs that are not changed, because the node uses them. Agents of earlier versions wrote refused PFs into the spec
    /// and listed them here.
    pub in_use: BTreeMap<PciAddress, HostUse>,
    /// PFs whose bridges are left to the agent: [`kept_bridges`](super::kept_bridges).
    pub kept_bridges: BTreeSet<PciAddress>,
}

/// Fields of the file that the Go daemon does not have.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct VfleetSettings {
    firmware_reset: bool,
    mellanox: bool,
    one_card_at_a_time: bool,
    node_addresses: Vec<IpAddr>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    in_use: BTreeMap<PciAddress, HostUse>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    kept_bridges: BTreeSet<PciAddress>,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    ovs_offload: bool,
}

/// Field names of a node state spec that have capital letters.
const FIELD_NAMES: [&str; 21] = [
    "datapathType",
    "deviceType",
    "eSwitchMode",
    "externalIDs",
    "externallyManaged",
    "failMode",
    "isRdma",
    "linkType",
    "mtuRequest",
    "numVfs",
    "otherConfig",
    "overrideHostProtection",
    "pciAddress",
    "policyName",
    "rdmaMode",
    "resourceName",
    "vdpaType",
    "vfGroups",
    "vfRange",
    "vlanFiltering",
    "vlanProtocol",
];

/// Fields whose values are maps with user-defined keys.
const USER_MAPS: [&str; 4] = ["externalIDs", "otherConfig", "options", "uplink"];

/// Returns the content of the config file. The same config always gives the same text.
pub fn config_text(config: &BootConfig) -> String {
    // Serializing plain data cannot fail. If it did, the units would refuse the config and change nothing.
    let spec = serde_json::to_value(&config.spec).unwrap_or_default();
    // Without bridges the units do not use Open vSwitch. Its settings are left out then, so that the text is the one
    // that earlier versions wrote.
    let bridges = config.settings.options.manage_bridges;
    let socket = if bridges { socket_path(&config.settings.ovsdb_socket) } else { "" };
    let text = json!({
        "spec": renamed(spec, &|name| if FIELD_NAMES.contains(&name) { name.to_lowercase() } else { name.to_owned() }),
        "unsupportedNics": false,
        // 0 is bare metal. Which cloud it is does not matter at boot, only that VFs have no PF.
        "platformType": i32::from(config.settings.has_lone_vfs),
        "manageSoftwareBridges": bridges,
        "ovsdbSocketPath": socket,
        "vfleet": VfleetSettings::from(config),
    });
    escape_non_ascii(&format!("{text:#}\n"))
}

/// Returns the config of a parsed file. Files of the Go daemon have no [`VfleetSettings`].
pub fn read_config(mut config: Value) -> Result<BootConfig, serde_json::Error> {
    let mut take = |key: &str| config.get_mut(key).map(Value::take).unwrap_or_default();
    let mut spec: SriovNetworkNodeStateSpec = serde_json::from_value(api_names(take("spec")))?;
    // Go writes an empty list as null.
    spec.interfaces.get_or_insert_default();
    let vfleet: Option<VfleetSettings> = serde_json::from_value(take("vfleet"))?;
    let platform: Option<i64> = serde_json::from_value(take("platformType"))?;
    let vfleet = vfleet.unwrap_or_default();
    let manage_bridges: Option<bool> = serde_json::from_value(take("manageSoftwareBridges"))?;
    let manage_bridges = manage_bridges.unwrap_or_default();
    let socket: Option<String> = serde_json::from_value(take("ovsdbSocketPath"))?;
    let socket = socket.map(|text| socket_path(&text).to_owned());
    // As in `config_text`: the units do not use Open vSwitch without bridges.
    let socket = socket.filter(|path| manage_bridges && !path.is_empty());
    let options = NodeOptions {
        firmware_reset: vfleet.firmware_reset,
        mellanox: vfleet.mellanox,
        manage_bridges,
        ovs_offload: manage_bridges && vfleet.ovs_offload,
    };
    let settings = NodeSettings {
        options,
        one_card_at_a_time: vfleet.one_card_at_a_time,
        has_lone_vfs: platform.is_some_and(|platform| platform != 0),
        node_addresses: vfleet.node_addresses,
        ovsdb_socket: socket.unwrap_or_else(|| OVSDB_SOCKET.to_owned()),
    };
    Ok(BootConfig { spec, settings, in_use: vfleet.in_use, kept_bridges: vfleet.kept_bridges })
}

impl From<&BootConfig> for VfleetSettings {
    fn from(config: &BootConfig) -> Self {
        let NodeSettings { options, one_card_at_a_time, node_addresses, .. } = config.settings.clone();
        let NodeOptions { firmware_reset, mellanox, manage_bridges, ovs_offload } = options;
        Self {
            firmware_reset,
            mellanox,
            one_card_at_a_time,
            node_addresses,
            in_use: config.in_use.clone(),
            kept_bridges: config.kept_bridges.clone(),
            ovs_offload: manage_bridges && ovs_offload,
        }
    }
}

impl Default for VfleetSettings {
    fn default() -> Self {
        Self::from(&BootConfig::default())
    }
}

/// Returns the path of a socket. The Go daemon writes it as a URL.
fn socket_path(socket: &str) -> &str {
    let path = socket.strip_prefix("unix:").unwrap_or(socket);
    path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path)
}

/// Returns the spec with the field names of the API, which may be in any case.
fn api_names(spec: Value) -> Value {
    let api_name =
        |name: &str| FIELD_NAMES.iter().find(|api_name| api_name.eq_ignore_ascii_case(name)).copied();
    renamed(spec, &|name| api_name(name).unwrap_or(name).to_owned())
}

/// Returns the value with fields renamed, and without empty fields, since Go writes fields that were not set.
fn renamed(value: Value, name: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let is_set = |value: &Value| !value.is_null() && value.as_str() != Some("");
            let fields = fields.into_iter().filter(|(_, value)| is_set(value)).map(|(key, value)| {
                let is_user_map = USER_MAPS.iter().any(|field| field.eq_ignore_ascii_case(&key));
                (name(&key), if is_user_map { value } else { renamed(value, name) })
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(|item| renamed(item, name)).collect(),
        other => other,
    }
}

/// Returns JSON with all other characters escaped: YAML does not allow all of them.
pub(super) fn escape_non_ascii(json: &str) -> String {
    let mut text = String::new();
    for letter in json.chars() {
        if letter.is_ascii() && letter != '\u{7f}' {
            text.push(letter);
        } else {
            let mut units = [0; 2];
            text.extend(letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

#[cfg(test)]
mod tests;
