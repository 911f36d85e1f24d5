use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(command: Command, value: &Value) -> Result<NetworkConfig, CniError> {
    NetworkConfig::parse(command, value.to_string().as_bytes())
}

#[test]
fn the_common_part_is_parsed() {
    let value = json!({
        "cniVersion": "1.0.0", "name": "fast", "type": "sriov", "unknown": [1], "vlan": "faulty",
        "ipam": { "type": "host-local", "subnet": "192.0.2.0/24" },
        "prevResult": { "ips": [{ "address": "192.0.2.7/24" }] }
    });
    let config = parse(Command::Add, &value).unwrap();
    assert_eq!((config.version, config.name.as_str()), (CniVersion::V1_0_0, "fast"));
    assert_eq!((config.plugin_type.as_str(), &config.object), ("sriov", &value));
    assert_eq!(config.ipam, Some(IpamConfig { plugin: "host-local".to_owned() }));
    assert_eq!(config.previous.unwrap().ips.len(), 1);
}

#[test]
fn the_least_configuration_is_a_name() {
    let config = parse(Command::Del, &json!({ "NAME": "fast" })).unwrap();
    assert_eq!((config.version, config.name.as_str()), (CniVersion::V0_1_0, "fast"));
    assert_eq!((config.plugin_type.as_str(), config.ipam, config.previous), ("", None, None));
}

#[test]
fn errors_have_their_code_and_key() {
    use ErrorCode::{Decode, IncompatibleVersion, InvalidConfig};
    for (stdin, code, message) in [
        ("", Decode, "standard input is not JSON"),
        ("{", Decode, "standard input is not JSON"),
        ("{\"name\": \"a\"} x", Decode, "standard input is not JSON"),
        ("{\"name\": \"\\ud800\"}", Decode, "standard input is not JSON"),
        ("[]", Decode, "standard input is not a JSON object"),
        ("null", Decode, "standard input is not a JSON object"),
        ("{}", InvalidConfig, "name: is missing"),
        ("{\"name\": \"\"}", InvalidConfig, "name: is missing"),
        ("{\"name\": null}", InvalidConfig, "name: is missing"),
        ("{\"name\": 5}", InvalidConfig, "name: is a number"),
        ("{\"name\": \"a b\"}", InvalidConfig, "name: \"a b\" has"),
        ("{\"name\": \"../a\"}", InvalidConfig, "name: \"../a\" has"),
        ("{\"name\": \"_a\"}", InvalidConfig, "name: \"_a\" has"),
        ("{\"name\": \"a\", \"cniVersion\": 1}", InvalidConfig, "cniVersion: is a number"),
        ("{\"name\": \"a\", \"cniVersion\": \"9.9.9\"}", IncompatibleVersion, "cniVersion: \"9.9.9\""),
        ("{\"name\": \"a\", \"type\": {}}", InvalidConfig, "type: is an object"),
        ("{\"name\": \"a\", \"ipam\": []}", InvalidConfig, "ipam: is a list"),
        ("{\"name\": \"a\", \"ipam\": {\"type\": 1}}", InvalidConfig, "ipam.type: is a number"),
        ("{\"name\": \"a\", \"ipam\": {\"type\": \"\"}}", InvalidConfig, "ipam.type: is missing"),
        ("{\"name\": \"a\", \"ipam\": {\"subnet\": \"\"}}", InvalidConfig, "ipam.type: is missing"),
        ("{\"name\": \"a\", \"ipam\": {\"type\": \"../a\"}}", InvalidConfig, "ipam.type: \"../a\""),
        ("{\"name\": \"a\", \"prevResult\": []}", InvalidConfig, "prevResult: is not an object"),
        ("{\"name\": \"a\", \"prevResult\": {\"dns\": 1}}", InvalidConfig, "prevResult.dns: is a number"),
    ] {
        let error = NetworkConfig::parse(Command::Add, stdin.as_bytes()).unwrap_err();
        assert_eq!(error.code, code, "{stdin}: {error}");
        assert!(error.message.starts_with(message), "{stdin}: {error}");
    }
}

#[test]
fn versions_limit_commands() {
    for (command, version, is_allowed) in [
        (Command::Check, "0.3.1", false),
        (Command::Check, "0.4.0", true),
        (Command::Gc, "1.0.0", false),
        (Command::Status, "1.0.0", false),
        (Command::Status, "1.1.0", true),
        (Command::Del, "0.1.0", true),
    ] {
        let parsed = parse(command, &json!({ "name": "a", "cniVersion": version }));
        let code = parsed.err().map(|error| error.code);
        assert_eq!(code, (!is_allowed).then_some(ErrorCode::IncompatibleVersion), "{command:?} {version}");
    }
}

#[test]
fn an_empty_ipam_is_none() {
    for ipam in [json!(null), json!({})] {
        assert_eq!(parse(Command::Add, &json!({ "name": "a", "ipam": ipam })).unwrap().ipam, None);
    }
}

#[test]
fn a_pod_that_the_go_plugin_started_without_ipam_can_be_deleted() {
    for ipam in [json!({ "type": "" }), json!({ "subnet": "192.0.2.0/24" })] {
        assert_eq!(parse(Command::Del, &json!({ "name": "a", "ipam": ipam })).unwrap().ipam, None);
    }
}

#[test]
fn a_faulty_previous_result_does_not_prevent_a_del() {
    let config = parse(Command::Del, &json!({ "name": "a", "prevResult": { "ips": 5 } })).unwrap();
    assert_eq!(config.previous, None);
}

#[test]
fn gc_needs_a_list_of_valid_attachments() {
    let gc = |changes: Value| {
        let mut value = json!({ "name": "a", "cniVersion": "1.1.0" });
        value.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        parse(Command::Gc, &value).map(|config| config.valid_attachments)
    };
    let one = ValidAttachment { container_id: "c".to_owned(), interface: "net1".to_owned() };
    let list = json!([{ "containerID": "c", "ifname": "net1" }]);
    assert_eq!(gc(json!({ "cni.dev/valid-attachments": list })), Ok(vec![one.clone()]));
    assert_eq!(gc(json!({ "cni.dev/attachments": list })), Ok(vec![one]));
    for none in [json!([]), json!(null)] {
        assert_eq!(gc(json!({ "cni.dev/valid-attachments": none })), Ok(vec![]));
    }
    for (changes, message) in [
        (json!({}), "cni.dev/valid-attachments: is missing"),
        (json!({ "cni.dev/valid-attachments": {} }), "cni.dev/valid-attachments: is an object"),
        (json!({ "cni.dev/valid-attachments": ["c"] }), "cni.dev/valid-attachments[0]: is a string"),
        (
            json!({ "cni.dev/valid-attachments": [{ "containerID": "c" }] }),
            "cni.dev/valid-attachments[0].ifname: is missing",
        ),
    ] {
        let error = gc(changes).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig);
        assert!(error.message.starts_with(message), "{error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_accepted_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = NetworkConfig::parse(Command::Add, &bytes);
    }
}
