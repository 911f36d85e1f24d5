//! Tests of Linux bridges on a kernel, in a network namespace: a veth interface is the interface of a PF.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vfleet_api::bridge::BridgeVlanProtocol::{Ieee8021Q, Ieee8021ad};
use vfleet_api::{PciAddress, bridge::BridgeVlanProtocol};
use vfleet_plan::{LinuxBridgeFacts, LinuxBridgeState, Master, Step, bridge_port};

use super::netlink::rtnl::Rtnl;
use super::network::Network;
use super::pci::CardKind;
use super::root::HostRoot;
use super::test_namespace::{iproute, run_in_namespace, shell};
use super::test_tree::TestTree;
use super::{bridge, card};
use crate::{HostError, format_error_chain};

const PF: &str = "0000:01:00.0";
const ALIAS: &str = "vfleet bridge of 0000:01:00.0";

fn pf() -> PciAddress {
    PF.parse().unwrap()
}

fn create() -> Step {
    Step::CreateLinuxBridge { pf: pf(), name: "br0".to_owned(), alias: LinuxBridgeFacts::alias_of(pf()) }
}

fn set(vlan_filtering: bool, vlan_protocol: BridgeVlanProtocol, mtu: u32) -> Step {
    let settings = LinuxBridgeState { vlan_filtering, vlan_protocol, mtu };
    Step::SetLinuxBridge { pf: pf(), name: "br0".to_owned(), settings }
}

fn attach() -> Step {
    Step::AttachUplink { pf: pf(), bridge: "br0".to_owned() }
}

fn detach() -> Step {
    Step::DetachUplink { pf: pf(), bridge: "br0".to_owned() }
}

fn set_port(settings: &[(&str, &str)]) -> Step {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Step::SetBridgePort { pf: pf(), bridge: "br0".to_owned(), settings: settings.collect() }
}

fn remove() -> Step {
    Step::RemoveLinuxBridge { pf: pf(), name: "br0".to_owned(), alias: LinuxBridgeFacts::alias_of(pf()) }
}

/// Runs a test in a namespace with an interface `uplink`, which is the one of the PF and has a carrier.
fn with_uplink(test: impl FnOnce(&TestTree) + Send) {
    run_in_namespace(|| {
        shell("ip link add uplink type veth peer name wire; ip link set wire up; ip link set uplink up");
        let tree = TestTree::new();
        tree.add_card(PF, "0x15b3\n");
        let index = iproute("uplink").unwrap()["ifindex"].to_string();
        tree.write(&format!("/sys/bus/pci/devices/{PF}/net/uplink/ifindex"), &index);
        test(&tree);
    });
}

/// Executes a step twice: the second time it changes nothing.
#[track_caller]
fn execute(tree: &TestTree, step: &Step) {
    for _ in 0..2 {
        if let Err(error) = tree.execute(step) {
            panic!("{step}: {}", format_error_chain(&error));
        }
    }
}

fn refusal(tree: &TestTree, step: &Step) -> (&'static str, String) {
    let error: HostError = tree.execute(step).unwrap_err();
    (error.reason(), error.to_string())
}

fn read_bridges() -> Vec<LinuxBridgeFacts> {
    let accepts_ra = |name: &str| bridge::accepts_ra(&HostRoot::default(), name);
    bridge::list(&Rtnl::open().unwrap().links().unwrap().iter(), accepts_ra).unwrap()
}

fn read_bridge() -> LinuxBridgeFacts {
    read_bridges().into_iter().find(|bridge| bridge.name == "br0").unwrap()
}

/// Returns the settings of the uplink that iproute2 prints, in the form of facts.
fn iproute_settings() -> BTreeMap<String, String> {
    let uplink = iproute("uplink").unwrap();
    let data = uplink["linkinfo"]["info_slave_data"].as_object().unwrap();
    let text = |value: &Value| match value {
        Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let renamed = |name: &str| if name == "multicast_router" { "mcast_router" } else { name }.to_owned();
    data.iter().map(|(name, value)| (renamed(name), text(value))).collect()
}

/// Returns whether this kernel has VLAN filtering of bridges.
fn has_vlans() -> bool {
    read_bridge().vlan_protocol.is_some()
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_bridge_lives_from_creation_to_removal() {
    with_uplink(|tree| {
        assert_eq!(read_bridges(), []);
        execute(tree, &create());
        let found = iproute("br0").unwrap();
        assert_eq!((&found["ifalias"], &found["linkinfo"]["info_kind"]), (&json!(ALIAS), &json!("bridge")));
        let new = read_bridge();
        assert_eq!((new.alias.as_deref(), new.group), (Some(ALIAS), LinuxBridgeFacts::NEW_GROUP));
        assert!(!new.vlan_filtering && !new.admin_up && new.ports.is_empty());

        if has_vlans() {
            for (filtering, protocol, mtu) in
                [(false, Ieee8021Q, 1500), (true, Ieee8021ad, 9000), (false, Ieee8021Q, 1400)]
            {
                execute(tree, &set(filtering, protocol, mtu));
                let found = iproute("br0").unwrap();
                let data = &found["linkinfo"]["info_data"];
                assert_eq!(data["vlan_filtering"], u8::from(filtering));
                assert_eq!(data["vlan_protocol"], protocol.as_str());
                assert_eq!((&found["mtu"], &found["group"]), (&json!(mtu), &json!("default")));
                let facts = read_bridge();
                assert_eq!((facts.vlan_filtering, facts.vlan_protocol), (filtering, Some(protocol)));
                assert!(facts.admin_up && facts.mtu == mtu && facts.group == 0);
            }
            // Below 1280 bytes there is no IPv6.
            for mtu in [1000, 1500] {
                execute(tree, &set(false, Ieee8021Q, mtu));
                assert!(!read_bridge().accepts_ra, "with MTU {mtu}");
            }
        } else {
            let (reason, text) = refusal(tree, &set(false, Ieee8021Q, 1400));
            assert!(
                reason == "NotVerified"
                    && text.contains("vlan_protocol unknown, mtu 1400, up, accept_ra off, group 0")
            );
            assert_eq!(refusal(tree, &set(true, Ieee8021Q, 1400)).0, "NetlinkRefused");
        }

        execute(tree, &attach());
        assert_eq!(iproute("uplink").unwrap()["master"], "br0");
        execute(tree, &set_port(&[("learning", "off")]));
        execute(tree, &detach());
        assert_eq!(iproute("uplink").unwrap()["master"], Value::Null);
        execute(tree, &remove());
        execute(tree, &detach());
        assert_eq!((iproute("br0"), read_bridges()), (None, Vec::new()));
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn every_port_setting_is_changed_and_gets_its_default_again() {
    with_uplink(|tree| {
        execute(tree, &create());
        shell("ip link set br0 up");
        execute(tree, &attach());
        let supported = read_bridge().ports.remove(0).settings;
        let defaults: BTreeMap<String, String> = supported
            .keys()
            .map(|name| (name.clone(), bridge_port::default_value(name, Some(10_000)).unwrap()))
            .collect();
        assert_eq!(supported, defaults, "the defaults are those of the kernel");
        // MAB needs a locked port.
        for name in bridge_port::NAMES.into_iter().filter(|name| !["mab", "locked"].contains(name)) {
            let default = &defaults[name];
            let other = match (name, default.as_str()) {
                ("state", _) => "disabled",
                ("cost", _) => "65535",
                ("priority", _) => "63",
                ("mcast_router", _) => "2",
                (_, "on") => "off",
                _ => "on",
            };
            for value in [other, default.as_str()] {
                execute(tree, &set_port(&[(name, value)]));
                assert_eq!(iproute_settings()[name], value, "{name}");
                assert_eq!(read_bridge().ports[0].settings[name], value, "{name}");
            }
        }
        for state in ["listening", "learning", "forwarding"] {
            execute(tree, &set_port(&[("state", state)]));
            assert_eq!(iproute_settings()["state"], state);
        }
        // Without a spanning tree the kernel makes a blocked port forward at once.
        let (reason, text) = refusal(tree, &set_port(&[("state", "blocking")]));
        assert!(reason == "NotVerified" && text.ends_with("expected state blocking, found state forwarding"));
        execute(tree, &set_port(&[("mab", "on"), ("locked", "on"), ("isolated", "on")]));
        assert_eq!((&*iproute_settings()["locked"], &*read_bridge().ports[0].settings["mab"]), ("on", "on"));
        execute(tree, &set_port(&[("mab", "off"), ("locked", "off"), ("isolated", "off")]));
        assert_eq!(read_bridge().ports[0].settings, defaults);

        let (reason, text) = refusal(tree, &set_port(&[("mab", "on")]));
        assert!(reason == "NetlinkRefused" && text.contains("kernel message"), "{text}");
        assert_eq!(refusal(tree, &set_port(&[("color", "red")])).0, "InvalidSpec");
        shell("ip link set uplink nomaster");
        assert_eq!(refusal(tree, &set_port(&[("flood", "off")])).0, "UplinkNotAttached");
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_bridge_of_an_interrupted_step_is_ours() {
    with_uplink(|tree| {
        let group = LinuxBridgeFacts::NEW_GROUP;
        let interrupted = format!("ip link add br0 group {group} type bridge");
        shell(&interrupted);
        assert_eq!(refusal(tree, &attach()).0, "BridgeNotOurs");
        execute(tree, &create());
        assert_eq!(read_bridge().alias.as_deref(), Some(ALIAS));
        execute(tree, &remove());
        shell(&interrupted);
        execute(tree, &remove());
        assert_eq!(iproute("br0"), None);
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn interfaces_of_others_are_not_changed() {
    for foreign in [
        "ip link add br0 type bridge",
        "ip link add br0 type bridge; ip link set br0 alias 'vfleet bridge of 0000:01:00.1'",
        "ip link add br0 type veth peer name br1; ip link set br0 alias 'vfleet bridge of 0000:01:00.0'",
        "ip link add other type bridge; ip link property add dev other altname br0",
    ] {
        with_uplink(|tree| {
            shell(foreign);
            let before = shell("ip -d -j link");
            for step in [create(), set(false, Ieee8021Q, 1400), attach(), set_port(&[("flood", "off")])] {
                assert_eq!(refusal(tree, &step).0, "BridgeNotOurs", "{foreign}: {step}");
            }
            // An alternative name is not the name of a bridge: there is nothing to remove.
            if foreign.contains("altname") {
                execute(tree, &remove());
            } else {
                assert_eq!(refusal(tree, &remove()).0, "BridgeNotOurs");
            }
            assert_eq!(shell("ip -d -j link"), before);
        });
    }
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn ports_of_others_are_kept() {
    with_uplink(|tree| {
        assert_eq!(refusal(tree, &attach()).0, "BridgeNotFound");
        shell("ip link add cni0 type bridge; ip link set uplink master cni0");
        execute(tree, &create());
        let (reason, text) = refusal(tree, &attach());
        assert_eq!(reason, "UplinkOfOtherBridge");
        assert!(text.contains("uplink is a member of cni0"), "{text}");
        execute(tree, &detach());
        assert_eq!(iproute("uplink").unwrap()["master"], "cni0");

        shell(
            "ip link set uplink nomaster; ip link add pod0 type veth peer name pod1; ip link set pod0 master br0",
        );
        execute(tree, &attach());
        let names: Vec<String> = read_bridge().ports.into_iter().map(|port| port.name).collect();
        assert_eq!(names, ["pod0", "uplink"]);
        execute(tree, &detach());
        let (reason, text) = refusal(tree, &remove());
        assert!(reason == "BridgeInUse" && text.contains("pod0"), "{text}");
        assert_eq!(iproute("pod0").unwrap()["master"], "br0");
        shell("ip link del pod0");
        execute(tree, &remove());
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn the_master_of_a_pf_is_a_fact() {
    with_uplink(|tree| {
        let read_master = || {
            let network = Network::read(tree.root(), &[], None).unwrap();
            let card = card::read(tree.root(), pf(), CardKind::Pf { total_vfs: 8 }, &network).unwrap();
            card.unwrap().0.link.unwrap().master
        };
        assert_eq!(read_master(), None);
        execute(tree, &create());
        execute(tree, &attach());
        assert_eq!(read_master(), Some(Master { name: "br0".to_owned(), kind: "bridge".to_owned() }));
    });
}
