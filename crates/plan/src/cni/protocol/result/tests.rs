use proptest::prelude::*;
use serde_json::json;

use super::*;

fn full() -> CniResult {
    CniResult {
        interfaces: vec![
            ResultInterface {
                name: "net1".to_owned(),
                mac: Some("02:00:00:00:00:01".to_owned()),
                mtu: Some(9000),
                sandbox: Some("/var/run/netns/pod".to_owned()),
                socket_path: Some("/run/vhost".to_owned()),
                pci_id: Some("0000:3b:02.1".to_owned()),
            },
            ResultInterface { name: "ens1".to_owned(), ..ResultInterface::default() },
        ],
        ips: vec![
            ResultIp {
                address: "192.0.2.7/24".parse().unwrap(),
                gateway: Some("192.0.2.1".parse().unwrap()),
                interface: Some(0),
            },
            ResultIp { address: "198.51.100.7/24".parse().unwrap(), gateway: None, interface: None },
            ResultIp {
                address: "2001:db8::7/64".parse().unwrap(),
                gateway: Some("2001:db8::1".parse().unwrap()),
                interface: Some(0),
            },
        ],
        routes: vec![
            ResultRoute {
                mtu: Some(1400),
                advmss: Some(1360),
                priority: Some(10),
                table: Some(0),
                scope: Some(0),
                ..ResultRoute::new("0.0.0.0/0".parse().unwrap(), Some("192.0.2.1".parse().unwrap()))
            },
            ResultRoute::new("2001:db8:1::/48".parse().unwrap(), None),
        ],
        dns: ResultDns {
            nameservers: vec!["192.0.2.53".to_owned()],
            domain: Some("example.org".to_owned()),
            search: vec!["a.example.org".to_owned()],
            options: vec!["ndots:2".to_owned()],
        },
    }
}

fn full_dns() -> Value {
    json!({
        "nameservers": ["192.0.2.53"], "domain": "example.org", "search": ["a.example.org"], "options": ["ndots:2"]
    })
}

fn full_routes() -> Value {
    json!([
        {
            "dst": "0.0.0.0/0", "gw": "192.0.2.1",
            "mtu": 1400, "advmss": 1360, "priority": 10, "table": 0, "scope": 0
        },
        { "dst": "2001:db8:1::/48" }
    ])
}

#[test]
fn results_since_1_0_0_have_everything() {
    for version in ["1.0.0", "1.1.0"] {
        let expected = json!({
            "cniVersion": version,
            "interfaces": [
                {
                    "name": "net1", "mac": "02:00:00:00:00:01", "mtu": 9000, "sandbox": "/var/run/netns/pod",
                    "socketPath": "/run/vhost", "pciID": "0000:3b:02.1"
                },
                { "name": "ens1" }
            ],
            "ips": [
                { "interface": 0, "address": "192.0.2.7/24", "gateway": "192.0.2.1" },
                { "address": "198.51.100.7/24" },
                { "interface": 0, "address": "2001:db8::7/64", "gateway": "2001:db8::1" }
            ],
            "routes": full_routes(),
            "dns": full_dns(),
        });
        assert_eq!(full().to_json(version.parse().unwrap()), expected);
    }
}

#[test]
fn results_before_1_0_0_have_versions_of_addresses_and_less_of_interfaces() {
    for version in ["0.3.0", "0.3.1", "0.4.0"] {
        let expected = json!({
            "cniVersion": version,
            "interfaces": [
                { "name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/var/run/netns/pod" },
                { "name": "ens1" }
            ],
            "ips": [
                { "version": "4", "interface": 0, "address": "192.0.2.7/24", "gateway": "192.0.2.1" },
                { "version": "4", "address": "198.51.100.7/24" },
                { "version": "6", "interface": 0, "address": "2001:db8::7/64", "gateway": "2001:db8::1" }
            ],
            "routes": full_routes(),
            "dns": full_dns(),
        });
        assert_eq!(full().to_json(version.parse().unwrap()), expected);
    }
}

#[test]
fn results_before_0_3_0_have_one_address_of_each_family() {
    for version in ["0.1.0", "0.2.0"] {
        let expected = json!({
            "cniVersion": version,
            "ip4": {
                "ip": "192.0.2.7/24", "gateway": "192.0.2.1",
                "routes": [{ "dst": "0.0.0.0/0", "gw": "192.0.2.1" }]
            },
            "ip6": {
                "ip": "2001:db8::7/64", "gateway": "2001:db8::1", "routes": [{ "dst": "2001:db8:1::/48" }]
            },
            "dns": full_dns(),
        });
        assert_eq!(full().to_json(version.parse().unwrap()), expected);
    }
}

#[test]
fn an_empty_result_has_dns_before_1_0_0_only() {
    for version in CniVersion::SUPPORTED {
        let written = CniResult::default().to_json(version);
        let expected = if version < CniVersion::V1_0_0 {
            json!({ "cniVersion": version.as_str(), "dns": {} })
        } else {
            json!({ "cniVersion": version.as_str() })
        };
        assert_eq!(written, expected);
    }
}

#[test]
fn the_version_of_the_result_itself_counts() {
    let value = json!({ "cniVersion": "0.2.0", "ip4": { "ip": "192.0.2.7/24" } });
    assert_eq!(CniResult::parse(&value, CniVersion::V1_1_0).unwrap().ips.len(), 1);
    let value = json!({ "ip4": { "ip": "192.0.2.7/24" } });
    assert_eq!(CniResult::parse(&value, CniVersion::V1_1_0).unwrap().ips.len(), 0);
    assert_eq!(CniResult::parse(&value, CniVersion::V0_2_0).unwrap().ips.len(), 1);
}

#[test]
fn results_are_read_as_go_reads_them() {
    let value = json!({
        "CNIVersion": "0.4.0",
        "Interfaces": [null, { "NAME": "eth0", "Mac": "", "mtu": 0 }],
        "ips": [{ "Version": "whatever", "Address": "192.0.2.7/24", "gateway": "", "interface": null }],
        "routes": null,
        "unknown": { "a": [1] }
    });
    let result = CniResult::parse(&value, CniVersion::V1_1_0).unwrap();
    let interface = ResultInterface { name: "eth0".to_owned(), ..ResultInterface::default() };
    assert_eq!(result.interfaces, [interface]);
    let address = "192.0.2.7/24".parse().unwrap();
    assert_eq!(result.ips, [ResultIp { address, gateway: None, interface: None }]);
}

#[test]
fn errors_name_the_key() {
    for (value, expected) in [
        (json!([]), "result: is not an object"),
        (json!({ "cniVersion": "2.0.0" }), "cniVersion: \"2.0.0\" is not supported"),
        (json!({ "interfaces": {} }), "interfaces: is an object, must be a list"),
        (json!({ "interfaces": [{ "name": 1 }] }), "interfaces[0].name: is a number"),
        (json!({ "interfaces": [{ "mtu": -1 }] }), "interfaces[0].mtu: -1 is not in the range"),
        (json!({ "ips": [{}] }), "ips[0].address: is missing"),
        (json!({ "ips": [{ "address": "192.0.2.7" }] }), "ips[0].address: \"192.0.2.7\" is not"),
        (json!({ "ips": [{ "address": "::1/64", "gateway": "x" }] }), "ips[0].gateway: \"x\" is not"),
        (json!({ "ips": [{ "address": "::1/64", "interface": -1 }] }), "ips[0].interface: -1"),
        (json!({ "routes": [{ "gw": "::1" }] }), "routes[0].dst: is missing"),
        (json!({ "routes": [{ "dst": "::/0", "scope": 256 }] }), "routes[0].scope: 256"),
        (json!({ "dns": { "search": "a" } }), "dns.search: is a string"),
        (json!({ "cniVersion": "0.2.0", "ip4": {} }), "ip4.ip: is missing"),
        (json!({ "cniVersion": "0.2.0", "ip4": "a" }), "ip4: is a string"),
    ] {
        let error = CniResult::parse(&value, CniVersion::V1_1_0).unwrap_err();
        assert_eq!(error.code, ErrorCode::Decode);
        assert!(error.message.starts_with(expected), "{error}");
    }
}

fn address(is_v4: bool) -> BoxedStrategy<IpPrefix> {
    if is_v4 {
        (any::<[u8; 4]>(), 0..=32u8)
            .prop_map(|(bytes, length)| IpPrefix::new(bytes.into(), length).unwrap())
            .boxed()
    } else {
        (any::<[u8; 16]>(), 0..=128u8)
            .prop_map(|(bytes, length)| IpPrefix::new(bytes.into(), length).unwrap())
            .boxed()
    }
}

fn any_address() -> impl Strategy<Value = IpPrefix> {
    any::<bool>().prop_flat_map(address)
}

fn text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("\\PC{1,9}")
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("\\PC{0,9}", 0..3)
}

prop_compose! {
    fn any_interface()(
        name in "[a-z]{0,5}",
        (mac, sandbox, socket_path, pci_id) in (text(), text(), text(), text()),
        mtu in proptest::option::of(1..=u32::MAX),
    ) -> ResultInterface {
        ResultInterface { name, mac, mtu, sandbox, socket_path, pci_id }
    }
}

prop_compose! {
    fn any_route()(
        destination in any_address(),
        gateway in proptest::option::of(any_address()),
        (mtu, advmss, priority) in (
            proptest::option::of(1..=u32::MAX),
            proptest::option::of(1..=u32::MAX),
            proptest::option::of(1..=u32::MAX),
        ),
        table in proptest::option::of(any::<u32>()),
        scope in proptest::option::of(any::<u8>()),
    ) -> ResultRoute {
        let gateway = gateway.map(|gateway| gateway.address);
        ResultRoute { destination, gateway, mtu, advmss, priority, table, scope }
    }
}

prop_compose! {
    fn any_result()(
        interfaces in proptest::collection::vec(any_interface(), 0..3),
        ips in proptest::collection::vec(
            (any_address(), proptest::option::of(any_address()), proptest::option::of(0..9usize)),
            0..4,
        ),
        routes in proptest::collection::vec(any_route(), 0..4),
        (nameservers, domain, search, options) in (texts(), text(), texts(), texts()),
    ) -> CniResult {
        let ips = ips.into_iter().map(|(address, gateway, interface)| {
            ResultIp { address, gateway: gateway.map(|gateway| gateway.address), interface }
        });
        CniResult { interfaces, ips: ips.collect(), routes, dns: ResultDns { nameservers, domain, search, options } }
    }
}

/// Returns what of a result a version can express.
fn expressible(result: &CniResult, version: CniVersion) -> CniResult {
    let mut result = result.clone();
    if version < CniVersion::V1_0_0 {
        for interface in &mut result.interfaces {
            (interface.mtu, interface.socket_path, interface.pci_id) = (None, None, None);
        }
    }
    if version < CniVersion::V0_3_0 {
        let first = |is_v4| result.ips.iter().find(move |ip| ip.address.address.is_ipv4() == is_v4);
        let ips: Vec<ResultIp> = [true, false].into_iter().filter_map(first).cloned().collect();
        let mut routes = Vec::new();
        for ip in &ips {
            let is_v4 = ip.address.address.is_ipv4();
            let same = result.routes.iter().filter(|route| route.destination.address.is_ipv4() == is_v4);
            routes.extend(same.map(|route| ResultRoute::new(route.destination, route.gateway)));
        }
        let ips = ips.into_iter().map(|ip| ResultIp { interface: None, ..ip }).collect();
        return CniResult { interfaces: Vec::new(), ips, routes, dns: result.dns };
    }
    result
}

proptest! {
    #[test]
    fn what_is_written_in_a_version_is_read_again(result in any_result()) {
        for version in CniVersion::SUPPORTED {
            let written = result.to_json(version);
            prop_assert_eq!(&written["cniVersion"], version.as_str());
            let read = CniResult::parse(&written, CniVersion::V0_1_0).unwrap();
            prop_assert_eq!(&read, &expressible(&result, version));
            prop_assert_eq!(read.to_json(version), written);
        }
    }
}
