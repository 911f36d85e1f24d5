//! Software bridges: creation, settings, take-over, removal, and what is left alone.

mod boot;
mod go_store;
mod mtu;
mod record;
mod unconfigured;

use std::collections::{BTreeMap, BTreeSet};

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::standalone::recorded_spec;
use vfleet_plan::{
    BridgeKind, Disruption, EswitchMode, Fact, HostFacts, HostUse, LinuxBridgeFacts, LinuxPortFacts, Master,
    NodeOptions, OvsBridgeFacts, OvsDatabase, OvsFacts, OvsInterfaceFacts, OvsPortFacts, Plan,
    RecordedBridge, Step, plan_node_with, report, verified_bridges,
};

use super::machine::{PF, machine, nothing, pf, reasons, recorded, steps, two};

const BRIDGE: &str = "br-0000_3b_00.0";
const OPTIONS: NodeOptions =
    NodeOptions { firmware_reset: false, mellanox: true, manage_bridges: true, ovs_offload: false };

fn ovs_spec(bridge: &str, interface: &str) -> SriovNetworkNodeStateSpec {
    with_bridges(&format!(
        "ovs: [{{name: {BRIDGE}, bridge: {{{bridge}}}, uplinks: [{{pciAddress: '{PF}', name: ens1f0, interface: {{{interface}}}}}]}}]"
    ))
}

fn linux_spec(bridge: &str, uplink: &str) -> SriovNetworkNodeStateSpec {
    with_bridges(&format!(
        "linux: [{{name: {BRIDGE}, bridge: {{{bridge}}}, uplinks: [{{pciAddress: '{PF}', name: ens1f0, uplink: {{{uplink}}}}}]}}]"
    ))
}

fn with_bridges(bridges: &str) -> SriovNetworkNodeStateSpec {
    let mut spec = no_bridge();
    spec.bridges = Some(serde_saphyr::from_str(&format!("{{{bridges}}}")).unwrap());
    spec
}

fn no_bridge() -> SriovNetworkNodeStateSpec {
    let mut spec = two("");
    spec.interfaces.as_mut().unwrap()[0].e_switch_mode = Some("switchdev".to_owned());
    spec
}

/// Returns a machine in switchdev mode whose VFs are configured, with an empty Open vSwitch.
fn switch(record: Option<RecordedBridge>) -> HostFacts {
    let mut card = pf(2);
    card.eswitch = Fact::Value(EswitchMode::Switchdev);
    let mut facts = recorded(machine(card), &no_bridge());
    facts.records[0].bridge = record;
    facts.records[0].original.eswitch = Some(EswitchMode::Legacy);
    facts.bridges.ovs = OvsFacts::Database(OvsDatabase { has_offload: true, ..OvsDatabase::default() });
    facts
}

fn record(kind: BridgeKind) -> RecordedBridge {
    RecordedBridge { kind, name: BRIDGE.to_owned(), port_settings: BTreeSet::new() }
}

fn plan(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Plan {
    plan_node_with(spec, facts, &OPTIONS)
}

/// Returns the steps on bridges.
fn bridge_steps(plan: &Plan) -> Vec<String> {
    steps(plan).into_iter().filter(|text| text.contains("bridge")).collect()
}

fn database(facts: &mut HostFacts) -> &mut OvsDatabase {
    match &mut facts.bridges.ovs {
        OvsFacts::Database(database) => database,
        other => panic!("{other:?}"),
    }
}

fn port(name: &str) -> OvsPortFacts {
    let interface = OvsInterfaceFacts { name: name.to_owned(), ..Default::default() };
    OvsPortFacts { name: name.to_owned(), interfaces: vec![interface], ..Default::default() }
}

fn not_running() -> OvsFacts {
    OvsFacts::NotRunning { socket: "/run/openvswitch/db.sock".to_owned() }
}

/// Returns a database with a bridge of somebody else that has the name of ours and the PF as port.
fn foreign_bridge_of_our_name() -> OvsDatabase {
    let ports = vec![port(BRIDGE), port("ens1f0")];
    let bridge = OvsBridgeFacts { name: BRIDGE.to_owned(), ports, ..Default::default() };
    OvsDatabase { bridges: vec![bridge], has_offload: true, ..Default::default() }
}

/// Adds a bridge to the database, as the step creates it.
fn apply(facts: &mut HostFacts, plan: &Plan) {
    let change = plan.steps.iter().find_map(|planned| match &planned.step {
        Step::SetOvsBridge { bridge, .. } => Some(bridge.clone()),
        _ => None,
    });
    let change = change.expect("the plan configures a bridge");
    let bridges = &mut database(facts).bridges;
    let mut bridge = match bridges.iter().position(|bridge| bridge.name == change.name) {
        Some(at) => bridges.remove(at),
        None => OvsBridgeFacts {
            name: change.name.clone(),
            ports: vec![port(&change.name)],
            ..Default::default()
        },
    };
    bridge.fail_mode = change.fail_mode;
    bridge.datapath_type = change.datapath_type;
    bridge.external_ids = change.external_ids.apply(&bridge.external_ids);
    bridge.other_config = change.other_config.apply(&bridge.other_config);
    if !bridge.ports.iter().any(|port| port.name == change.uplink.name) {
        bridge.ports.push(port(&change.uplink.name));
    }
    let uplink = bridge.ports.iter_mut().find(|port| port.name == change.uplink.name).unwrap();
    uplink.external_ids = change.uplink.port_external_ids.apply(&uplink.external_ids);
    let interface = &mut uplink.interfaces[0];
    interface.type_ = change.uplink.type_;
    interface.options = change.uplink.options.apply(&interface.options);
    interface.external_ids = change.uplink.external_ids.apply(&interface.external_ids);
    interface.other_config = change.uplink.other_config.apply(&interface.other_config);
    interface.mtu_request = change.uplink.mtu_request;
    bridge.ports.retain(|port| !change.stale_ports.contains(&port.name));
    bridges.push(bridge);
    facts.records[0].bridge = Some(record(BridgeKind::Ovs));
}

/// Executes the steps of a plan that write records.
fn write_records(facts: &mut HostFacts, plan: &Plan) {
    for planned in &plan.steps {
        if let Step::WriteRecord { record } = &planned.step {
            facts.records = vec![record.clone()];
        }
    }
}

/// Returns a machine with the bridge of `spec`.
fn with_ovs_bridge(spec: &SriovNetworkNodeStateSpec) -> HostFacts {
    let mut facts = switch(None);
    let first = plan(spec, &facts);
    apply(&mut facts, &first);
    facts
}

fn linux_bridge(alias: bool, ports: &[&str]) -> LinuxBridgeFacts {
    LinuxBridgeFacts {
        name: BRIDGE.to_owned(),
        alias: alias.then(|| format!("vfleet bridge of {PF}")),
        group: 0,
        vlan_filtering: false,
        vlan_protocol: Some(vfleet_api::bridge::BridgeVlanProtocol::Ieee8021Q),
        mtu: 1500,
        admin_up: true,
        accepts_ra: false,
        ports: ports
            .iter()
            .map(|name| LinuxPortFacts { name: (*name).to_owned(), settings: BTreeMap::new() })
            .collect(),
    }
}

fn with_linux_bridge(ports: &[&str]) -> HostFacts {
    let mut facts = switch(Some(record(BridgeKind::Linux)));
    facts.bridges.linux = vec![linux_bridge(true, ports)];
    if ports.contains(&"ens1f0") {
        set_master(&mut facts, BRIDGE, "bridge");
    }
    facts
}

fn set_master(facts: &mut HostFacts, name: &str, kind: &str) {
    let link = facts.pfs[0].link.as_mut().unwrap();
    link.master = Some(Master { name: name.to_owned(), kind: kind.to_owned() });
}

#[test]
fn an_ovs_bridge_is_created_between_the_pf_and_its_vfs() {
    let spec = ovs_spec("datapathType: system", "mtuRequest: 9000");
    let mut facts = machine(pf(0));
    facts.bridges.ovs = OvsFacts::Database(OvsDatabase::default());
    let texts = steps(&plan(&spec, &facts));
    let at = |start: &str| {
        texts.iter().position(|text| text.starts_with(start)).unwrap_or_else(|| panic!("{texts:?}"))
    };
    let bridge = at("create Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0");
    assert!(at("set 0000:3b:00.0 eswitch mode switchdev") < bridge, "{texts:?}");
    assert!(bridge < at("bind 0000:3b:00.0 vf 0"), "{texts:?}");
}

#[test]
fn vfs_are_configured_although_their_bridge_is_not_possible() {
    for ovs in [not_running(), OvsFacts::Database(foreign_bridge_of_our_name())] {
        let mut facts = machine(pf(0));
        facts.bridges.ovs = ovs;
        let plan = plan(&ovs_spec("", ""), &facts);
        assert_eq!((bridge_steps(&plan).len(), plan.problems.len()), (0, 1), "{:?}", plan.problems);
        let texts = steps(&plan);
        assert!(texts.iter().any(|text| text.starts_with("bind 0000:3b:00.0 vf 1")), "{texts:?}");
    }
}

#[test]
fn a_configured_ovs_bridge_needs_no_steps() {
    let spec = ovs_spec("externalIDs: {a: b}, failMode: secure", "options: {x: y}, mtuRequest: 9000");
    let facts = with_ovs_bridge(&spec);
    let again = plan(&spec, &facts);
    assert_eq!((bridge_steps(&again), reasons(&again)), (vec![], vec![]));
}

#[test]
fn settings_change_in_place_and_keys_that_the_policy_gave_up_are_removed() {
    let mut facts =
        with_ovs_bridge(&ovs_spec("externalIDs: {a: b, c: d}, failMode: secure", "mtuRequest: 9000"));
    database(&mut facts).bridges[0].external_ids.insert("foreign".to_owned(), "kept".to_owned());
    database(&mut facts).bridges[0].ports.push(port("pod1"));
    let spec = ovs_spec("externalIDs: {a: x}", "");
    let changed = plan(&spec, &facts);
    assert_eq!(changed.disruption(), Disruption::Pf);
    apply(&mut facts, &changed);
    let bridge = database(&mut facts).bridges[0].clone();
    assert_eq!(bridge.external_ids.get("a").map(String::as_str), Some("x"));
    assert!(!bridge.external_ids.contains_key("c"));
    assert_eq!(bridge.external_ids.get("foreign").map(String::as_str), Some("kept"));
    assert_eq!((bridge.fail_mode.as_deref(), bridge.ports[1].interfaces[0].mtu_request), (None, None));
    assert_eq!(bridge_steps(&plan(&spec, &facts)), Vec::<String>::new());
}

#[test]
fn settings_that_others_made_are_kept_if_the_policy_has_none() {
    let spec = ovs_spec("", "");
    let mut facts = with_ovs_bridge(&spec);
    database(&mut facts).bridges[0].fail_mode = Some("secure".to_owned());
    assert_eq!(bridge_steps(&plan(&spec, &facts)), Vec::<String>::new());
}

#[test]
fn a_bridge_taken_out_of_the_policy_goes_and_its_vfs_stay() {
    let facts = with_ovs_bridge(&ovs_spec("", ""));
    let removed = plan(&no_bridge(), &facts);
    assert_eq!(steps(&removed), ["remove Open vSwitch bridge br-0000_3b_00.0"]);
    assert_eq!(removed.disruption(), Disruption::Pf);
    let gate_off = NodeOptions { manage_bridges: false, ..OPTIONS };
    let removed = plan_node_with(&ovs_spec("", ""), &facts, &gate_off);
    assert_eq!(steps(&removed), ["remove Open vSwitch bridge br-0000_3b_00.0"]);
}

#[test]
fn a_bridge_in_use_asks_for_a_drain_and_stays_without_its_uplink_while_a_port_is_left() {
    let mut facts = with_ovs_bridge(&ovs_spec("", ""));
    database(&mut facts).bridges[0].ports.push(port("pod1"));
    for spec in [no_bridge(), ovs_spec("datapathType: netdev", ""), linux_spec("", "")] {
        let first = plan(&spec, &facts);
        assert_eq!(bridge_steps(&first), ["remove port ens1f0 from Open vSwitch bridge br-0000_3b_00.0"]);
        assert_eq!((first.disruption(), reasons(&first)), (Disruption::Drain, vec![]));
        let mut detached = facts.clone();
        database(&mut detached).bridges[0].ports.retain(|port| port.name != "ens1f0");
        let second = plan(&spec, &detached);
        assert_eq!((bridge_steps(&second), reasons(&second)), (vec![], vec!["BridgeInUse"]));
        assert!(second.problems[0].to_string().contains("pod1"), "{}", second.problems[0]);
        database(&mut detached).bridges[0].ports.retain(|port| port.name != "pod1");
        let third = plan(&spec, &detached);
        assert_eq!(bridge_steps(&third)[0], "remove Open vSwitch bridge br-0000_3b_00.0");
        assert_eq!(third.disruption(), Disruption::Pf);
    }
}

#[test]
fn a_reset_removes_the_bridge_first_and_the_record_last() {
    let facts = with_ovs_bridge(&ovs_spec("", ""));
    let reset = steps(&plan(&nothing(), &facts));
    assert_eq!(reset[0], "remove Open vSwitch bridge br-0000_3b_00.0");
    assert_eq!(reset.last().map(String::as_str), Some("remove state file of 0000:3b:00.0"));
}

#[test]
fn a_reset_keeps_the_record_while_open_vswitch_cannot_be_read() {
    let mut facts = with_ovs_bridge(&ovs_spec("", ""));
    facts.bridges.ovs = not_running();
    let reset = plan(&nothing(), &facts);
    assert_eq!(reasons(&reset), ["OvsNotRunning"]);
    assert!(!steps(&reset).iter().any(|text| text.starts_with("remove state file")), "{:?}", steps(&reset));
}

#[test]
fn the_rule_for_network_manager_does_not_hit_a_bridge_of_somebody_else() {
    let path = format!("/etc/udev/rules.d/10-nm-bridge-{PF}.rules");
    let removes_rule = |plan: &Plan| {
        let is_removal =
            |step: &Step| matches!(step, Step::RemoveFile { path: removed, .. } if *removed == path);
        plan.steps.iter().any(|planned| is_removal(&planned.step))
    };
    for spec in [ovs_spec("", ""), linux_spec("", "")] {
        let mut facts = switch(None);
        facts.files.insert(path.clone(), String::new());
        assert!(!removes_rule(&plan(&spec, &facts)));
        facts.bridges.ovs = OvsFacts::Database(foreign_bridge_of_our_name());
        let taken = plan(&spec, &facts);
        assert_eq!(reasons(&taken), ["BridgeNotOurs"]);
        assert!(removes_rule(&taken));
    }
}

#[test]
fn a_bridge_is_verified_only_in_the_desired_eswitch_mode() {
    let spec = ovs_spec("", "");
    let mut facts = with_ovs_bridge(&spec);
    let verified = |facts: &HostFacts| !verified_bridges(&spec, facts).is_empty();
    assert!(verified(&facts));
    for (mode, expected) in
        [(Fact::Value(EswitchMode::Legacy), false), (Fact::None, false), (Fact::Unknown, true)]
    {
        facts.pfs[0].eswitch = mode;
        assert_eq!(verified(&facts), expected, "{mode:?}");
    }
}

#[test]
fn bridges_are_reported_while_vfleet_manages_their_pf() {
    let reported = |facts: &HostFacts| {
        let last = report::bridges(&with_ovs_bridge(&ovs_spec("", "")), None);
        let bridges = report::bridges(facts, Some(&last));
        bridges.ovs.into_iter().flatten().count() + bridges.linux.into_iter().flatten().count()
    };
    let mut stopped = with_ovs_bridge(&ovs_spec("", ""));
    stopped.bridges.ovs = not_running();
    for facts in [with_ovs_bridge(&ovs_spec("", "")), with_linux_bridge(&["ens1f0"]), stopped] {
        assert_eq!((reported(&facts), recorded_spec(&facts).bridges.is_some()), (1, true));
        let mut external = facts.clone();
        external.records[0].interface.externally_managed = Some(true);
        assert_eq!((reported(&external), recorded_spec(&external).bridges), (0, None));
        let released = HostFacts { records: Vec::new(), ..facts };
        assert_eq!((reported(&released), recorded_spec(&released).bridges), (0, None));
    }
}

#[test]
fn an_ovs_that_does_not_follow_and_an_uplink_in_error_are_problems() {
    let spec = ovs_spec("", "");
    let mut facts = with_ovs_bridge(&spec);
    database(&mut facts).is_behind = true;
    assert_eq!(reasons(&plan(&spec, &facts)), ["OvsNotFollowing"]);
    database(&mut facts).bridges[0].ports[1].interfaces[0].error = Some("unknown type dpdk".to_owned());
    assert_eq!(reasons(&plan(&spec, &facts)), ["UplinkFailed"]);
}

#[test]
fn a_bridge_that_ovs_vswitchd_cannot_create_is_a_problem_that_names_the_datapath_type() {
    for (type_, shown) in [("", "system"), ("nonsense", "nonsense")] {
        let spec = ovs_spec(&format!("datapathType: '{type_}'"), "");
        let mut facts = with_ovs_bridge(&spec);
        database(&mut facts).bridges[0].lacks_datapath = true;
        let failed = plan(&spec, &facts);
        assert_eq!((bridge_steps(&failed), reasons(&failed)), (vec![], vec!["DatapathFailed"]));
        let text = failed.problems[0].to_string();
        assert!(text.contains(&format!("br-0000_3b_00.0 with datapath type {shown}")), "{text}");
    }
}

#[test]
fn a_removal_that_ovs_vswitchd_does_not_apply_is_a_problem_and_no_other_bridge_follows() {
    let mut facts = switch(Some(record(BridgeKind::Ovs)));
    database(&mut facts).is_behind = true;
    for spec in [no_bridge(), linux_spec("", ""), nothing()] {
        let removed = plan(&spec, &facts);
        assert_eq!((bridge_steps(&removed), reasons(&removed)), (vec![], vec!["OvsNotFollowing"]));
        assert!(!steps(&removed).iter().any(|text| text.starts_with("remove state file")));
    }
}

#[test]
fn a_port_of_open_vswitch_waits_for_the_name_of_its_interface() {
    let spec = ovs_spec("", "");
    let mut facts = with_ovs_bridge(&spec);
    let link = facts.pfs[0].link.as_mut().unwrap();
    (link.name, link.is_named) = ("eth0".to_owned(), false);
    let waiting = plan(&spec, &facts);
    assert_eq!((bridge_steps(&waiting), reasons(&waiting)), (vec![], vec!["NoInterface"]));
    facts.pfs[0].link.as_mut().unwrap().is_named = true;
    let renamed = plan(&spec, &facts);
    assert_eq!(bridge_steps(&renamed), ["configure Open vSwitch bridge br-0000_3b_00.0 with uplink eth0"]);
}

#[test]
fn bridges_and_ports_of_others_are_left_alone() {
    let foreign = OvsBridgeFacts {
        name: BRIDGE.to_owned(),
        ports: vec![port(BRIDGE), port("ens1f0")],
        ..Default::default()
    };
    let mut facts = switch(Some(record(BridgeKind::Ovs)));
    database(&mut facts).bridges = vec![foreign.clone()];
    let taken = plan(&ovs_spec("", ""), &facts);
    assert_eq!((bridge_steps(&taken), reasons(&taken)), (vec![], vec!["BridgeNotOurs"]));
    assert_eq!(bridge_steps(&plan(&no_bridge(), &facts)), Vec::<String>::new());

    database(&mut facts).bridges = vec![OvsBridgeFacts { name: "br-ex".to_owned(), ..foreign }];
    let other = plan(&ovs_spec("", ""), &facts);
    assert_eq!((bridge_steps(&other), reasons(&other)), (vec![], vec!["UplinkOfOtherBridge"]));
}

#[test]
fn a_pf_with_a_master_or_in_use_is_left_alone() {
    for spec in [ovs_spec("", ""), linux_spec("", "")] {
        let mut facts = switch(None);
        set_master(&mut facts, "bond0", "bond");
        let bond = plan(&spec, &facts);
        assert_eq!((bridge_steps(&bond), reasons(&bond)), (vec![], vec!["UplinkOfOtherBridge"]));
        let mut facts = switch(None);
        facts.pfs[0].link.as_mut().unwrap().host_use = Some(HostUse::DefaultRoute);
        let used = plan(&spec, &facts);
        assert_eq!((bridge_steps(&used), reasons(&used)), (vec![], vec!["PfInUse"]));
    }
}

/// A port of a userspace datapath has no master in the kernel, and a datapath whose bridges are gone keeps its ports.
#[test]
fn a_port_of_a_foreign_open_vswitch_bridge_is_left_there() {
    let foreign = OvsBridgeFacts {
        name: "br-ex".to_owned(),
        datapath_type: "netdev".to_owned(),
        ports: vec![port("br-ex"), port("ens1f0")],
        ..Default::default()
    };
    for spec in [ovs_spec("", ""), linux_spec("", "")] {
        for master in [None, Some("ovs-system")] {
            let mut facts = switch(None);
            database(&mut facts).bridges = vec![foreign.clone()];
            if let Some(master) = master {
                set_master(&mut facts, master, "openvswitch");
            }
            let left = plan(&spec, &facts);
            assert_eq!((bridge_steps(&left), reasons(&left)), (vec![], vec!["UplinkOfOtherBridge"]));
            assert!(left.problems[0].to_string().contains("ovs-vsctl del-port br-ex ens1f0"));
        }
    }
    let mut facts = switch(None);
    set_master(&mut facts, "ovs-system", "openvswitch");
    assert_eq!(reasons(&plan(&linux_spec("", ""), &facts)), ["UplinkOfOtherBridge"]);
    assert_eq!(bridge_steps(&plan(&ovs_spec("", ""), &facts)).len(), 1);
}

#[test]
fn a_key_of_the_policy_with_the_name_of_our_mark_is_ignored() {
    let mut facts = with_ovs_bridge(&ovs_spec("externalIDs: {vfleet.io/uplink: x}", ""));
    let spec = ovs_spec("", "");
    let changed = plan(&spec, &facts);
    apply(&mut facts, &changed);
    assert_eq!(bridge_steps(&plan(&spec, &facts)), Vec::<String>::new());
}

#[test]
fn a_linux_bridge_is_created_configured_and_attached() {
    let spec = linux_spec("vlanFiltering: true, vlanProtocol: '802.1ad'", "learning: 'off'");
    let created = plan(&spec, &switch(None));
    assert_eq!(
        bridge_steps(&created),
        [
            "create Linux bridge br-0000_3b_00.0",
            "configure Linux bridge br-0000_3b_00.0: vlan_filtering on, vlan_protocol 802.1ad, mtu 1500",
            "attach 0000:3b:00.0 to Linux bridge br-0000_3b_00.0",
            "configure 0000:3b:00.0 as port of Linux bridge br-0000_3b_00.0: learning off",
        ]
    );
    assert_eq!(created.disruption(), Disruption::Pf);
}

#[test]
fn port_settings_that_the_policy_gave_up_get_the_default_of_the_kernel() {
    let mut facts = with_linux_bridge(&["ens1f0"]);
    facts.bridges.linux[0].ports[0].settings.insert("learning".to_owned(), "off".to_owned());
    assert_eq!(bridge_steps(&plan(&linux_spec("", "learning: 'off'"), &facts)), Vec::<String>::new());
    let untouched = plan(&linux_spec("", ""), &facts);
    assert_eq!(bridge_steps(&untouched), Vec::<String>::new(), "vfleet did not change it");
    facts.records[0].bridge.as_mut().unwrap().port_settings.insert("learning".to_owned());
    assert_eq!(
        bridge_steps(&plan(&linux_spec("", ""), &facts)),
        ["configure 0000:3b:00.0 as port of Linux bridge br-0000_3b_00.0: learning on"]
    );
    facts.bridges.linux[0].ports[0].settings.clear();
    let unknown = plan(&linux_spec("", ""), &facts);
    assert_eq!(bridge_steps(&unknown), Vec::<String>::new(), "this kernel does not have the setting");
    assert_eq!(unknown.problems, []);
}

#[test]
fn a_port_that_only_the_datapath_of_open_vswitch_has_is_named_with_the_command_that_removes_it() {
    let mut facts = switch(None);
    set_master(&mut facts, "ovs-system", "openvswitch");
    let left = plan(&linux_spec("", ""), &facts);
    assert_eq!((bridge_steps(&left), reasons(&left)), (vec![], vec!["UplinkOfOtherBridge"]));
    let text = left.problems[0].to_string();
    assert!(text.contains("`ovs-dpctl del-if ovs-system ens1f0`"), "{text}");
    facts.bridges.ovs = OvsFacts::NotRunning { socket: "/run/openvswitch/db.sock".to_owned() };
    let text = plan(&linux_spec("", ""), &facts).problems[0].to_string();
    assert!(text.contains("member of ovs-system") && !text.contains("ovs-dpctl"), "{text}");
}

/// The row of our Open vSwitch bridge is in error then, and its removal does not free the PF.
#[test]
fn a_pf_in_a_linux_bridge_of_others_is_left_there_whatever_row_open_vswitch_has() {
    let mut facts = with_ovs_bridge(&ovs_spec("", ""));
    set_master(&mut facts, "br0", "bridge");
    let left = plan(&linux_spec("", ""), &facts);
    assert_eq!(reasons(&left), ["UplinkOfOtherBridge"]);
    assert_eq!(bridge_steps(&left), ["remove Open vSwitch bridge br-0000_3b_00.0"]);
}

/// The kernel refuses it at every attempt.
#[test]
fn mac_authentication_bypass_on_a_port_that_is_not_locked_is_invalid() {
    let plan = plan(&linux_spec("", "mab: 'on'"), &switch(None));
    assert_eq!((bridge_steps(&plan), reasons(&plan)), (vec![], vec!["InvalidSpec"]));
    assert!(plan.problems[0].to_string().contains("set locked to on"), "{}", plan.problems[0]);
}

fn set_carrier(facts: &mut HostFacts, has_carrier: bool, speed: Option<u32>) {
    let link = facts.pfs[0].link.as_mut().unwrap();
    (link.has_carrier, link.speed) = (has_carrier, speed);
}

#[test]
fn the_state_of_a_port_is_set_while_there_is_a_carrier_whatever_the_speed() {
    let mut facts = with_linux_bridge(&["ens1f0"]);
    facts.bridges.linux[0].ports[0].settings.insert("state".to_owned(), "disabled".to_owned());
    let spec = linux_spec("", "state: learning");
    facts.records[0].bridge.as_mut().unwrap().port_settings.insert("state".to_owned());
    set_carrier(&mut facts, false, None);
    assert_eq!(bridge_steps(&plan(&spec, &facts)), Vec::<String>::new());
    set_carrier(&mut facts, true, None);
    assert_eq!(
        bridge_steps(&plan(&spec, &facts)),
        ["configure 0000:3b:00.0 as port of Linux bridge br-0000_3b_00.0: state learning"]
    );
}

/// A cost that is set does not follow the speed anymore.
#[test]
fn a_cost_that_the_policy_gave_up_gets_its_default_when_the_speed_is_known() {
    let mut facts = with_linux_bridge(&["ens1f0"]);
    facts.bridges.linux[0].ports[0].settings.insert("cost".to_owned(), "77".to_owned());
    facts.records[0].bridge.as_mut().unwrap().port_settings.insert("cost".to_owned());
    set_carrier(&mut facts, false, None);
    let unknown = plan(&linux_spec("", ""), &facts);
    assert_eq!(steps(&unknown), Vec::<String>::new(), "the record keeps the setting");
    for (speed, cost) in [(Some(25_000), "1"), (None, "100")] {
        set_carrier(&mut facts, true, speed);
        let known = plan(&linux_spec("", ""), &facts);
        assert_eq!(
            bridge_steps(&known),
            [format!("configure 0000:3b:00.0 as port of Linux bridge br-0000_3b_00.0: cost {cost}")]
        );
        let written = known.steps.iter().rev().find_map(|planned| match &planned.step {
            Step::WriteRecord { record } => Some(record.bridge.clone()),
            _ => None,
        });
        assert_eq!(written, Some(Some(record(BridgeKind::Linux))), "the setting is given up");
    }
}

#[test]
fn a_linux_bridge_that_accepts_router_advertisements_is_configured() {
    let mut facts = with_linux_bridge(&["ens1f0"]);
    assert_eq!(bridge_steps(&plan(&linux_spec("", ""), &facts)), Vec::<String>::new());
    facts.bridges.linux[0].accepts_ra = true;
    let texts = bridge_steps(&plan(&linux_spec("", ""), &facts));
    assert!(texts.len() == 1 && texts[0].starts_with("configure Linux bridge br-0000_3b_00.0"), "{texts:?}");
}

#[test]
fn a_linux_bridge_without_our_alias_is_left_alone() {
    let mut facts = switch(Some(record(BridgeKind::Linux)));
    facts.bridges.linux = vec![linux_bridge(false, &[])];
    assert_eq!(reasons(&plan(&linux_spec("", ""), &facts)), ["BridgeNotOurs"]);
    assert_eq!(bridge_steps(&plan(&no_bridge(), &facts)), Vec::<String>::new());
    facts.bridges.linux[0].group = LinuxBridgeFacts::NEW_GROUP;
    let begun = plan(&linux_spec("", ""), &facts);
    assert_eq!(
        bridge_steps(&begun)[0],
        "create Linux bridge br-0000_3b_00.0",
        "an interrupted step is repeated"
    );
}

#[test]
fn a_linux_bridge_in_use_keeps_its_ports() {
    let facts = with_linux_bridge(&["ens1f0", "pod1"]);
    let first = plan(&no_bridge(), &facts);
    assert_eq!(bridge_steps(&first), ["detach 0000:3b:00.0 from Linux bridge br-0000_3b_00.0"]);
    assert_eq!(first.disruption(), Disruption::Drain);
    let second = plan(&no_bridge(), &with_linux_bridge(&["pod1"]));
    assert_eq!((bridge_steps(&second), reasons(&second)), (vec![], vec!["BridgeInUse"]));
    let free = plan(&no_bridge(), &with_linux_bridge(&["ens1f0"]));
    assert_eq!(free.disruption(), Disruption::Pf);
    assert_eq!(bridge_steps(&free).len(), 2);
}

#[test]
fn the_kind_of_a_bridge_changes_in_one_plan() {
    let facts = with_linux_bridge(&["ens1f0"]);
    let changed = plan(&ovs_spec("", ""), &facts);
    assert_eq!(
        bridge_steps(&changed),
        [
            "detach 0000:3b:00.0 from Linux bridge br-0000_3b_00.0",
            "remove Linux bridge br-0000_3b_00.0",
            "create Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0",
        ]
    );
    assert_eq!(reasons(&changed), Vec::<&str>::new());
}

#[test]
fn nothing_is_planned_for_externally_managed_pfs() {
    let mut spec = ovs_spec("", "");
    spec.interfaces.as_mut().unwrap()[0].externally_managed = Some(true);
    for facts in [switch(None), with_linux_bridge(&["ens1f0"]), with_ovs_bridge(&ovs_spec("", ""))] {
        assert_eq!(bridge_steps(&plan(&spec, &facts)), Vec::<String>::new());
    }
}

#[test]
fn hardware_offload_is_enabled_with_switchdev_mode() {
    let mut facts = switch(None);
    database(&mut facts).has_offload = false;
    let offload = |spec: &SriovNetworkNodeStateSpec, facts: &HostFacts| {
        let options = NodeOptions { ovs_offload: true, manage_bridges: false, ..OPTIONS };
        let plan = plan_node_with(spec, facts, &options);
        plan.steps.iter().any(|planned| planned.step == Step::EnableOvsOffload)
    };
    assert!(offload(&no_bridge(), &facts));
    assert!(!offload(&two(""), &facts));
    database(&mut facts).has_offload = true;
    assert!(!offload(&no_bridge(), &facts));
}
