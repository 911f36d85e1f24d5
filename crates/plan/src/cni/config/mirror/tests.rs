use serde_json::{Value, json};

use super::*;
use crate::cni::facts::FileFacts;
use crate::cni::protocol::{Command, ErrorCode};

const BOTH: MirrorRole = MirrorRole::Source { ingress: true, egress: true };

fn parse_with(is_producer: bool, keys: &Value, file: Option<&str>) -> Result<MirrorConfig, CniError> {
    let mut value = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "ovs-mirror", "bridge": "br1",
        "mirrors": [{ "name": "m1", "ingress": true, "egress": true }],
        "prevResult": { "cniVersion": "1.0.0", "interfaces": [{ "name": "veth1" }, { "name": "net1" }] }
    });
    value.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let network = NetworkConfig::parse(Command::Add, value.to_string().as_bytes()).unwrap();
    let file = file.and_then(|content| {
        let facts = FileFacts::Present { path: "/etc/ovs.conf".to_owned(), content: content.to_owned() };
        OvsFlatFile::parse(&facts).unwrap()
    });
    MirrorConfig::parse(is_producer, &network, &CniArgs::default(), file.as_ref())
}

fn mirrors(is_producer: bool, mirrors: &Value) -> Vec<(String, MirrorRole)> {
    parse_with(is_producer, &json!({ "mirrors": mirrors }), None).unwrap().mirrors.into_iter().collect()
}

#[test]
fn a_producer_and_a_consumer_are_parsed() {
    for (is_producer, role) in [(true, BOTH), (false, MirrorRole::Output)] {
        let expected = MirrorConfig {
            bridge: "br1".to_owned(),
            mirrors: [("m1".to_owned(), role)].into(),
            interfaces: vec!["veth1".to_owned(), "net1".to_owned()],
            socket: OvsSocket::default(),
            log: LogSettings::default(),
        };
        assert_eq!(parse_with(is_producer, &json!({}), None), Ok(expected));
    }
}

#[test]
fn directions_are_those_of_the_switch() {
    let listed = mirrors(true, &json!([{ "name": "a", "ingress": true }, { "NAME": "b", "Egress": true }]));
    let source = |ingress, egress| MirrorRole::Source { ingress, egress };
    assert_eq!(listed, [("a".to_owned(), source(true, false)), ("b".to_owned(), source(false, true))]);
    let twice = json!([{ "name": "a", "ingress": true }, { "name": "a", "egress": true }]);
    assert_eq!(mirrors(true, &twice), [("a".to_owned(), BOTH)]);
    assert_eq!(mirrors(false, &twice), [("a".to_owned(), MirrorRole::Output)]);
}

#[test]
fn a_file_gives_bridge_and_socket() {
    let file = r#"{"bridge": "br-file", "socket_file": "/run/file.sock"}"#;
    let config = parse_with(true, &json!({ "bridge": "" }), Some(file)).unwrap();
    assert_eq!(
        (config.bridge.as_str(), config.socket.to_string().as_str()),
        ("br-file", "unix:/run/file.sock")
    );
    assert_eq!(parse_with(true, &json!({}), Some(file)).unwrap().bridge, "br1");
}

#[test]
fn faulty_values_are_named() {
    for (keys, message) in [
        (json!({ "prevResult": null }), "prevResult: is missing"),
        (json!({ "bridge": null }), "bridge: is missing"),
        (json!({ "mirrors": null }), "mirrors: has no mirror"),
        (json!({ "mirrors": [] }), "mirrors: has no mirror"),
        (json!({ "mirrors": "m1" }), "mirrors: is a string"),
        (json!({ "mirrors": [{ "ingress": true }] }), "mirrors[0].name: is missing"),
        (json!({ "mirrors": [{ "name": "", "ingress": true }] }), "mirrors[0].name: is missing"),
        (json!({ "mirrors": [{ "name": "a" }] }), "mirrors[0].ingress: neither ingress nor egress is true"),
        (json!({ "mirrors": [{ "name": "a", "ingress": "on" }] }), "mirrors[0].ingress: is a string"),
        (json!({ "socket_file": "ssl:a:1" }), "socket_file: "),
    ] {
        let error = parse_with(true, &keys, None).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig, "{keys}");
        assert!(error.message.starts_with(message), "{keys}: {error}");
    }
}
