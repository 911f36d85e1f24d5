use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cni::config::LogLevel;
use crate::cni::facts::FileFacts;
use crate::cni::protocol::Command;

const MACS: [&str; 3] = ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"];
const FILE: &str = "/etc/cni/net.d/ovs.d/ovs.conf";

fn network(keys: &Value) -> NetworkConfig {
    let mut value = json!({ "name": "net", "type": "ovs", "bridge": "br1" });
    value.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    NetworkConfig::parse(Command::Add, value.to_string().as_bytes()).unwrap()
}

fn flat_file(content: &str) -> Result<Option<OvsFlatFile>, CniError> {
    OvsFlatFile::parse(&FileFacts::Present { path: FILE.to_owned(), content: content.to_owned() })
}

fn parse_with(keys: &Value, args: &str, file: Option<&Value>) -> Result<OvsConfig, CniError> {
    let file = file.and_then(|file| flat_file(&file.to_string()).unwrap());
    OvsConfig::parse(&network(keys), &CniArgs::parse(args).unwrap(), file.as_ref())
}

fn parse(keys: &Value) -> Result<OvsConfig, CniError> {
    parse_with(keys, "", None)
}

fn trunk(ids: &[u16]) -> OvsVlans {
    OvsVlans::Trunk(ids.iter().copied().collect())
}

#[test]
fn a_full_configuration_is_parsed() {
    let config = parse_with(
        &json!({
            "deviceID": "0000:3b:02.1", "vlan": 100, "MTU": 9000, "ofport_request": 65279, "interface_type": "dpdk",
            "socket_file": "unix:/run/ovs/db.sock", "link_state_check_retries": 3, "Link_State_Check_Interval": 100,
            "runtimeConfig": { "CNIDeviceInfoFile": "/run/info" }, "logLevel": "debug"
        }),
        "MAC=02:00:00:00:00:01;OvnPort=pod-a",
        None,
    );
    let expected = OvsConfig {
        device: Some("0000:3b:02.1".parse().unwrap()),
        bridge: Some("br1".to_owned()),
        vlans: OvsVlans::Access(100),
        mtu: Some(9000),
        mac: Some(MACS[0].parse().unwrap()),
        ovn_port: Some("pod-a".to_owned()),
        ofport_request: Some(65279),
        interface_type: Some("dpdk".to_owned()),
        socket: OvsSocket::Unix("/run/ovs/db.sock".to_owned()),
        link_limit: Duration::from_millis(300),
        device_info: Some("/run/info".to_owned()),
        log: LogSettings { level: LogLevel::Debug, file: None },
    };
    assert_eq!(config, Ok(expected));
}

#[test]
fn empty_values_are_defaults() {
    for keys in [
        json!({}),
        json!({ "vlan": null, "trunk": null, "mtu": null, "deviceID": null, "runtimeConfig": null }),
        json!({
            "trunk": [], "mtu": 0, "deviceID": "", "ofport_request": 0, "interface_type": "", "socket_file": "",
            "link_state_check_retries": 0, "link_state_check_interval": 0, "args": { "cni": { "mac": "" } }
        }),
    ] {
        let config = parse(&keys).unwrap();
        let expected = OvsConfig {
            device: None,
            bridge: Some("br1".to_owned()),
            vlans: trunk(&[]),
            mtu: None,
            mac: None,
            ovn_port: None,
            ofport_request: None,
            interface_type: None,
            socket: OvsSocket::Unix("/var/run/openvswitch/db.sock".to_owned()),
            link_limit: Duration::from_millis(3000),
            device_info: None,
            log: LogSettings::default(),
        };
        assert_eq!(config, expected, "{keys}");
    }
}

#[test]
fn a_bridge_is_named_or_that_of_ovn_or_found_by_the_device() {
    let device = json!({ "bridge": "", "deviceID": "0000:3b:02.1" });
    let bridge = |keys: &Value, args| parse_with(keys, args, None).map(|config| config.bridge);
    assert_eq!(bridge(&json!({}), "OvnPort=a"), Ok(Some("br1".to_owned())));
    assert_eq!(bridge(&json!({ "bridge": null }), "OvnPort=a"), Ok(Some("br-int".to_owned())));
    assert_eq!(bridge(&device, "OvnPort=a"), Ok(Some("br-int".to_owned())));
    assert_eq!(bridge(&device, ""), Ok(None));
    let by_pod = json!({ "bridge": null, "args": { "cni": { "OVNPORT": "a" } } });
    assert_eq!(bridge(&by_pod, ""), Ok(Some("br-int".to_owned())));
    let error = bridge(&json!({ "bridge": "" }), "").unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::InvalidConfig, "bridge: is missing"));
}

#[test]
fn a_trunk_counts_more_than_a_vlan() {
    for (keys, expected) in [
        (json!({ "vlan": 0 }), OvsVlans::Access(0)),
        (json!({ "vlan": 4095 }), OvsVlans::Access(4095)),
        (json!({ "vlan": 5, "trunk": [{ "minID": 10, "maxID": 12 }, { "id": 7 }] }), trunk(&[7, 10, 11, 12])),
        (json!({ "trunk": [{ "id": 0 }] }), trunk(&[0])),
    ] {
        assert_eq!(parse(&keys).unwrap().vlans, expected, "{keys}");
    }
}

#[test]
fn the_first_source_of_a_mac_counts() {
    let pod = json!({ "args": { "cni": { "Mac": MACS[2], "other": 5 } } });
    let mut both = pod.clone();
    both["runtimeConfig"] = json!({ "mac": MACS[0] });
    let args = format!("MAC={}", MACS[1]);
    for (keys, args, expected) in [(&both, &args, 0), (&pod, &args, 1), (&pod, &String::new(), 2)] {
        let mac = parse_with(keys, args, None).unwrap().mac;
        assert_eq!(mac, Some(MACS[expected].parse().unwrap()));
    }
    let error = parse_with(&pod, "MAC=x", None).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidEnvironment);
    assert!(error.message.starts_with("CNI_ARGS: MAC: \"x\""), "{error}");
}

#[test]
fn sockets_have_several_forms() {
    for (text, expected) in [
        ("/run/db.sock", "unix:/run/db.sock"),
        ("unix:/run/db.sock", "unix:/run/db.sock"),
        ("unix:///run/db.sock", "unix:/run/db.sock"),
        ("tcp:127.0.0.1:6640", "tcp:127.0.0.1:6640"),
        ("tcp:localhost:6640", "tcp:localhost:6640"),
        ("tcp:[::1]:6640", "tcp:[::1]:6640"),
    ] {
        let socket = parse(&json!({ "socket_file": text })).unwrap().socket;
        assert_eq!(socket.to_string(), expected);
        assert_eq!(serde_json::from_value::<OvsSocket>(json!(socket)).unwrap(), socket);
    }
    for text in [
        "ssl:127.0.0.1:6640",
        "run/db.sock",
        "unix:db.sock",
        "unix:/run/ovs/",
        "unix:/run/db\n",
        "/",
        "tcp:6640",
        "tcp::6640",
        "tcp:127.0.0.1",
        "tcp:127.0.0.1:",
        "tcp:127.0.0.1:0",
        "tcp:127.0.0.1:65536",
        "tcp:127.0.0.1:+1",
        "tcp:::1:6640",
        "tcp:[127.0.0.1]:6640",
        "tcp:a b:6640",
    ] {
        let error = parse(&json!({ "socket_file": text })).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig, "{text}");
        assert!(error.message.starts_with("socket_file: "), "{error}");
    }
}

#[test]
fn faulty_values_are_named() {
    for (keys, message) in [
        (json!({ "bridge": 5 }), "bridge: is a number"),
        (json!({ "deviceID": "eth0" }), "deviceID: \"eth0\""),
        (json!({ "vlan": 4096 }), "vlan: 4096 is not in the range 0 to 4095"),
        (json!({ "vlan": -1 }), "vlan: -1 is not in the range"),
        (json!({ "vlan": "5" }), "vlan: is a string"),
        (json!({ "trunk": [{ "id": 4096 }] }), "trunk[0].id: 4096 is not in the range 0 to 4095"),
        (json!({ "trunk": [{}] }), "trunk: has no VLAN"),
        (json!({ "mtu": 67 }), "mtu: 67 is not in the range 68 to 65535"),
        (json!({ "ofport_request": 65280 }), "ofport_request: 65280 is not in the range 0 to 65279"),
        (json!({ "ofport_request": -1 }), "ofport_request: -1"),
        (json!({ "interface_type": true }), "interface_type: is a boolean"),
        (json!({ "link_state_check_retries": -1 }), "link_state_check_retries: -1"),
        (json!({ "link_state_check_interval": 60001 }), "link_state_check_interval: 60001"),
        (json!({ "runtimeConfig": { "mac": "x" } }), "runtimeConfig.mac: \"x\""),
        (json!({ "runtimeConfig": { "CNIDeviceInfoFile": 1 } }), "runtimeConfig.CNIDeviceInfoFile: is"),
        (json!({ "args": { "cni": { "mac": 5 } } }), "args.cni.mac: is a number"),
        (json!({ "args": { "cni": { "mac": "01:00:5e:00:00:01" } } }), "args.cni.mac: 01:00:5e:00:00:01 is"),
        (json!({ "args": { "cni": { "ovnPort": [] } } }), "args.cni.ovnPort: is a list"),
        (json!({ "logLevel": "loud" }), "logLevel: \"loud\""),
    ] {
        let error = parse(&keys).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig, "{keys}");
        assert!(error.message.starts_with(message), "{keys}: {error}");
    }
}

#[test]
fn a_file_gives_the_keys_that_the_network_leaves_empty() {
    let file = json!({
        "Bridge": "br-file", "vlan": 5, "mtu": 9000, "socket_file": "/run/file.sock", "interface_type": "tap",
        "ofport_request": 7, "link_state_check_retries": 1, "name": "ignored", "unknown": 5
    });
    let config = parse_with(&json!({ "bridge": "", "mtu": 0, "vlan": null }), "", Some(&file)).unwrap();
    assert_eq!(config.bridge.as_deref(), Some("br-file"));
    assert_eq!((config.vlans, config.mtu, config.ofport_request), (OvsVlans::Access(5), Some(9000), Some(7)));
    assert_eq!(
        (config.socket.to_string().as_str(), config.link_limit.as_millis()),
        ("unix:/run/file.sock", 600)
    );
    assert_eq!(config.interface_type.as_deref(), Some("tap"));

    let own = json!({ "vlan": 0, "mtu": 1400, "socket_file": "/run/own.sock", "ofport_request": 8 });
    let config = parse_with(&own, "", Some(&file)).unwrap();
    assert_eq!(config.bridge.as_deref(), Some("br1"));
    assert_eq!((config.vlans, config.mtu, config.ofport_request), (OvsVlans::Access(0), Some(1400), Some(8)));
    assert_eq!(config.socket.to_string(), "unix:/run/own.sock");

    let trunk_of_file = json!({ "trunk": [{ "id": 9 }] });
    assert_eq!(parse_with(&json!({ "vlan": 5 }), "", Some(&trunk_of_file)).unwrap().vlans, trunk(&[9]));
    let of_network = json!({ "trunk": [{ "id": 8 }] });
    assert_eq!(parse_with(&of_network, "", Some(&trunk_of_file)).unwrap().vlans, trunk(&[8]));
}

#[test]
fn the_file_that_the_network_names_comes_first() {
    let paths = ["/etc/kubernetes/cni/net.d/ovs.d/ovs.conf", FILE];
    assert_eq!(flat_file_paths(&network(&json!({}))).unwrap(), paths);
    let named = network(&json!({ "Configuration_Path": "/etc/own.conf" }));
    assert_eq!(flat_file_paths(&named).unwrap(), ["/etc/own.conf", paths[0], paths[1]]);
    let error = flat_file_paths(&network(&json!({ "configuration_path": "own.conf" }))).unwrap_err();
    assert!(error.message.starts_with("configuration_path: "), "{error}");
}

#[test]
fn a_faulty_file_is_named() {
    let missing = FileFacts::Missing { path: FILE.to_owned() };
    assert_eq!(OvsFlatFile::parse(&missing), Ok(None));
    let unreadable = FileFacts::Unreadable { path: FILE.to_owned(), reason: "denied".to_owned() };
    let error = OvsFlatFile::parse(&unreadable).unwrap_err();
    assert_eq!((error.code, error.message), (ErrorCode::Io, format!("cannot read {FILE}: denied")));
    for content in ["{", "[]", ""] {
        let error = flat_file(content).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig);
        assert!(error.message.starts_with(&format!("configuration_path: {FILE} is not")), "{error}");
    }
    let error = parse_with(&json!({}), "", Some(&json!({ "socket_file": "ssl:a:1" }))).unwrap_err();
    assert!(error.message.starts_with("socket_file: ") && error.message.ends_with(&format!("(in {FILE})")));
}

proptest! {
    #[test]
    fn any_keys_are_accepted_or_refused(text in r#"\{("(bridge|vlan|trunk|mtu|args)":(5|"a"|\[\{"id":5\}\]|null),){0,4}"name":"n"\}"#) {
        if let Ok(network) = NetworkConfig::parse(Command::Add, text.as_bytes()) {
            let _ = OvsConfig::parse(&network, &CniArgs::default(), None);
        }
    }
}
