//! Files of systemd mode: any content is read or refused, and written content is read back.

use std::path::{Path, PathBuf};

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::boot::{BootConfig, NodeSettings, config_text, read_config};
use vfleet_plan::{BootResult, HostUse, NodeOptions};

/// Returns non-empty texts, often with a special meaning in YAML.
fn text() -> impl Strategy<Value = String> {
    let tricky = vec![
        "yes", "null", "~", "1", "0x1f", "- a", "a: b", "a #b", "'", "\"", "{}", "&a", "*a", "!a", "%", "@",
        "\u{85}", "\u{2028}", "\u{7f}", "\u{feff}", "a\nb", "\t", " a ", "---", "😀",
    ];
    prop_oneof![prop::sample::select(tricky).prop_map(str::to_owned), any::<String>(), "[a-z: #-]{1,9}"]
        .prop_filter("empty texts are left out", |text| !text.is_empty())
}

fn pairs() -> impl Strategy<Value = Value> {
    btree_map(prop_oneof![any::<String>(), "[a-zA-Z: #-]{0,5}"], any::<String>(), 0..3)
        .prop_map(|pairs| json!(pairs))
}

fn group() -> impl Strategy<Value = Value> {
    (text(), text(), text(), any::<i64>(), any::<bool>()).prop_map(|(resource, range, policy, mtu, rdma)| {
        json!({"resourceName": resource, "vfRange": range, "policyName": policy, "mtu": mtu, "isRdma": rdma})
    })
}

fn interface() -> impl Strategy<Value = Value> {
    (text(), option::of(text()), any::<i64>(), option::of(any::<bool>()), vec(group(), 0..3)).prop_map(
        |(address, name, num_vfs, external, groups)| {
            json!({"pciAddress": address, "name": name, "numVfs": num_vfs, "externallyManaged": external,
                "eSwitchMode": name, "vfGroups": groups})
        },
    )
}

fn bridge() -> impl Strategy<Value = Value> {
    (text(), pairs(), pairs(), any::<i64>()).prop_map(|(name, ids, others, mtu)| {
        json!({"name": name, "bridge": {"externalIDs": ids, "otherConfig": others}, "uplinks": [
            {"pciAddress": name, "interface": {"options": others, "externalIDs": ids, "mtuRequest": mtu}}]})
    })
}

fn spec() -> impl Strategy<Value = SriovNetworkNodeStateSpec> {
    (vec(interface(), 0..3), option::of(vec(bridge(), 0..3)), any::<bool>()).prop_map(
        |(interfaces, ovs, shared)| {
            let mode = if shared { "shared" } else { "exclusive" };
            let bridges = ovs.map(|ovs| json!({"ovs": ovs}));
            let spec = json!({"interfaces": interfaces, "bridges": bridges, "system": {"rdmaMode": mode}});
            serde_json::from_value(spec).unwrap()
        },
    )
}

fn settings() -> impl Strategy<Value = NodeSettings> {
    (any::<[bool; 4]>(), vec(any::<std::net::IpAddr>(), 0..3)).prop_map(
        |([firmware_reset, mellanox, one_card_at_a_time, has_lone_vfs], node_addresses)| NodeSettings {
            options: NodeOptions { firmware_reset, mellanox, ..NodeOptions::default() },
            one_card_at_a_time,
            has_lone_vfs,
            node_addresses,
            ..NodeSettings::default()
        },
    )
}

/// Returns the folder of files that the code of the Go operator has written.
fn go_daemon() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/tests/go_daemon")
}

fn read<T: serde::de::DeserializeOwned>(file: &Path) -> T {
    serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Returns the value without empty fields: YAML of the Go daemon has every field, JSON of the Go operator only set
/// ones.
fn without_empty(value: Value) -> Value {
    let is_set = |value: &Value| {
        ![json!(null), json!(0), json!(false), json!(""), json!([]), json!({})].contains(value)
    };
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, without_empty(value)))
            .filter(|(_, value)| is_set(value))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_empty).collect(),
        other => other,
    }
}

#[test]
fn a_config_of_the_go_daemon_has_the_spec_of_the_go_operator() {
    let mut nodes = 0;
    for entry in std::fs::read_dir(go_daemon()).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let config = read_config(read(&folder.join("config.yaml"))).unwrap();
        let found = without_empty(serde_json::to_value(&config.spec).unwrap());
        assert_eq!(found, without_empty(read(&folder.join("spec.json"))), "{}", folder.display());
        let text = std::fs::read_to_string(folder.join("config.yaml")).unwrap();
        let manage_bridges = text.contains("manageSoftwareBridges: true");
        let options = NodeOptions { manage_bridges, ..NodeSettings::default().options };
        assert_eq!(config.settings, NodeSettings { options, ..NodeSettings::default() });
        nodes += 1;
    }
    assert!(nodes > 0);
}

#[test]
fn results_of_the_go_daemon_are_read() {
    let found = |status: &str| read::<BootResult>(&go_daemon().join(format!("result-{status}.yaml")));
    assert_eq!(found("Succeeded"), BootResult::succeeded());
    assert_eq!(found("InProgress"), BootResult::in_progress());
    let error = "pre: ens1f0: device or resource busy\nno \"ens1f1\"";
    assert_eq!(found("Failed"), BootResult::failed(error));
}

proptest! {
    #![proptest_config(crate::config(500))]

    #[test]
    fn a_config_is_read_back(spec in spec(), settings in settings(), is_in_use: bool) {
        let in_use = is_in_use.then(|| ("0000:3b:00.0".parse().unwrap(), HostUse::NodeAddress));
        let kept_bridges = in_use.iter().map(|(pf, _)| *pf).collect();
        let config = BootConfig { spec, settings, in_use: in_use.into_iter().collect(), kept_bridges };
        let text = config_text(&config);
        prop_assert_eq!(&text, &config_text(&config), "always the same");
        let read: Value = serde_saphyr::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(read_config(read).unwrap(), config, "{}", text);
    }

    #[test]
    fn a_result_is_read_back(error in prop_oneof![any::<String>(), text()]) {
        for result in [BootResult::failed(error.clone()), BootResult::succeeded(), BootResult::in_progress()] {
            let text = result.file().text;
            prop_assert_eq!(text.lines().count(), 2);
            let read: BootResult =
                serde_saphyr::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(read, result);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in r"(spec|interfaces|numvfs|syncStatus|lastSyncError|: |- |\n|  |\PC){0,40}") {
        let _ = serde_saphyr::from_str::<BootResult>(&text);
        if let Ok(config) = serde_saphyr::from_str::<Value>(&text) {
            let _ = read_config(config);
        }
    }

    /// Field names of the API with values of any kind.
    #[test]
    fn any_config_is_read_or_refused(
        name in prop::sample::select(vec!["interfaces", "numvfs", "numVfs", "vfgroups", "system", "bridges", "x"]),
        value in prop_oneof![Just(json!(null)), any::<i64>().prop_map(Value::from), any::<String>().prop_map(Value::from),
            Just(json!([])), Just(json!([{"pciaddress": 1}])), Just(json!({"vfgroups": {}}))],
        is_list in any::<bool>(),
    ) {
        let inner = json!({ (name): value });
        let spec = if is_list { json!({"interfaces": [inner]}) } else { inner };
        let _ = (read_config(json!({"spec": spec})), read_config(spec));
    }
}
