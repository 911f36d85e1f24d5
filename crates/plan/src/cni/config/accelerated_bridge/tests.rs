use serde_json::{Value, json};

use super::*;
use crate::cni::protocol::{Command, ErrorCode};

const MAC: &str = "02:00:00:00:00:01";

fn parse(keys: &Value) -> Result<AcceleratedBridgeConfig, CniError> {
    let mut value = json!({ "name": "net", "type": "accelerated-bridge", "deviceID": "0000:3b:02.1" });
    value.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let network = NetworkConfig::parse(Command::Add, value.to_string().as_bytes()).unwrap();
    AcceleratedBridgeConfig::parse(&network, &CniArgs::default())
}

#[test]
fn a_full_configuration_is_parsed() {
    let config = parse(&json!({
        "Bridge": "br1", "vlan": 100, "trunk": [{ "minID": 5, "maxID": 6 }], "SetUplinkVlan": true, "mac": MAC,
        "mtu": 9000, "debug": true, "runtimeConfig": { "CNIDeviceInfoFile": "/run/info" }
    }));
    let expected = AcceleratedBridgeConfig {
        device: "0000:3b:02.1".parse().unwrap(),
        bridge: BridgeChoice::Named("br1".to_owned()),
        vlan: 100,
        trunk: [5, 6].into(),
        sets_uplink_vlans: true,
        mac: Some(MAC.parse().unwrap()),
        mtu: Some(9000),
        device_info: Some("/run/info".to_owned()),
        log: LogSettings { level: LogLevel::Debug, file: None },
    };
    assert_eq!(config, Ok(expected));
}

#[test]
fn empty_values_are_defaults() {
    for keys in [
        json!({}),
        json!({ "bridge": null, "vlan": null, "trunk": null, "setUplinkVlan": null, "debug": null }),
        json!({ "bridge": "", "vlan": 0, "trunk": [], "mtu": 0, "mac": "", "setUplinkVlan": false, "debug": false }),
    ] {
        let expected = AcceleratedBridgeConfig {
            device: "0000:3b:02.1".parse().unwrap(),
            bridge: BridgeChoice::Found,
            vlan: 0,
            trunk: BTreeSet::new(),
            sets_uplink_vlans: false,
            mac: None,
            mtu: None,
            device_info: None,
            log: LogSettings::default(),
        };
        assert_eq!(parse(&keys).unwrap(), expected, "{keys}");
    }
}

#[test]
fn a_list_of_bridges_is_split() {
    for (text, names) in [("br1,br2", vec!["br1", "br2"]), (" br1 ,\tbr2, br1", vec!["br1", "br2", "br1"])] {
        let names = names.into_iter().map(ToOwned::to_owned).collect();
        assert_eq!(parse(&json!({ "bridge": text })).unwrap().bridge, BridgeChoice::FoundAmong(names));
    }
    for text in [" br1", "br1 "] {
        let bridge = parse(&json!({ "bridge": text })).unwrap().bridge;
        assert_eq!(bridge, BridgeChoice::Named("br1".to_owned()));
    }
    for text in [",", "br1,", ",br1", "br1,,br2", "br1, ", " "] {
        let error = parse(&json!({ "bridge": text })).unwrap_err();
        assert!(error.message.starts_with("bridge: ") && error.message.ends_with("has an empty name"));
    }
}

#[test]
fn the_mac_of_the_runtime_comes_first() {
    let other = "02:00:00:00:00:02";
    let config = parse(&json!({ "mac": MAC, "runtimeConfig": { "mac": other } })).unwrap();
    assert_eq!(config.mac, Some(other.parse().unwrap()));
}

#[test]
fn faulty_values_are_named() {
    for (keys, message) in [
        (json!({ "deviceID": null }), "deviceID: is missing"),
        (json!({ "deviceID": "x" }), "deviceID: \"x\""),
        (json!({ "bridge": ["br1"] }), "bridge: is a list"),
        (json!({ "vlan": 4095 }), "vlan: 4095 is not in the range 0 to 4094"),
        (json!({ "trunk": [{ "id": 0 }] }), "trunk[0].id: 0 is not in the range 1 to 4094"),
        (json!({ "trunk": [{ "minID": 4000, "maxID": 4095 }] }), "trunk[0].maxID: 4095"),
        (json!({ "setUplinkVlan": "true" }), "setUplinkVlan: is a string"),
        (json!({ "mtu": 10 }), "mtu: 10"),
        (json!({ "mac": "x" }), "mac: \"x\""),
        (json!({ "debug": 1 }), "debug: is a number"),
        (json!({ "runtimeConfig": { "CNIDeviceInfoFile": {} } }), "runtimeConfig.CNIDeviceInfoFile: is"),
    ] {
        let error = parse(&keys).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig, "{keys}");
        assert!(error.message.starts_with(message), "{keys}: {error}");
    }
}
