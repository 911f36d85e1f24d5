use serde_json::{Value, json};

use super::*;
use crate::cni::protocol::{Command, ErrorCode};

const GUIDS: [&str; 3] = ["02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:02", "02:00:00:00:00:00:00:03"];

fn parse(keys: &Value) -> Result<InfinibandConfig, CniError> {
    let mut value = json!({ "name": "fast", "type": "ib-sriov", "deviceID": "0000:3b:02.1" });
    value.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let network = NetworkConfig::parse(Command::Add, value.to_string().as_bytes()).unwrap();
    InfinibandConfig::parse(&network, &CniArgs::default())
}

fn guid(at: usize) -> Guid {
    GUIDS[at].parse().unwrap()
}

#[test]
fn a_full_configuration_is_parsed() {
    let config = parse(&json!({
        "pkey": "0x7fff", "link_state": "disable", "rdmaIsolation": true, "ibKubernetesEnabled": true,
        "vfioPciMode": true, "runtimeConfig": { "infinibandGUID": GUIDS[0] }, "ipam": { "type": "whereabouts" },
        "args": { "cni": { "mellanox.infiniband.app": "configured", "other": 5, "guid": null } }
    }));
    let expected = InfinibandConfig {
        device: "0000:3b:02.1".parse().unwrap(),
        guid: Some(guid(0)),
        pkey: Some("0x7fff".to_owned()),
        link_state: Some(LinkState::Disable),
        rdma_isolation: true,
        ib_kubernetes: true,
        vfio: true,
        log: LogSettings::default(),
    };
    assert_eq!(config, Ok(expected));
}

#[test]
fn everything_but_the_device_is_optional() {
    for keys in [
        json!({}),
        json!({ "args": null, "guid": "", "runtimeConfig": {} }),
        json!({ "args": { "cni": {} } }),
    ] {
        let config = parse(&keys).unwrap();
        assert_eq!((config.guid, config.pkey, config.link_state), (None, None, None));
        assert!(!config.rdma_isolation && !config.ib_kubernetes && !config.vfio);
    }
}

#[test]
fn the_runtime_chooses_the_guid_before_the_pod_and_the_network() {
    let runtime = json!({ "InfinibandGuid": GUIDS[0] });
    let pod = json!({ "cni": { "guid": GUIDS[1] } });
    let all = json!({ "runtimeConfig": runtime, "args": pod, "guid": GUIDS[2] });
    assert_eq!(parse(&all).unwrap().guid, Some(guid(0)));
    assert_eq!(parse(&json!({ "args": pod, "guid": GUIDS[2] })).unwrap().guid, Some(guid(1)));
    assert_eq!(parse(&json!({ "guid": GUIDS[2] })).unwrap().guid, Some(guid(2)));
    let in_capitals = json!({ "args": { "cni": { "GUID": GUIDS[1] } } });
    assert_eq!(parse(&in_capitals).unwrap().guid, None, "keys of args.cni are case sensitive");
}

#[test]
fn faulty_values_are_named() {
    for (keys, message) in [
        (json!({ "deviceID": "" }), "deviceID: is missing"),
        (json!({ "guid": "00:00:00:00:00:00:00:00" }), "guid: a GUID must not be zero"),
        (json!({ "guid": "02:00:00:00:00:00:01" }), "guid: \"02:00:00:00:00:00:01\""),
        (json!({ "guid": "0200:0000:00aa:0002" }), "guid: \"0200:0000:00aa:0002\""),
        (json!({ "guid": 5 }), "guid: is a number"),
        (json!({ "args": { "cni": { "guid": 5 } } }), "args.cni.guid: is a number"),
        (json!({ "args": { "cni": { "guid": "x" } } }), "args.cni.guid: \"x\""),
        (json!({ "args": { "cni": [] } }), "args.cni: is a list"),
        (json!({ "args": "x" }), "args: is a string"),
        (json!({ "runtimeConfig": { "infinibandGUID": "x" } }), "runtimeConfig.infinibandGUID: \"x\""),
        (json!({ "runtimeConfig": { "infinibandGUID": {} } }), "runtimeConfig.infinibandGUID: is an object"),
        (json!({ "ipam": { "type": "dhcp" } }), "ipam.type: dhcp"),
        (json!({ "link_state": "on" }), "link_state: \"on\""),
        (json!({ "rdmaIsolation": "true" }), "rdmaIsolation: is a string"),
        (json!({ "vfioPciMode": 1 }), "vfioPciMode: is a number"),
        (json!({ "pkey": 5 }), "pkey: is a number"),
        (json!({ "logLevel": "x" }), "logLevel: \"x\""),
        (json!({ "ibKubernetesEnabled": true }), "args.cni.mellanox.infiniband.app: is missing"),
        (
            json!({ "ibKubernetesEnabled": true, "args": { "cni": { "mellanox.infiniband.app": "yes" } } }),
            "args.cni.mellanox.infiniband.app: \"yes\"",
        ),
        (
            json!({ "ibKubernetesEnabled": true, "args": { "cni": { "mellanox.infiniband.app": true } } }),
            "args.cni.mellanox.infiniband.app: is a boolean",
        ),
    ] {
        let error = parse(&keys).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig, "{keys}");
        assert!(error.message.starts_with(message), "{keys}: {error}");
    }
}

#[test]
fn dhcp_is_refused_for_del_too() {
    let stdin = br#"{"name": "fast", "ipam": {"type": "dhcp"}}"#;
    let network = NetworkConfig::parse(Command::Del, stdin).unwrap();
    assert!(InfinibandConfig::check_ipam(&network).unwrap_err().message.starts_with("ipam.type: dhcp"));
}
