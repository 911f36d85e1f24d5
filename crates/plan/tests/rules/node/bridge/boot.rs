//! Bridges in systemd mode: what the units create, and what the agent keeps out of their config.

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::boot::{accepted_spec, config_text, kept_bridges};
use vfleet_plan::{
    BootConfig, BootPhase, BootRequest, BootResult, BridgeKind, EswitchMode, Fact, HostFacts, HostUse,
    LingeringUse, NodeOptions, OvsBridgeFacts, OvsDatabase, OvsFacts, Plan, PlannedStep, Step, Target,
    plan_before_network, plan_boot, plan_ovs_at_boot, plan_phase,
};

use super::{
    BRIDGE, OPTIONS, bridge_steps, database, linux_spec, no_bridge, not_running, ovs_spec, plan, port,
    record, set_master, switch, with_linux_bridge, with_ovs_bridge,
};
use crate::node::machine::{PF, address, nothing, pf, reasons, use_vf};

const RULE: &str = "/etc/udev/rules.d/10-nm-bridge-0000:3b:00.0.rules";
const CREATE_OVS: &str = "create Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0";

/// Returns the steps on bridges of both units, on a machine that has just started: there are no addresses, bonds and
/// bridges yet, and Open vSwitch has its database.
fn steps_at_boot(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Vec<String> {
    let mut started = facts.clone();
    started.bridges.linux.clear();
    let link = started.pfs[0].link.as_mut().unwrap();
    (link.master, link.host_use) = (None, None);
    let mut before = started.clone();
    before.bridges.ovs = not_running();
    let before = plan_before_network(spec, &before, &OPTIONS);
    [bridge_steps(&before), bridge_steps(&plan_ovs_at_boot(spec, &started, &OPTIONS))].concat()
}

fn in_use(mut facts: HostFacts) -> HostFacts {
    facts.pfs[0].link.as_mut().unwrap().host_use = Some(HostUse::DefaultRoute);
    facts
}

#[test]
fn at_boot_linux_bridges_come_before_the_network_and_ovs_bridges_after_open_vswitch() {
    let mut facts = switch(None);
    facts.bridges.ovs = not_running();
    let linux = plan_before_network(&linux_spec("", ""), &facts, &OPTIONS);
    assert_eq!(bridge_steps(&linux)[0], "create Linux bridge br-0000_3b_00.0");
    let ovs = plan_before_network(&ovs_spec("", ""), &facts, &OPTIONS);
    assert_eq!((bridge_steps(&ovs), reasons(&ovs)), (vec![], vec![]));
    facts.bridges.ovs = OvsFacts::Database(OvsDatabase::default());
    let ovs = plan_ovs_at_boot(&ovs_spec("", ""), &facts, &OPTIONS);
    assert_eq!(bridge_steps(&ovs), [CREATE_OVS]);
}

/// At boot nothing shows that the node uses the PF, or that it belongs to a bond or a bridge of others.
#[test]
fn a_bridge_that_the_agent_refuses_is_not_created_at_boot() {
    let foreign = |name: &str, ports: &[&str]| {
        let ports = ports.iter().map(|name| port(name)).collect();
        OvsBridgeFacts { name: name.to_owned(), ports, ..Default::default() }
    };
    let mut bond = switch(None);
    set_master(&mut bond, "bond0", "bond");
    let mut bridge = switch(None);
    set_master(&mut bridge, "br0", "bridge");
    let mut port_of_other = switch(None);
    database(&mut port_of_other).bridges = vec![foreign("br-ex", &["br-ex", "ens1f0"])];
    let mut name_taken = switch(None);
    database(&mut name_taken).bridges = vec![foreign(BRIDGE, &[BRIDGE])];
    let mut unreadable_in_use = in_use(switch(None));
    unreadable_in_use.bridges.ovs = OvsFacts::NotRead;
    for (facts, reason) in [
        (in_use(switch(None)), "PfInUse"),
        (bond, "UplinkOfOtherBridge"),
        (bridge, "UplinkOfOtherBridge"),
        (port_of_other, "UplinkOfOtherBridge"),
        (name_taken, "BridgeNotOurs"),
        (unreadable_in_use, ""),
    ] {
        for spec in [ovs_spec("", ""), linux_spec("", "")] {
            let running = plan(&spec, &facts);
            assert!(bridge_steps(&running).is_empty(), "{running:#?}");
            assert!(reason.is_empty() || reasons(&running) == [reason], "{running:#?}");
            for last in [None, Some(&spec)] {
                let accepted = accepted_spec(&spec, &facts, last);
                assert_eq!(accepted, no_bridge(), "{reason}");
                let mut at_boot = facts.clone();
                at_boot.bridges.ovs = OvsFacts::Database(OvsDatabase::default());
                assert_eq!(steps_at_boot(&accepted, &at_boot), Vec::<String>::new(), "{reason}");
                assert_ne!(steps_at_boot(&spec, &at_boot), Vec::<String>::new(), "facts show nothing");
            }
        }
    }
}

#[test]
fn a_bridge_that_is_not_refused_is_created_at_boot() {
    for spec in [ovs_spec("", ""), linux_spec("", "")] {
        assert_eq!(accepted_spec(&spec, &switch(None), None), spec, "a new one");
        assert!(steps_at_boot(&spec, &switch(None))[0].starts_with("create"));
    }
    let facts = in_use(with_ovs_bridge(&ovs_spec("", "")));
    assert_eq!(
        accepted_spec(&ovs_spec("", ""), &facts, None),
        ovs_spec("", ""),
        "the node uses a configured one"
    );
    let facts = in_use(with_linux_bridge(&["ens1f0"]));
    assert_eq!(accepted_spec(&linux_spec("", ""), &facts, None), linux_spec("", ""));
    let mut unreadable = in_use(with_ovs_bridge(&ovs_spec("", "")));
    set_master(&mut unreadable, "ovs-system", "openvswitch");
    unreadable.bridges.ovs = OvsFacts::NotRead;
    assert_eq!(
        accepted_spec(&ovs_spec("", ""), &unreadable, None),
        ovs_spec("", ""),
        "unknown is not absent"
    );
}

/// The node uses the bridge, so the agent neither removes nor replaces it, and it must be there after a reboot.
#[test]
fn a_bridge_that_the_agent_does_not_replace_is_created_at_boot_as_before() {
    let (linux, ovs) = (linux_spec("", ""), ovs_spec("", ""));
    for (facts, last, desired) in [
        (with_linux_bridge(&["ens1f0"]), &linux, no_bridge()),
        (with_linux_bridge(&["ens1f0"]), &linux, ovs.clone()),
        (with_ovs_bridge(&ovs), &ovs, no_bridge()),
        (with_ovs_bridge(&ovs), &ovs, linux.clone()),
        (with_ovs_bridge(&ovs), &ovs, ovs_spec("datapathType: netdev", "")),
    ] {
        let facts = in_use(facts);
        assert_eq!(reasons(&plan(&desired, &facts)), ["PfInUse"]);
        assert_eq!(&accepted_spec(&desired, &facts, Some(last)), last);
        assert_eq!(accepted_spec(&desired, &facts, None).bridges, None, "what it was is not known");
    }
}

/// The PF keeps its state because one of its VFs is in use, and has a bridge only if it had one.
#[test]
fn a_refused_pf_keeps_its_bridge_and_gets_no_new_one_at_boot() {
    let spec = |bridge: &SriovNetworkNodeStateSpec, device_type: &str| {
        let mut spec = bridge.clone();
        let groups = spec.interfaces.as_mut().unwrap()[0].vf_groups.as_mut().unwrap();
        groups[0].device_type = Some(device_type.to_owned());
        spec
    };
    let used = |mut facts: HostFacts| {
        use_vf(&mut facts.pfs[0], 0);
        facts
    };
    let with_bridge = used(with_ovs_bridge(&ovs_spec("", "")));
    let desired = spec(&ovs_spec("", ""), "vfio-pci");
    for (facts, bridges) in [(&with_bridge, ovs_spec("", "").bridges), (&used(switch(None)), None)] {
        let accepted = accepted_spec(&desired, facts, None);
        assert_eq!((accepted.interfaces, accepted.bridges), (no_bridge().interfaces, bridges));
    }
    // The agent does the same while it runs, and repairs the bridge at once.
    let repaired = |facts: &HostFacts| {
        let accepted = accepted_spec(&desired, facts, None);
        let config = config_text(&BootConfig { spec: accepted.clone(), ..Default::default() });
        let request = BootRequest {
            spec: &desired,
            accepted: &accepted,
            config: &config,
            result: None,
            options: OPTIONS,
        };
        let plan = plan_boot(&request, facts);
        assert_eq!(reasons(&plan), ["VfInUse"]);
        bridge_steps(&plan).into_iter().filter(|step| step.contains("Open vSwitch")).collect::<Vec<_>>()
    };
    assert_eq!(repaired(&with_bridge), Vec::<String>::new());
    let mut detached = with_bridge.clone();
    database(&mut detached).bridges[0].ports.retain(|port| port.name == BRIDGE);
    assert_eq!(repaired(&detached), ["configure Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0"]);
    assert_eq!(repaired(&used(switch(None))), Vec::<String>::new());
}

/// Another PF waits for a reboot that does not come, since the units have run.
#[test]
fn a_bridge_is_repaired_while_another_pf_waits() {
    const OTHER: &str = "0000:5e:00.0";
    let mut facts = with_ovs_bridge(&ovs_spec("", ""));
    database(&mut facts).bridges[0].ports.retain(|port| port.name == BRIDGE);
    facts.pfs.push(vfleet_plan::PfFacts { address: address(OTHER), ..pf(0) });
    let mut desired = ovs_spec("", "");
    let other =
        serde_saphyr::from_str(&format!("{{pciAddress: '{OTHER}', name: ens2f0, numVfs: 2}}")).unwrap();
    desired.interfaces.as_mut().unwrap().push(other);
    let config = config_text(&BootConfig { spec: desired.clone(), ..Default::default() });
    facts.files.insert(vfleet_plan::files::BOOT_CONFIG.to_owned(), config.clone());
    let result = BootResult::succeeded();
    let request = BootRequest {
        spec: &desired,
        accepted: &desired,
        config: &config,
        result: Some(&result),
        options: OPTIONS,
    };
    let plan: Plan = plan_boot(&request, &facts);
    assert_eq!(reasons(&plan), ["ChangedSinceBoot"]);
    assert!(
        bridge_steps(&plan)
            .contains(&"configure Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0".to_owned()),
        "{plan:#?}"
    );
    assert!(plan.steps.iter().all(|planned| planned.step.pf() != Some(address(OTHER))), "{plan:#?}");
}

#[test]
fn no_bridge_is_created_at_boot_for_a_pf_that_was_not_configured() {
    let steps = |facts: &HostFacts| bridge_steps(&plan_ovs_at_boot(&ovs_spec("", ""), facts, &OPTIONS));
    assert_eq!(steps(&switch(None)), [CREATE_OVS]);
    let mut legacy = switch(None);
    legacy.pfs[0].eswitch = Fact::Value(EswitchMode::Legacy);
    let without_record = HostFacts { records: Vec::new(), ..switch(None) };
    for facts in [legacy, without_record] {
        assert_eq!(steps(&facts), Vec::<String>::new());
    }
    let mut detached = with_ovs_bridge(&ovs_spec("", ""));
    detached.pfs[0].eswitch = Fact::Value(EswitchMode::Legacy);
    database(&mut detached).bridges[0].ports.retain(|port| port.name == BRIDGE);
    assert_eq!(steps(&detached).len(), 1, "an existing one is repaired");
    let recreated = ovs_spec("datapathType: netdev", "");
    let of_unit = plan_ovs_at_boot(&recreated, &detached, &OPTIONS);
    assert_eq!(bridge_steps(&of_unit), Vec::<String>::new(), "and not removed to create none");
}

/// Before the network starts nothing shows that the node uses the bridge.
#[test]
fn no_ovs_bridge_is_removed_before_the_network() {
    let facts = with_ovs_bridge(&ovs_spec("", ""));
    for spec in [no_bridge(), linux_spec("", ""), nothing()] {
        assert_eq!(plan_ovs_at_boot(&spec, &facts, &OPTIONS).steps, []);
        assert_ne!(bridge_steps(&plan(&spec, &facts)), Vec::<String>::new(), "the agent does");
    }
}

/// The config does not have such a bridge, and the second unit must not take it for one that the policy gave up.
#[test]
fn the_units_leave_a_bridge_that_the_agent_does_not_change() {
    let mut configured = with_ovs_bridge(&ovs_spec("", ""));
    configured.records[0].bridge = Some(record(BridgeKind::Ovs));
    let mut bond = configured.clone();
    set_master(&mut bond, "bond0", "bond");
    database(&mut bond).bridges[0].ports.retain(|port| port.name == BRIDGE);
    let gate_off = NodeOptions { manage_bridges: false, ..OPTIONS };
    let last = ovs_spec("", "");
    for (facts, spec, last, options) in [
        (in_use(configured.clone()), no_bridge(), None, OPTIONS),
        (in_use(configured.clone()), linux_spec("", ""), None, OPTIONS),
        (bond, ovs_spec("", ""), None, OPTIONS),
        (in_use(configured.clone()), nothing(), None, OPTIONS),
        (in_use(configured.clone()), no_bridge(), Some(&last), gate_off),
    ] {
        let accepted = accepted_spec(&spec, &facts, last);
        assert_eq!(accepted.bridges.is_some(), last.is_some());
        let kept = kept_bridges(&spec, &accepted, &facts, options.manage_bridges);
        assert_eq!(kept, [address(PF)].into());
        let mut config = BootConfig { spec: accepted, kept_bridges: kept, ..Default::default() };
        config.settings.options = options;
        let mut started = facts.clone();
        let link = started.pfs[0].link.as_mut().unwrap();
        (link.master, link.host_use) = (None, None);
        started.files.insert(RULE.to_owned(), String::new());
        let forgets = |planned: &PlannedStep| match &planned.step {
            Step::WriteRecord { record } => record.bridge.is_none(),
            Step::RemoveFile { path, .. } => path == RULE,
            step => matches!(step, Step::RemoveRecord { .. }) || matches!(step.target(), Target::Bridge(_)),
        };
        for phase in [BootPhase::BeforeNetwork, BootPhase::Bridges, BootPhase::AfterNetwork] {
            let of_unit = plan_phase(phase, &config, &started);
            assert!(!of_unit.steps.iter().any(forgets), "{phase:?}: {of_unit:#?}");
            assert_eq!(of_unit.problems, []);
        }
        config.kept_bridges.clear();
        assert!(plan_phase(BootPhase::AfterNetwork, &config, &started).steps.iter().any(forgets));
    }
}

/// The driver of the PF is loaded again, for example. A new text would count reboots anew.
#[test]
fn the_config_does_not_change_while_the_interface_of_a_pf_is_missing() {
    for spec in [ovs_spec("", ""), linux_spec("", "")] {
        let mut facts = switch(None);
        facts.bridges.ovs = not_running();
        assert_eq!(accepted_spec(&spec, &facts, None), spec);
        facts.pfs[0].link = None;
        assert_eq!(accepted_spec(&spec, &facts, Some(&spec)), spec);
        assert_eq!(accepted_spec(&spec, &facts, Some(&no_bridge())).bridges, None, "no new bridge");
    }
}

#[test]
fn the_units_remove_a_bridge_that_the_policy_gave_up() {
    let mut facts = with_ovs_bridge(&ovs_spec("", ""));
    facts.records[0].bridge = Some(record(BridgeKind::Ovs));
    for spec in [no_bridge(), linux_spec("", ""), nothing()] {
        let accepted = accepted_spec(&spec, &facts, Some(&ovs_spec("", "")));
        assert_eq!(kept_bridges(&spec, &accepted, &facts, true), [].into());
        let mut config = BootConfig { spec: accepted, ..Default::default() };
        config.settings.options = OPTIONS;
        let of_unit = plan_phase(BootPhase::AfterNetwork, &config, &facts);
        assert_eq!(bridge_steps(&of_unit)[0], "remove Open vSwitch bridge br-0000_3b_00.0");
    }
}

/// After a reboot a use is observed late, for example with DHCP. It does not prevent what the PF had before.
#[test]
fn a_use_before_the_reboot_prevents_a_new_bridge_and_not_the_recorded_one() {
    for (spec, kind) in [(ovs_spec("", ""), BridgeKind::Ovs), (linux_spec("", ""), BridgeKind::Linux)] {
        let mut facts = switch(None);
        let earlier =
            LingeringUse { host_use: HostUse::DefaultRoute, is_of_earlier_boot: true, absent: None };
        facts.lingering_uses.insert(address(PF), earlier);
        let new = plan(&spec, &facts);
        assert_eq!((bridge_steps(&new), reasons(&new)), (vec![], vec!["PfInUse"]));
        facts.records[0].bridge = Some(record(kind));
        let recorded = plan(&spec, &facts);
        assert_ne!(bridge_steps(&recorded), Vec::<String>::new());
        assert_eq!(reasons(&recorded), Vec::<&str>::new());
    }
}
