use crate::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cni::protocol::{Command, ErrorCode};

fn parse(keys: &Value) -> Result<RdmaConfig, CniError> {
    let mut value = json!({ "name": "fast", "type": "rdma", "deviceID": "0000:3b:02.1", "prevResult": {} });
    value.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let network = NetworkConfig::parse(Command::Add, value.to_string().as_bytes()).unwrap();
    RdmaConfig::parse(&network, &CniArgs::default())
}

#[test]
fn the_device_is_parsed() {
    let config = parse(&json!({})).unwrap();
    assert_eq!(config.device.to_string(), "0000:3b:02.1");
    assert_eq!(config.log.level, LogLevel::Info);
}

#[test]
fn debugging_is_an_argument_of_the_pod() {
    for (debug, level) in [(json!(true), LogLevel::Debug), (json!(false), LogLevel::Info)] {
        let config = parse(&json!({ "args": { "CNI": { "Debug": debug, "other": 5 } } })).unwrap();
        assert_eq!(config.log.level, level);
    }
}

#[test]
fn faulty_values_are_named() {
    for (keys, message) in [
        (json!({ "prevResult": null }), "prevResult: is missing"),
        (json!({ "deviceID": null }), "deviceID: is missing"),
        (json!({ "deviceID": "x" }), "deviceID: \"x\""),
        (json!({ "args": { "cni": { "debug": "true" } } }), "args.cni.debug: is a string"),
    ] {
        let error = parse(&keys).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig, "{keys}");
        assert!(error.message.starts_with(message), "{keys}: {error}");
    }
}
