use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::linux::attachment::steps::uplink_vlans;
use crate::linux::test_namespace::{iproute, run_in_namespace, shell};

/// Runs a test in a namespace with a bridge `br0` and interfaces `port` and `uplink`. Returns false if the kernel has no VLAN
/// filtering.
fn with_bridge(filtering: bool, test: impl FnOnce() + Send) -> bool {
    let mut has_vlans = false;
    run_in_namespace(|| {
        shell(
            "ip link add br0 type bridge; ip link set br0 up; ip link add port type veth peer name wire; \
             ip link add uplink type veth peer name wire2; ip link set uplink master br0",
        );
        let switched_on = "ip link set br0 type bridge vlan_filtering 1 && echo yes || echo no";
        has_vlans = !filtering || shell(switched_on).trim() == "yes";
        if has_vlans {
            test();
        } else {
            println!("skipped: this kernel has no VLAN filtering of bridges");
        }
    });
    has_vlans
}

fn port() -> Link {
    Rtnl::open().unwrap().link_by_name("port").unwrap().unwrap()
}

fn attach_port() -> Result<(), HostError> {
    enslave(&mut Rtnl::open().unwrap(), port(), "br0", "attach it".to_owned())
}

/// Returns the VLANs of an interface as bridge(8) prints them.
fn vlans_of(name: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(&shell("bridge -j -compressvlans vlan show")).unwrap();
    let found = all.into_iter().find(|link| link["ifname"] == name);
    found.map_or(Value::Null, |link| link["vlans"].clone())
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn an_interface_becomes_a_port_and_leaves() {
    with_bridge(false, || {
        let mut rtnl = Rtnl::open().unwrap();
        for _ in 0..2 {
            attach_port().unwrap();
            assert_eq!(iproute("port").unwrap()["master"], "br0");
        }
        shell("ip link add br1 type bridge");
        let error = enslave(&mut rtnl, port(), "br1", "attach it".to_owned()).unwrap_err();
        assert_eq!(error.reason(), "InterfaceOfOtherBridge", "{error}");
        release(&mut rtnl, &port(), "br1", "detach it").unwrap();
        assert_eq!(iproute("port").unwrap()["master"], "br0");
        for _ in 0..2 {
            release(&mut rtnl, &port(), "br0", "detach it").unwrap();
            assert_eq!(iproute("port").unwrap()["master"], Value::Null);
        }
        for none in ["br9", "wire"] {
            let error = enslave(&mut rtnl, port(), none, "attach it".to_owned()).unwrap_err();
            assert_eq!(error.reason(), "BridgeNotFound", "{error}");
        }
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_port_has_the_vlans_that_it_got_and_no_others() {
    with_bridge(true, || {
        attach_port().unwrap();
        let default = json!([{"vlan": 1, "flags": ["PVID", "Egress Untagged"]}]);
        assert_eq!(vlans_of("port"), default);
        let mut rtnl = Rtnl::open().unwrap();
        let trunk: Vec<_> = [5].into_iter().chain(100..200).map(BridgeVlan::tagged).collect();
        let native = [trunk.clone(), vec![BridgeVlan::native(7)]].concat();
        let untagged = BridgeVlan { is_untagged: true, ..BridgeVlan::tagged(9) };
        let all: Vec<_> = (1..=4094).map(BridgeVlan::tagged).collect();
        for (vlans, expected) in [
            (trunk, json!([{"vlan": 5}, {"vlan": 100, "vlanEnd": 199}])),
            (
                native,
                json!([{"vlan": 5}, {"vlan": 7, "flags": ["PVID", "Egress Untagged"]}, {"vlan": 100, "vlanEnd": 199}]),
            ),
            (vec![BridgeVlan::native(5)], json!([{"vlan": 5, "flags": ["PVID", "Egress Untagged"]}])),
            (
                vec![BridgeVlan::tagged(5), untagged],
                json!([{"vlan": 5}, {"vlan": 9, "flags": ["Egress Untagged"]}]),
            ),
            (all, json!([{"vlan": 1, "vlanEnd": 4094}])),
            (vec![BridgeVlan::native(1)], default),
            (vec![], Value::Null),
        ] {
            for _ in 0..2 {
                set_vlans(&mut rtnl, &port(), &vlans).unwrap();
                assert_eq!(vlans_of("port"), expected);
            }
        }
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn vlans_of_an_uplink_are_added_to_those_that_it_has() {
    with_bridge(true, || {
        shell("bridge vlan add dev uplink vid 20 untagged; bridge vlan add dev uplink vid 30");
        let added: BTreeSet<u16> = [20, 21, 22, 30].into();
        let native = json!({"vlan": 1, "flags": ["PVID", "Egress Untagged"]});
        let untagged = json!({"vlan": 20, "flags": ["Egress Untagged"]});
        for _ in 0..2 {
            uplink_vlans::add("uplink", &added).unwrap();
            let expected = json!([native, untagged, {"vlan": 21, "vlanEnd": 22}, {"vlan": 30}]);
            assert_eq!(vlans_of("uplink"), expected);
        }
        for _ in 0..2 {
            uplink_vlans::remove("uplink", &[21, 22, 40].into()).unwrap();
            assert_eq!(vlans_of("uplink"), json!([native, untagged, {"vlan": 30}]));
        }
        shell("ip link set uplink nomaster");
        uplink_vlans::remove("uplink", &[30].into()).unwrap();
        uplink_vlans::remove("none", &[30].into()).unwrap();
        assert_eq!(uplink_vlans::add("none", &[30].into()).unwrap_err().reason(), "NoInterface");
        let refused = uplink_vlans::add("uplink", &[30].into()).unwrap_err();
        assert_eq!(refused.reason(), "NetlinkRefused", "no port of a bridge: {refused}");
    });
}

/// A bond is the uplink of several PFs.
#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn vlans_of_a_bond_are_changed() {
    with_bridge(true, || {
        shell(
            "ip link add bond0 type bond mode 1; ip link set uplink nomaster; ip link set uplink master bond0",
        );
        shell("ip link set bond0 master br0");
        uplink_vlans::add("bond0", &[21].into()).unwrap();
        assert_eq!(vlans_of("bond0")[1], json!({"vlan": 21}));
        uplink_vlans::remove("bond0", &[21].into()).unwrap();
        assert_eq!(vlans_of("bond0").as_array().unwrap().len(), 1);
    });
}
