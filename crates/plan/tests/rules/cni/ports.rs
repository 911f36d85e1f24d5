//! Properties of the plugins that attach pods to software bridges.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use vfleet_plan::cni::facts::{NamespaceFacts, OVS_OWNER, OWNER_KEY, OvsSwitchFacts};
use vfleet_plan::cni::journal::{DeviceChanges, Journal};
use vfleet_plan::cni::step::{CniStep, SwitchStep};

use super::{any_of, executed, merged, object, plan, settle};

const IDS: [u16; 3] = [1, 5, 100];

fn trunk() -> BoxedStrategy<Value> {
    prop::sample::subsequence(IDS.to_vec(), 0..3)
        .prop_map(|ids| ids.into_iter().map(|id| json!({ "id": id })).collect())
        .boxed()
}

fn ovs_config() -> BoxedStrategy<Value> {
    let device = any_of(&[json!("0000:08:00.2"), Value::Null]);
    let keys = object(vec![
        ("vlan", any_of(&[0, 5, 100])),
        ("trunk", trunk()),
        ("mtu", any_of(&[1500, 9000])),
        ("args", any_of(&[json!({ "cni": { "mac": "02:00:00:00:aa:01" } })])),
    ]);
    (device, any_of(&["br1", "br2"]), keys)
        .prop_map(|(device, bridge, keys)| {
            let mut config = json!({"cniVersion": "1.0.0", "name": "net", "type": "ovs", "bridge": bridge});
            if device.is_string() {
                config["deviceID"] = device;
            }
            merged(config, &keys)
        })
        .boxed()
}

fn bridge_config() -> BoxedStrategy<Value> {
    object(vec![
        ("vlan", any_of(&[0, 1, 100])),
        ("trunk", trunk()),
        ("mtu", any_of(&[1500, 9000])),
        ("mac", any_of(&["02:00:00:00:aa:01"])),
        ("setUplinkVlan", any_of(&[true])),
    ])
    .prop_map(|keys| {
        let config = json!({
            "cniVersion": "1.0.0", "name": "net", "type": "accelerated-bridge", "deviceID": "0000:08:00.2"
        });
        merged(config, &keys)
    })
    .boxed()
}

fn device() -> BoxedStrategy<Value> {
    let settings = object(vec![("mac", any_of(&["00:00:00:00:00:00", "02:00:00:00:08:aa"]))]);
    let link = object(vec![("mtu", any_of(&[1500, 9000])), ("isUp", any_of(&[true]))]);
    (settings, link, any::<bool>())
        .prop_map(|(settings, link, is_for_userspace)| {
            if is_for_userspace {
                json!({"driver": "vfio-pci", "link": null, "pf": {"settings": settings}})
            } else {
                json!({"link": link, "pf": {"settings": settings}})
            }
        })
        .boxed()
}

fn representor() -> BoxedStrategy<Value> {
    object(vec![("mtu", any_of(&[1500, 9000])), ("isUp", any_of(&[true, false]))])
}

/// A port that may be left over, or be one of somebody else.
fn other_port() -> BoxedStrategy<Value> {
    let name = select(vec!["ens1f0_0", "vethdead", "veth0001"]);
    let owner = select(vec![OVS_OWNER, "somebody"]);
    let namespace = select(vec!["gone", "alive", "unknown"]);
    (name, owner, namespace, any::<bool>())
        .prop_map(|(name, owner, namespace, has_error)| {
            let error = has_error.then(|| format!("could not open network device {name} (No such device)"));
            json!({
                "name": name, "externalIds": {"owner": owner, "contNetns": "/run/netns/other", "contIface": "net1"},
                "namespace": namespace, "interfaces": [{"name": name, "ofport": 3, "error": error}]
            })
        })
        .boxed()
}

fn ovs_facts() -> BoxedStrategy<Value> {
    (device(), representor(), prop::option::of(other_port()))
        .prop_map(|(device, representor, other)| {
            let mut ports = vec![json!({"name": "ens1f0", "interfaces": [{"name": "ens1f0", "ofport": 1}]})];
            ports.extend(other);
            let bridges = json!([{"name": "br1", "ports": ports}, {"name": "br2", "ports": []}]);
            json!({"device": device, "switch": {"representor": representor, "ovs": {"bridges": bridges}}})
        })
        .boxed()
}

fn bridge_facts() -> BoxedStrategy<Value> {
    let vlans = prop::sample::subsequence(IDS.to_vec(), 0..4);
    let peer = (select(vec!["attaching", "attached", "releasing", "returned"]), trunk()).prop_map(|(phase, ids)| {
        let ids: Vec<_> = ids.as_array().into_iter().flatten().map(|entry| entry["id"].clone()).collect();
        json!([{
            "containerId": "other", "interface": "net1", "phase": phase,
            "uplink": {"index": 2, "name": "ens1f0", "needed": ids, "added": []}
        }])
    });
    (device(), representor(), vlans, prop::option::of(peer))
        .prop_map(|(device, representor, vlans, peers)| {
            let vlans: Vec<_> = vlans.into_iter().map(|id| json!({ "id": id })).collect();
            let switch = json!({
                "representor": representor, "uplink": {"pf": {"vlans": vlans}}, "peers": peers.unwrap_or(json!([]))
            });
            json!({"device": device, "switch": switch})
        })
        .boxed()
}

/// Facts of a network without a device have none either.
fn for_config(config: &Value, facts: Value) -> Value {
    let mut facts = facts;
    if config.get("deviceID").is_none() {
        facts["device"] = Value::Null;
        if let Some(switch) = facts["switch"].as_object_mut() {
            switch.remove("representor");
        }
    }
    facts
}

proptest! {
    #![proptest_config(crate::config(256))]

    #[test]
    fn a_release_restores_open_vswitch_from_every_point_of_an_add(config in ovs_config(), facts in ovs_facts()) {
        let facts = for_config(&config, facts);
        if let Some((plan, facts)) = plan(&config, &facts) {
            prop_assert_eq!(settle::restores_everything(&plan, &facts), Ok(()));
        }
    }

    #[test]
    fn a_release_restores_a_linux_bridge_from_every_point_of_an_add(
        config in bridge_config(),
        facts in bridge_facts(),
    ) {
        if let Some((plan, facts)) = plan(&config, &facts) {
            prop_assert_eq!(settle::restores_everything(&plan, &facts), Ok(()));
        }
    }

    #[test]
    fn no_port_is_removed_that_is_not_left_over(config in ovs_config(), facts in ovs_facts()) {
        let facts = for_config(&config, facts);
        let Some((plan, facts)) = plan(&config, &facts) else { return Ok(()) };
        let Some(OvsSwitchFacts::Running { bridges }) = facts.switch.and_then(|switch| switch.ovs) else {
            panic!("Open vSwitch runs")
        };
        for step in &plan.steps {
            let CniStep::Switch(SwitchStep::RemoveOvsPort { name, external_ids, .. }) = step else { continue };
            let ports = bridges.iter().flat_map(|bridge| &bridge.ports);
            let removed: Vec<_> =
                ports.filter(|port| port.name == *name && port.has_ids(external_ids)).collect();
            prop_assert_eq!(removed.len(), 1);
            let state = serde_json::to_value(removed[0].namespace).unwrap();
            prop_assert!(external_ids[OWNER_KEY] == OVS_OWNER && state == "gone", "{:?}", removed);
        }
    }

    #[test]
    fn the_result_is_what_the_pod_gets(config in ovs_config(), facts in ovs_facts()) {
        let facts = for_config(&config, facts);
        let Some((plan, facts)) = plan(&config, &facts) else { return Ok(()) };
        let after = executed(&plan, &facts);
        let NamespaceFacts::Present { links, .. } = &after.namespace else { panic!("the pod has a namespace") };
        let [host, in_pod] = plan.interfaces.as_slice() else { panic!("two interfaces") };
        if let Some(link) = links.iter().find(|link| link.name == "net1") {
            prop_assert_eq!(in_pod.mac.clone(), link.mac().map(|mac| mac.to_string()));
            prop_assert_eq!(in_pod.mtu, Some(link.mtu));
        }
        let switch = after.switch.unwrap();
        let end = switch.representor.as_ref().or_else(|| switch.interface(&host.name)).unwrap();
        prop_assert_eq!((&host.name, host.mtu), (&end.name, Some(end.mtu)));
        prop_assert!(end.is_up && host.sandbox.is_none());
        prop_assert_eq!(&host.mac, &end.mac.map(|mac| mac.to_string()));
    }

    #[test]
    fn journals_of_ports_are_read_as_they_were_written(config in ovs_config(), other in bridge_config()) {
        let none = Value::Object(Map::new());
        for config in [config, other] {
            let Some((plan, _)) = plan(&config, &none) else { continue };
            let text = serde_json::to_string(&plan.journal).unwrap();
            prop_assert_eq!(serde_json::from_str::<Journal>(&text).unwrap(), plan.journal);
        }
    }
}

#[test]
fn an_attachment_without_a_device_is_described_by_its_interface() {
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "ovs", "bridge": "br1"});
    let (plan, _) = plan(&config, &Value::Object(Map::new())).unwrap();
    assert_eq!(plan.journal.key.subject(), "interface net1 of container c0ffee");
    assert!(matches!(plan.journal.changes, DeviceChanges::Ovs(_)));
    assert!(plan.journal.changes.runs_ipam() && plan.journal.changes.has_ethernet_interface());
    let fields = plan.journal.changes.fields();
    let keys: Vec<_> = fields.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, ["bridge", "port", "vlan"]);
}
