//! The config of the units, in the form of the Go daemon: names inside `spec` are in lower case, since its YAML library
//! writes Go's field names so. Names as in the API are read as well.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::facts::HostUse;
use crate::node::NodeOptions;
use crate::prelude::*;

/// What an agent was told about its node, as far as it decides what happens to the cards: it counts at boot as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSettings {
    /// What the node may do beyond the usual.
    pub options: NodeOptions,
    /// Finish one card before the next is begun.
    pub one_card_at_a_time: bool,
    /// Network cards that can have no VFs are VFs of a PF that is not on this machine, but in the cloud around it.
    pub has_lone_vfs: bool,
    /// The node's own addresses: the cards that carry them are in use by the node itself.
    pub node_addresses: Vec<IpAddr>,
}

/// What the units shall do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BootConfig {
    /// What the machine shall be like.
    pub spec: SriovNetworkNodeStateSpec,
    /// What else they are told.
    pub settings: NodeSettings,
    /// PFs that they leave as they are, since the node itself uses them. Agents of earlier versions wrote what they refused
    /// into the spec, and marked it here.
    pub in_use: BTreeMap<PciAddress, HostUse>,
}

/// What the Go daemon has no name for.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ours {
    firmware_reset: bool,
    mellanox: bool,
    one_card_at_a_time: bool,
    node_addresses: Vec<IpAddr>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    in_use: BTreeMap<PciAddress, HostUse>,
}

/// Names in a node state's spec that have capital letters.
const NAMES: [&str; 21] = [
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

/// Names whose values are pairs that somebody else named.
const PAIRS: [&str; 4] = ["externalIDs", "otherConfig", "options", "uplink"];

/// The text of the config that says this: always the same for the same.
pub fn config_text(config: &BootConfig) -> String {
    // Plain data always has a JSON form. If it had none, the units would refuse the config and change nothing.
    let spec = serde_json::to_value(&config.spec).unwrap_or_default();
    let text = json!({
        "spec": renamed(spec, &|name| if NAMES.contains(&name) { name.to_lowercase() } else { name.to_owned() }),
        "unsupportedNics": false,
        // 0 is hardware. The cloud itself is of no interest at boot, only that its VFs have no PF.
        "platformType": i32::from(config.settings.has_lone_vfs),
        "manageSoftwareBridges": false,
        "ovsdbSocketPath": "",
        "vfleet": Ours::from(config),
    });
    lines(&text, 0).join("\n") + "\n"
}

/// What a config says, which is read as YAML already. The Go daemon's says nothing of [`Ours`].
pub fn read_config(mut config: Value) -> Result<BootConfig, serde_json::Error> {
    let mut take = |key: &str| config.get_mut(key).map(Value::take).unwrap_or_default();
    let mut spec: SriovNetworkNodeStateSpec = serde_json::from_value(api_names(take("spec")))?;
    // Go writes an empty list as none at all, and means that nothing is wanted.
    spec.interfaces.get_or_insert_default();
    let ours: Option<Ours> = serde_json::from_value(take("vfleet"))?;
    let platform: Option<i64> = serde_json::from_value(take("platformType"))?;
    let ours = ours.unwrap_or_default();
    let options = NodeOptions { firmware_reset: ours.firmware_reset, mellanox: ours.mellanox };
    let settings = NodeSettings {
        options,
        one_card_at_a_time: ours.one_card_at_a_time,
        has_lone_vfs: platform.is_some_and(|platform| platform != 0),
        node_addresses: ours.node_addresses,
    };
    Ok(BootConfig { spec, settings, in_use: ours.in_use })
}

impl From<&BootConfig> for Ours {
    fn from(config: &BootConfig) -> Self {
        let NodeSettings { options, one_card_at_a_time, node_addresses, .. } = config.settings.clone();
        let NodeOptions { firmware_reset, mellanox } = options;
        Self { firmware_reset, mellanox, one_card_at_a_time, node_addresses, in_use: config.in_use.clone() }
    }
}

impl Default for Ours {
    fn default() -> Self {
        Self::from(&BootConfig::default())
    }
}

/// With the API's names, in whatever case they are written.
fn api_names(spec: Value) -> Value {
    let known = |name: &str| NAMES.iter().find(|known| known.eq_ignore_ascii_case(name)).copied();
    renamed(spec, &|name| known(name).unwrap_or(name).to_owned())
}

/// With other names, and without what is empty: Go writes what was not said as well.
fn renamed(value: Value, name: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let is_said = |value: &Value| !value.is_null() && value.as_str() != Some("");
            let fields = fields.into_iter().filter(|(_, value)| is_said(value)).map(|(key, value)| {
                let is_pairs = PAIRS.iter().any(|pairs| pairs.eq_ignore_ascii_case(&key));
                (name(&key), if is_pairs { value } else { renamed(value, name) })
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(|item| renamed(item, name)).collect(),
        other => other,
    }
}

/// As YAML, in blocks. What stands on one line is written as JSON, which is YAML.
fn lines(value: &Value, depth: usize) -> Vec<String> {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, value)| entry(&format!("{indent}{key}:"), value, depth)).collect()
        }
        Value::Array(items) => {
            items.iter().flat_map(|item| entry(&format!("{indent}-"), item, depth)).collect()
        }
        other => vec![format!("{indent}{}", one_line(other))],
    }
}

fn entry(start: &str, value: &Value, depth: usize) -> Vec<String> {
    let is_block = match value {
        Value::Object(fields) => !fields.is_empty() && fields.keys().all(|key| is_plain(key)),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if is_block {
        [vec![start.to_owned()], lines(value, depth + 1)].concat()
    } else {
        vec![format!("{start} {}", one_line(value))]
    }
}

/// Whether a name means itself in YAML: all of the API do, those that users give may be anything.
fn is_plain(name: &str) -> bool {
    let means_another = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    name.bytes().all(|byte| byte.is_ascii_alphabetic())
        && !name.is_empty()
        && !means_another.iter().any(|word| word.eq_ignore_ascii_case(name))
}

/// As JSON in ASCII: YAML does not take every letter as it is.
pub(super) fn one_line(value: &Value) -> String {
    let mut text = String::new();
    for letter in value.to_string().chars() {
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
