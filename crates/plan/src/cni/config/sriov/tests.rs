use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cni::config::LogLevel;
use crate::cni::facts::{LinkState, VfVlan, VlanProtocol};
use crate::cni::protocol::Command;

const MACS: [&str; 3] = ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"];

fn parse_with(keys: &Value, args: &CniArgs) -> Result<SriovConfig, CniError> {
    let mut value = json!({ "name": "fast", "type": "sriov", "deviceID": "0000:3b:02.1" });
    value.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let network = NetworkConfig::parse(Command::Add, value.to_string().as_bytes()).unwrap();
    SriovConfig::parse(&network, args)
}

fn parse(keys: &Value) -> Result<SriovConfig, CniError> {
    parse_with(keys, &CniArgs::default())
}

fn mac(at: usize) -> MacAddr {
    MACS[at].parse().unwrap()
}

#[test]
fn a_full_configuration_is_parsed() {
    let config = parse(&json!({
        "vlan": 100, "vlanQoS": 3, "vlanProto": "802.1AD", "mac": MACS[0], "spoofchk": "on", "trust": "off",
        "link_state": "enable", "min_tx_rate": 10, "max_tx_rate": 100, "mtu": 9000,
        "logLevel": "Verbose", "logFile": "/var/log/sriov.log"
    }));
    let settings = VfSettings {
        mac: Some(mac(0)),
        vlan: Some(VfVlan { id: 100, qos: 3, protocol: VlanProtocol::Ieee8021ad }),
        spoof_check: Some(true),
        trust: Some(false),
        min_tx_rate: Some(10),
        max_tx_rate: Some(100),
        link_state: Some(LinkState::Enable),
        node_guid: None,
        port_guid: None,
    };
    let expected = SriovConfig {
        device: "0000:3b:02.1".parse().unwrap(),
        settings,
        has_rate: (true, true),
        mac: Some(mac(0)),
        mtu: Some(9000),
        log: LogSettings { level: LogLevel::Debug, file: Some("/var/log/sriov.log".to_owned()) },
    };
    assert_eq!(config, Ok(expected));
}

#[test]
fn nothing_is_set_by_default() {
    for keys in [
        json!({}),
        json!({ "vlan": null, "vlanQoS": null, "vlanProto": null, "mac": null, "mtu": null, "trust": null }),
        json!({ "mac": "", "spoofchk": "", "trust": "", "link_state": "", "runtimeConfig": {}, "mtu": 0 }),
    ] {
        let config = parse(&keys).unwrap();
        assert_eq!((config.settings, config.mac, config.mtu), (VfSettings::default(), None, None));
        assert_eq!((config.has_rate, config.log), ((false, false), LogSettings::default()));
    }
}

#[test]
fn an_explicit_vlan_has_qos_and_protocol() {
    for (keys, id, qos) in [(json!({ "vlan": 0 }), 0, 0), (json!({ "VLAN": 4094, "vlanqos": 7 }), 4094, 7)] {
        let vlan = VfVlan { id, qos, protocol: VlanProtocol::Ieee8021q };
        assert_eq!(parse(&keys).unwrap().settings.vlan, Some(vlan));
    }
    let explicit = json!({ "vlan": 0, "vlanQoS": 0, "vlanProto": "802.1Q" });
    assert_eq!(parse(&explicit).unwrap().settings.vlan, Some(VfVlan::default()));
}

#[test]
fn only_configured_rates_are_set() {
    for (keys, rates) in [
        (json!({ "min_tx_rate": 5 }), (Some(5), None)),
        (json!({ "max_tx_rate": 0 }), (None, Some(0))),
        (json!({ "min_tx_rate": 5, "max_tx_rate": 0 }), (Some(5), Some(0))),
        (json!({ "min_tx_rate": 5, "max_tx_rate": 5 }), (Some(5), Some(5))),
        (json!({ "max_tx_rate": u32::MAX }), (None, Some(u32::MAX))),
    ] {
        let config = parse(&keys).unwrap();
        assert_eq!((config.settings.min_tx_rate, config.settings.max_tx_rate), rates);
        assert_eq!(config.has_rate, (rates.0.is_some(), rates.1.is_some()));
    }
}

#[test]
fn the_runtime_chooses_the_mac_before_the_arguments_and_the_network() {
    let args = |mac: &str| CniArgs { mac: Some(mac.to_owned()), ..CniArgs::default() };
    let all = json!({ "mac": MACS[0], "runtimeConfig": { "MAC": MACS[2] } });
    assert_eq!(parse_with(&all, &args(MACS[1])).unwrap().mac, Some(mac(2)));
    let network = json!({ "MAC": MACS[0].to_uppercase() });
    assert_eq!(parse_with(&network, &args(MACS[1])).unwrap().mac, Some(mac(1)));
    assert_eq!(parse(&network).unwrap().mac, Some(mac(0)));
    assert_eq!(parse(&network).unwrap().settings.mac, Some(mac(0)));
    assert_eq!(parse_with(&json!({ "mac": "faulty" }), &args(MACS[1])).unwrap().mac, Some(mac(1)));
}

#[test]
fn an_invalid_mac_of_the_arguments_is_an_error_of_the_environment() {
    let args = CniArgs { mac: Some("x".to_owned()), ..CniArgs::default() };
    let error = parse_with(&json!({}), &args).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidEnvironment);
    assert!(error.message.starts_with("CNI_ARGS: MAC: \"x\""), "{error}");
}

#[test]
fn faulty_values_are_named() {
    for (keys, message) in [
        (json!({ "deviceID": "" }), "deviceID: is missing"),
        (json!({ "deviceID": null }), "deviceID: is missing"),
        (json!({ "deviceID": "3b:02.1" }), "deviceID: \"3b:02.1\""),
        (json!({ "deviceID": 5 }), "deviceID: is a number"),
        (json!({ "vlan": 4095 }), "vlan: 4095 is not in the range 0 to 4094"),
        (json!({ "vlan": -1 }), "vlan: -1"),
        (json!({ "vlan": "100" }), "vlan: is a string"),
        (json!({ "vlan": 1.5 }), "vlan: is the number 1.5"),
        (json!({ "vlan": 1, "vlanQoS": 8 }), "vlanQoS: 8 is not in the range 0 to 7"),
        (json!({ "vlanQoS": 0 }), "vlanQoS: needs vlan"),
        (json!({ "vlan": 0, "vlanQoS": 1 }), "vlanQoS: 1 needs a vlan other than 0"),
        (json!({ "vlanProto": "802.1q" }), "vlanProto: needs vlan"),
        (json!({ "vlan": 1, "vlanProto": "" }), "vlanProto: \"\""),
        (json!({ "vlan": 1, "vlanProto": "qinq" }), "vlanProto: \"qinq\""),
        (json!({ "vlan": 0, "vlanProto": "802.1ad" }), "vlanProto: 802.1ad needs"),
        (json!({ "mac": "02-00-00-00-00-01" }), "mac: \"02-00-00-00-00-01\""),
        (json!({ "mac": "00:00:00:00:00:00" }), "mac: 00:00:00:00:00:00 is zero"),
        (json!({ "mac": "01:00:5e:00:00:01" }), "mac: 01:00:5e:00:00:01 is zero or an address of a group"),
        (json!({ "mac": 5 }), "mac: is a number"),
        (json!({ "runtimeConfig": { "mac": "x" }, "mac": MACS[0] }), "runtimeConfig.mac: \"x\""),
        (json!({ "runtimeConfig": [] }), "runtimeConfig: is a list"),
        (json!({ "spoofchk": "true" }), "spoofchk: \"true\" is neither on nor off"),
        (json!({ "spoofchk": "ON" }), "spoofchk: \"ON\""),
        (json!({ "spoofchk": true }), "spoofchk: is a boolean"),
        (json!({ "trust": "yes" }), "trust: \"yes\""),
        (json!({ "link_state": "up" }), "link_state: \"up\""),
        (json!({ "link_state": "Auto" }), "link_state: \"Auto\""),
        (json!({ "min_tx_rate": -1 }), "min_tx_rate: -1"),
        (json!({ "max_tx_rate": 4_294_967_296u64 }), "max_tx_rate: 4294967296"),
        (json!({ "min_tx_rate": 6, "max_tx_rate": 5 }), "min_tx_rate: 6 is higher than max_tx_rate 5"),
        (json!({ "mtu": 67 }), "mtu: 67"),
        (json!({ "mtu": 65536 }), "mtu: 65536"),
        (json!({ "logLevel": "loud" }), "logLevel: \"loud\""),
        (json!({ "logFile": 1 }), "logFile: is a number"),
    ] {
        let error = parse(&keys).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig, "{keys}");
        assert!(error.message.starts_with(message), "{keys}: {error}");
    }
}

#[test]
fn keys_of_other_plugins_are_ignored() {
    let config =
        parse(&json!({ "guid": 5, "pkey": [], "bridge": {}, "args": "x", "Master": 1, "VFID": "y" }));
    assert_eq!(config.unwrap().settings, VfSettings::default());
}

proptest! {
    #[test]
    fn any_value_of_a_key_is_accepted_or_refused(
        key in prop::sample::select(vec![
            "deviceID", "vlan", "vlanQoS", "vlanProto", "mac", "spoofchk", "trust", "link_state", "min_tx_rate",
            "max_tx_rate", "mtu", "runtimeConfig", "logLevel",
        ]),
        value in prop::sample::select(vec![
            "1", "-1", "1e300", "18446744073709551615", "\"\"", "\"on\"", "\"x\"", "null", "true", "[]", "{}",
            "{\"mac\": 1}", "{\"mac\": \"x\"}", "\"802.1ad\"", "\"0000:3b:02.1\"",
        ]),
    ) {
        let value: Value = serde_json::from_str(value).unwrap();
        if let Err(error) = parse(&json!({ key: value })) {
            prop_assert_eq!(error.code, ErrorCode::InvalidConfig);
            prop_assert!(error.message.starts_with(key), "{}", error);
        }
    }
}
