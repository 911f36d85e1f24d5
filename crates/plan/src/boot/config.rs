//! The config of the units, in the form of the Go daemon: names inside `spec` are in lower case, since its YAML library
//! writes Go's field names so. Names as in the API are read as well.

use serde_json::{Map, Value, json};
use vfleet_api::SriovNetworkNodeStateSpec;

use crate::prelude::*;

/// Names in a node state's spec that have capital letters.
const NAMES: [&str; 20] = [
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

/// The text of the config that says `spec`: always the same for the same spec.
pub fn config_text(spec: &SriovNetworkNodeStateSpec) -> String {
    // Plain data always has a JSON form. If it had none, the units would refuse the config and change nothing.
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let config = json!({
        "spec": renamed(spec, &|name| if NAMES.contains(&name) { name.to_lowercase() } else { name.to_owned() }),
        "unsupportedNics": false,
        "platformType": 0,
        "manageSoftwareBridges": false,
        "ovsdbSocketPath": "",
    });
    lines(&config, 0).join("\n") + "\n"
}

/// The spec in a config, which is read as YAML already.
pub fn config_spec(mut config: Value) -> Result<SriovNetworkNodeStateSpec, serde_json::Error> {
    let spec = config.get_mut("spec").map(Value::take).unwrap_or_default();
    let mut spec: SriovNetworkNodeStateSpec = serde_json::from_value(api_names(spec))?;
    // Go writes an empty list as none at all, and means that nothing is wanted.
    spec.interfaces.get_or_insert_default();
    Ok(spec)
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
