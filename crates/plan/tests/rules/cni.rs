//! Properties of the CNI plugins for random configurations and facts, and rules that cases cannot describe.

#[path = "../cni/attach.rs"]
mod attach;
#[path = "../cni/model.rs"]
mod model;
mod ports;
#[path = "../cni/settle.rs"]
mod settle;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use vfleet_api::MacAddr;
use vfleet_plan::cni::attachment::{AddPlan, is_abandoned, plan_gc, plan_ovs_status, plan_status};
use vfleet_plan::cni::config::ValidAttachment;
use vfleet_plan::cni::facts::{
    AttachmentFacts, HolderNamespace, NamespaceFacts, NamespaceId, OvsSocket, OvsSwitchFacts,
};
use vfleet_plan::cni::journal::{AttachmentKey, DeviceChanges, Journal, Phase, Plugin};
use vfleet_plan::cni::protocol::ErrorCode;
use vfleet_plan::cni::step::{CniStep, SwitchStep};

use attach::Attempt;
use model::VfDriver;

const GUIDS: [&str; 4] = [
    "00:00:00:00:00:00:00:00",
    "02:00:00:00:00:00:00:01",
    "02:00:00:00:00:00:aa:01",
    "ff:ff:ff:ff:ff:ff:ff:ff",
];
const MACS: [&str; 3] = ["00:00:00:00:00:00", "02:00:00:00:00:01", "02:00:00:00:aa:01"];

/// Any object with some of these keys.
fn object(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    fields
        .into_iter()
        .map(|(key, value)| {
            prop::option::of(value).prop_map(move |value| value.map(|value| (key.to_owned(), value)))
        })
        .collect::<Vec<_>>()
        .prop_map(|fields| Value::Object(fields.into_iter().flatten().collect()))
        .boxed()
}

fn any_of<T: Clone + std::fmt::Debug + Into<Value> + 'static>(values: &[T]) -> BoxedStrategy<Value> {
    select(values.to_vec()).prop_map(Into::into).boxed()
}

fn merged(mut base: Value, with: &Value) -> Value {
    json_patch::merge(&mut base, with);
    base
}

fn sriov_config() -> BoxedStrategy<Value> {
    object(vec![
        ("vlan", any_of(&[0, 5, 100])),
        ("mac", any_of(&MACS[1..])),
        ("spoofchk", any_of(&["on", "off"])),
        ("trust", any_of(&["on", "off"])),
        ("link_state", any_of(&["auto", "enable", "disable"])),
        ("min_tx_rate", any_of(&[0, 10, 500])),
        ("max_tx_rate", any_of(&[0, 100, 500])),
        ("mtu", any_of(&[1500, 9000])),
    ])
    .prop_map(|fields| {
        merged(
            json!({"cniVersion": "1.0.0", "name": "net", "type": "sriov", "deviceID": "0000:01:10.0"}),
            &fields,
        )
    })
    .boxed()
}

fn alt_names() -> BoxedStrategy<Value> {
    prop::sample::subsequence(vec!["net1", "eth0", "enp1s0v0"], 0..3).prop_map(|names| json!(names)).boxed()
}

fn sriov_facts() -> BoxedStrategy<Value> {
    let settings = object(vec![
        ("mac", any_of(&MACS)),
        (
            "vlan",
            select(vec![0, 5, 100]).prop_map(|id| json!({"id": id, "qos": 0, "protocol": "802.1q"})).boxed(),
        ),
        ("spoofCheck", any_of(&[true, false])),
        ("trust", any_of(&[true, false])),
        ("minTxRate", any_of(&[0, 10])),
        ("maxTxRate", any_of(&[0, 100])),
        ("linkState", any_of(&["auto", "enable"])),
    ]);
    let link = object(vec![
        ("address", any_of(&[json!([2, 0, 0, 0, 0, 1]), json!([2, 0, 0, 0, 0xaa, 1])])),
        ("mtu", any_of(&[1500, 9000])),
        ("altNames", alt_names()),
        ("name", any_of(&["ens1f0v0", "net1"])),
    ])
    .prop_filter("an interface has a name only once", |link| {
        link["name"] != "net1"
            || !link["altNames"].as_array().is_some_and(|names| names.contains(&json!("net1")))
    });
    (settings, link, any::<bool>())
        .prop_map(|(settings, link, is_for_userspace)| {
            let driver = if is_for_userspace { "vfio-pci" } else { "iavf" };
            let link = if is_for_userspace { Value::Null } else { link };
            json!({"device": {"driver": driver, "link": link, "pf": {"settings": settings}}})
        })
        .boxed()
}

fn ib_config() -> BoxedStrategy<Value> {
    object(vec![
        ("runtimeConfig", any_of(&GUIDS[1..]).prop_map(|guid| json!({"infinibandGUID": guid})).boxed()),
        ("link_state", any_of(&["auto", "enable", "disable"])),
        ("rdmaIsolation", any_of(&[true, false])),
    ])
    .prop_map(|fields| {
        merged(
            json!({"cniVersion": "1.0.0", "name": "net", "type": "ib-sriov", "deviceID": "0000:03:00.1"}),
            &fields,
        )
    })
    .boxed()
}

fn ib_facts() -> BoxedStrategy<Value> {
    let settings = object(vec![
        ("nodeGuid", any_of(&GUIDS)),
        ("portGuid", any_of(&GUIDS)),
        ("linkState", any_of(&["auto", "enable"])),
    ]);
    let guid = select(vec![0_u8, 1, 2])
        .prop_map(|last| json!([0, 0, 1, 2, 254, 128, 0, 0, 0, 0, 0, 0, last * 2, 0, 0, 0, 0, 0, 0, last]));
    let link = object(vec![("address", guid.boxed()), ("altNames", alt_names())]);
    (settings, link, any::<bool>())
        .prop_map(|(settings, link, is_for_userspace)| {
            let (driver, link) =
                if is_for_userspace { ("vfio-pci", Value::Null) } else { ("mlx5_core", link) };
            json!({"device": {"driver": driver, "link": link, "pf": {"settings": settings}}})
        })
        .boxed()
}

fn plan(config: &Value, facts: &Value) -> Option<(AddPlan, AttachmentFacts)> {
    let attempt = Attempt {
        config: config.to_string().into_bytes(),
        environment: BTreeMap::new(),
        facts: facts.clone(),
        ovs_file: None,
    };
    let facts = attempt.facts().unwrap();
    Some((attempt.plan(&facts).ok()?, facts))
}

fn executed(plan: &AddPlan, facts: &AttachmentFacts) -> AttachmentFacts {
    let mut facts = facts.clone();
    for step in &plan.steps {
        model::execute(&mut facts, step, VfDriver::AcceptsMac);
    }
    facts
}

proptest! {
    #![proptest_config(crate::config(512))]

    #[test]
    fn a_release_restores_a_vf_from_every_point_of_an_add(config in sriov_config(), facts in sriov_facts()) {
        if let Some((plan, facts)) = plan(&config, &facts) {
            prop_assert_eq!(settle::restores_everything(&plan, &facts), Ok(()));
        }
    }

    #[test]
    fn a_release_restores_an_infiniband_vf_from_every_point_of_an_add(config in ib_config(), facts in ib_facts()) {
        if let Some((plan, facts)) = plan(&config, &facts) {
            prop_assert_eq!(settle::restores_everything(&plan, &facts), Ok(()));
        }
    }

    #[test]
    fn an_add_sets_what_is_configured_and_nothing_else(config in sriov_config(), facts in sriov_facts()) {
        let Some((plan, facts)) = plan(&config, &facts) else { return Ok(()) };
        let is_given = |key: &str| config.get(key).is_some();
        let has_rate = is_given("min_tx_rate") || is_given("max_tx_rate");
        for step in &plan.steps {
            match step {
                CniStep::SetVf { settings, .. } => {
                    for (key, _) in settings.fields() {
                        prop_assert!(is_given(key) || (has_rate && key.ends_with("_rate")), "{}", step);
                    }
                }
                CniStep::SetInterfaceMac { .. } => prop_assert!(is_given("mac"), "{}", step),
                CniStep::SetUpInPod { mtu, mac, .. } => {
                    prop_assert!(mtu.is_none() || is_given("mtu") || is_given("mac"), "{}", step);
                    prop_assert!(mac.is_none() || is_given("mac"), "{}", step);
                }
                CniStep::MoveToPod { .. } => {}
                _ => prop_assert!(false, "{}", step),
            }
        }
        let after = executed(&plan, &facts);
        let DeviceChanges::Sriov(changes) = &plan.journal.changes else { panic!("the plugin is sriov") };
        let stored = after.device.as_ref().and_then(|device| device.pf.as_ref()?.settings).unwrap();
        let reported = changes.original.fields().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        for (key, value) in changes.changed.differing_from(&stored).fields() {
            prop_assert!(!reported.contains(&key) || key.ends_with("_rate"), "{} {} is not set", key, value);
        }
        let NamespaceFacts::Present { links, .. } = &after.namespace else { panic!("the pod has a namespace") };
        if let Some(link) = links.iter().find(|link| link.name == "net1") {
            let interface = plan.interfaces[0].clone();
            prop_assert_eq!(interface.mac, link.mac().map(|mac: MacAddr| mac.to_string()));
            prop_assert_eq!(interface.mtu, Some(link.mtu));
        }
    }

    #[test]
    fn journals_are_read_as_they_were_written(config in sriov_config(), facts in sriov_facts()) {
        if let Some((plan, _)) = plan(&config, &facts) {
            let text = serde_json::to_string(&plan.journal).unwrap();
            prop_assert_eq!(serde_json::from_str::<Journal>(&text).unwrap(), plan.journal);
        }
    }
}

fn key(plugin: Plugin, container_id: &str, interface: &str) -> AttachmentKey {
    AttachmentKey {
        plugin,
        container_id: container_id.to_owned(),
        interface: interface.to_owned(),
        device: Some("0000:01:10.0".parse().unwrap()),
    }
}

#[test]
fn gc_releases_what_is_not_valid_on_its_own_network_and_plugin() {
    let valid = [ValidAttachment { container_id: "a".to_owned(), interface: "net1".to_owned() }];
    let keys = [
        (key(Plugin::Sriov, "a", "net1"), "net"),
        (key(Plugin::Sriov, "a", "net2"), "net"),
        (key(Plugin::Sriov, "b", "net1"), "net"),
        (key(Plugin::Sriov, "b", "net3"), "other"),
        (key(Plugin::Rdma, "b", "net1"), "net"),
        (key(Plugin::Infiniband, "b", "net1"), "net"),
    ];
    let attachments = keys.iter().map(|(key, network)| (key, *network));
    assert_eq!(
        plan_gc(attachments.clone(), "net", Plugin::Sriov, &valid),
        [keys[1].0.clone(), keys[2].0.clone()]
    );
    assert_eq!(plan_gc(attachments.clone(), "net", Plugin::Rdma, &valid), [keys[4].0.clone()]);
    assert_eq!(plan_gc(attachments.clone(), "none", Plugin::Sriov, &valid), []);
    assert_eq!(plan_gc(attachments, "net", Plugin::Sriov, &[]).len(), 3);
}

#[test]
fn only_attachments_whose_namespace_is_gone_are_abandoned() {
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "sriov", "deviceID": "0000:01:10.0"});
    let (plan, _) = plan(&config, &Value::Object(Map::new())).unwrap();
    for phase in [Phase::Attaching, Phase::Attached, Phase::Releasing] {
        let journal = Journal { phase, ..plan.journal.clone() };
        assert!(is_abandoned(&journal, HolderNamespace::Gone, "boot-1"));
        assert!(!is_abandoned(&journal, HolderNamespace::Alive, "boot-1"));
        assert!(!is_abandoned(&journal, HolderNamespace::Unknown, "boot-1"));
        assert!(is_abandoned(&journal, HolderNamespace::Unknown, "boot-2"));
        let of_go = Journal { boot_id: String::new(), ..journal };
        assert!(!is_abandoned(&of_go, HolderNamespace::Unknown, "boot-2"));
        assert!(is_abandoned(&of_go, HolderNamespace::Gone, "boot-2"));
    }
}

#[test]
fn a_cookie_distinguishes_namespaces_if_both_are_known() {
    let id = |cookie| NamespaceId { device: 4, inode: 5, cookie };
    for (one, other, is_same) in [
        (id(Some(1)), id(Some(1)), true),
        (id(Some(1)), id(Some(2)), false),
        (id(Some(1)), id(None), true),
        (id(None), id(None), true),
        (id(None), NamespaceId { inode: 6, ..id(None) }, false),
        (id(Some(1)), NamespaceId { inode: 6, ..id(Some(1)) }, false),
    ] {
        assert!(one.is_same(&other) == is_same && other.is_same(&one) == is_same, "{one:?} {other:?}");
    }
    let earlier = json!({"device": 4, "inode": 5});
    assert_eq!(serde_json::from_value::<NamespaceId>(earlier.clone()).expect("an earlier journal"), id(None));
    assert_eq!(serde_json::to_value(id(None)).expect("JSON"), earlier);
}

#[test]
fn status_fails_only_where_every_add_would_fail() {
    for (plugin, isolates_rdma, is_ready_in_shared_mode) in [
        (Plugin::Sriov, false, true),
        (Plugin::Infiniband, false, true),
        (Plugin::Infiniband, true, false),
        (Plugin::Rdma, false, false),
    ] {
        assert_eq!(plan_status(plugin, isolates_rdma, true), Ok(()));
        let code = plan_status(plugin, isolates_rdma, false).err().map(|error| error.code);
        assert_eq!(code, (!is_ready_in_shared_mode).then_some(ErrorCode::NotAvailable), "{plugin:?}");
    }
}

#[test]
fn status_of_open_vswitch_fails_only_while_it_does_not_answer() {
    let socket = OvsSocket::default();
    assert_eq!(plan_ovs_status(&socket, &OvsSwitchFacts::Running { bridges: Vec::new() }), Ok(()));
    let down = OvsSwitchFacts::Down { reason: "connection refused".to_owned() };
    let error = plan_ovs_status(&socket, &down).unwrap_err();
    assert_eq!(error.code, ErrorCode::NotAvailable);
    assert!(error.message.contains("unix:/var/run/openvswitch/db.sock") && error.message.contains("refused"));
    for plugin in Plugin::ALL {
        assert_eq!(plugin.needs_ovs(), plugin.name().starts_with("ovs"));
    }
}

#[test]
fn every_step_has_a_name() {
    let names: std::collections::BTreeSet<_> = CniStep::KINDS.iter().collect();
    assert_eq!(names.len(), 14);
    let of_switch: std::collections::BTreeSet<_> = SwitchStep::KINDS.iter().collect();
    assert_eq!(of_switch.len(), 18);
    assert!(names.is_disjoint(&of_switch));
}
