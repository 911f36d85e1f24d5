use std::time::Instant;

use serde_json::{Value, json};
use vfleet_plan::cni::step::CniStep;

use super::*;
use crate::linux::attachment::test_pod::{TestPod, run_with_pod, vf};
use crate::linux::test_namespace::shell;

fn prefix(text: &str) -> IpPrefix {
    let (address, length) = text.split_once('/').unwrap();
    IpPrefix { address: address.parse().unwrap(), length: length.parse().unwrap() }
}

fn route(destination: &str, gateway: Option<&str>) -> InterfaceRoute {
    let gateway = gateway.map(|gateway| gateway.parse().unwrap());
    let (destination, mtu, advmss) = (prefix(destination), None, None);
    InterfaceRoute { destination, gateway, mtu, advmss, priority: None, table: None, scope: None }
}

fn add_step(pod: &TestPod, ips: &[&str], routes: &[InterfaceRoute]) -> CniStep {
    let ips = ips.iter().map(|ip| prefix(ip)).collect();
    let addresses = InterfaceAddresses { ips, routes: routes.to_vec() };
    CniStep::AddAddresses { namespace: pod.namespace.clone(), name: "net1".to_owned(), addresses }
}

fn with_interface(test: impl FnOnce(&mut TestPod) + Send) {
    run_with_pod(|pod| {
        pod.execute(&CniStep::MoveToPod {
            device: vf(),
            namespace: pod.namespace.clone(),
            name: "net1".to_owned(),
            drop_alt_names: Vec::new(),
        });
        test(pod);
    });
}

/// Returns routes that iproute2 prints.
fn routes(pod: &TestPod, arguments: &str) -> Vec<Value> {
    serde_json::from_str(&pod.shell(&format!("ip -j {arguments}"))).unwrap()
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn an_interface_is_set_up_with_mtu_and_mac_and_announces_its_addresses_later() {
    with_interface(|pod| {
        let step = CniStep::SetUpInPod {
            namespace: pod.namespace.clone(),
            name: "net1".to_owned(),
            mtu: Some(1400),
            mac: Some("02:00:00:00:00:07".parse().unwrap()),
        };
        pod.execute(&step);
        pod.execute(&step);
        let found = pod.iproute("net1").unwrap();
        assert_eq!((&found["mtu"], &found["address"]), (&json!(1400), &json!("02:00:00:00:00:07")));
        assert!(found["flags"].as_array().unwrap().contains(&json!("UP")));
        for setting in ["ipv4/conf/net1/arp_notify", "ipv6/conf/net1/ndisc_notify"] {
            assert_eq!(pod.shell(&format!("cat /proc/sys/net/{setting}")), "1\n", "{setting}");
        }
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn addresses_and_routes_are_added_and_usable() {
    with_interface(|pod| {
        pod.shell(
            "echo 1 > /proc/sys/net/ipv6/conf/net1/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/lo/disable_ipv6",
        );
        let all = [
            route("0.0.0.0/0", Some("192.0.2.1")),
            route("10.1.0.0/16", None),
            InterfaceRoute {
                mtu: Some(1400),
                advmss: Some(1300),
                priority: Some(7),
                table: Some(1000),
                ..route("10.2.0.0/16", Some("192.0.2.1"))
            },
            InterfaceRoute { scope: Some(253), ..route("10.3.0.0/16", None) },
            route("::/0", Some("2001:db8::1")),
            route("2001:db8:1::/48", None),
        ];
        let step = add_step(pod, &["192.0.2.7/24", "2001:db8::7/64"], &all);
        let start = Instant::now();
        pod.execute(&step);
        assert!(start.elapsed() < DETECTION_LIMIT);
        pod.execute(&step);

        let found: Vec<Value> = serde_json::from_str(&pod.shell("ip -j address show dev net1")).unwrap();
        let infos = found[0]["addr_info"].as_array().unwrap();
        let info = |ip: &str| infos.iter().find(|info| info["local"] == ip).unwrap();
        assert_eq!(
            (&info("192.0.2.7")["prefixlen"], &info("192.0.2.7")["broadcast"]),
            (&json!(24), &json!("192.0.2.255"))
        );
        assert!(info("2001:db8::7")["tentative"].is_null());
        assert_eq!(
            pod.shell("cat /proc/sys/net/ipv6/conf/{net1/keep_addr_on_down,lo/disable_ipv6}"),
            "1\n0\n"
        );
        let main = routes(pod, "route show dev net1");
        let to = |destination: &str| main.iter().find(|route| route["dst"] == destination).unwrap();
        assert_eq!(to("default")["gateway"], "192.0.2.1");
        assert_eq!(
            (&to("10.1.0.0/16")["scope"], &to("10.3.0.0/16")["scope"]),
            (&json!("link"), &json!("link"))
        );
        let other = &routes(pod, "route show table 1000")[0];
        assert_eq!((&other["dst"], &other["metric"]), (&json!("10.2.0.0/16"), &json!(7)));
        assert_eq!(other["metrics"], json!([{"mtu": 1400, "advmss": 1300}]));
        let six = routes(pod, "-6 route show dev net1");
        assert!(six.iter().any(|route| route["dst"] == "default" && route["gateway"] == "2001:db8::1"));
        assert!(six.iter().any(|route| route["dst"] == "2001:db8:1::/48"));
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_route_that_exists_in_another_form_and_an_unreachable_gateway_are_errors() {
    with_interface(|pod| {
        pod.execute(&add_step(pod, &["192.0.2.7/24"], &[route("10.1.0.0/16", Some("192.0.2.1"))]));
        let other = add_step(pod, &["192.0.2.7/24"], &[route("10.1.0.0/16", Some("192.0.2.2"))]);
        let (reason, text) = pod.refusal(&other);
        assert_eq!(reason, "NetlinkRefused");
        assert!(text.contains("the route to 10.1.0.0/16 through 192.0.2.2"), "{text}");
        let unreachable = add_step(pod, &[], &[route("0.0.0.0/0", Some("198.51.100.1"))]);
        assert!(pod.refusal(&unreachable).1.contains("unreachable"));
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn an_address_that_another_machine_has_is_an_error() {
    with_interface(|pod| {
        shell("ip address add 2001:db8::7/64 dev wire nodad");
        let step = add_step(pod, &["2001:db8::7/64"], &[]);
        let (reason, text) = pod.refusal(&step);
        assert_eq!(reason, "AddressInUse", "{text}");
        assert!(text.contains("another machine on the network has 2001:db8::7"), "{text}");
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn without_a_carrier_the_addresses_are_added_and_checked_later() {
    with_interface(|pod| {
        shell("ip link set wire down");
        pod.execute(&add_step(pod, &["2001:db8::7/64"], &[]));
        let found: Vec<Value> = serde_json::from_str(&pod.shell("ip -j address show dev net1")).unwrap();
        assert_eq!(found[0]["addr_info"][0]["local"], "2001:db8::7");
    });
}
