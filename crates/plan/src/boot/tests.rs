use vfleet_api::PciAddress;

use super::units::{START_MINUTES, STOP_SECONDS};
use super::*;
use crate::facts::{
    Fact, HostUse, LingeringUse, LinkFacts, LinkKind, ModuleState, OvsDatabase, OvsFacts, PfFacts, Reboots,
    Record, UnreadableCard, VfFacts,
};
use crate::firmware::{FirmwareFacts, FirmwareSettings};
use crate::modules::KNOWN_MODULES;

const PF: &str = "0000:3b:00.0";

fn spec(interfaces: &serde_json::Value) -> SriovNetworkNodeStateSpec {
    serde_json::from_value(serde_json::json!({ "interfaces": interfaces })).unwrap()
}

fn two_vfs() -> SriovNetworkNodeStateSpec {
    spec(&serde_json::json!([{ "pciAddress": PF, "numVfs": 2 }]))
}

fn machine() -> HostFacts {
    let link = LinkFacts {
        name: "ens1f0".to_owned(),
        alt_names: Vec::new(),
        is_named: true,
        kind: LinkKind::Ethernet,
        mac: None,
        permanent_mac: None,
        mtu: 1500,
        max_mtu: None,
        admin_up: true,
        has_carrier: true,
        speed: None,
        switch_port: None,
        master: None,
        host_use: None,
        possible_use: None,
    };
    let pf = PfFacts {
        address: address(),
        vendor: 0x8086,
        device: 0x158b,
        driver: Some("i40e".to_owned()),
        numa_node: None,
        total_vfs: 64,
        drivers_autoprobe: true,
        eswitch: Fact::None,
        tc_offload: None,
        rdma: None,
        firmware: None,
        is_lone_vf: false,
        net_filter: crate::facts::Fact::None,
        link: Some(link),
        vfs: Vec::new(),
    };
    let mut facts = HostFacts { pfs: vec![pf], ..Default::default() };
    facts.kernel.boot_id = "first".to_owned();
    facts
}

fn address() -> PciAddress {
    PF.parse().unwrap()
}

/// Returns `facts` with files, units and reboot counts after the steps. Changes of cards are ignored.
fn after(steps: &[PlannedStep], facts: &HostFacts) -> HostFacts {
    let mut facts = facts.clone();
    for planned in steps {
        match &planned.step {
            Step::WriteFile { file, .. } => {
                facts.files.insert(file.path.clone(), file.text.clone());
            }
            Step::RemoveFile { path, .. } => {
                facts.files.remove(path);
            }
            Step::InstallProgram { .. } => facts.has_boot_program = true,
            Step::EnableUnit { unit } => {
                facts.enabled_units.insert(unit.clone());
            }
            Step::DisableUnit { unit } => {
                facts.enabled_units.remove(unit);
            }
            Step::CountReboot { reboots } => facts.kernel.reboots = Some(reboots.clone()),
            Step::ForgetReboots => facts.kernel.reboots = None,
            Step::Reboot => facts.kernel.boot_id.push('+'),
            _ => {}
        }
    }
    facts
}

fn lines(steps: &[PlannedStep]) -> Vec<String> {
    steps.iter().map(|planned| planned.step.to_string()).collect()
}

fn reboots(plan: &Plan) -> bool {
    plan.steps.last().is_some_and(|planned| planned.step == Step::Reboot)
}

fn reason(plan: &Plan) -> Option<&'static str> {
    plan.problems.last().map(|problem| problem.cause.reason())
}

fn request<'a>(spec: &'a SriovNetworkNodeStateSpec, result: Option<&'a BootResult>) -> BootRequest<'a> {
    BootRequest { spec, accepted: spec, config: "two", result, options: NodeOptions::default() }
}

#[test]
fn an_empty_spec_installs_the_units_without_a_reboot() {
    let nothing = spec(&serde_json::json!([]));
    let plan = plan_boot(&request(&nothing, None), &machine());
    let expected = [
        "install vfleet as /var/lib/sriov/vfleet",
        "write /etc/systemd/system/sriov-config.service",
        "write /etc/systemd/system/sriov-config-post-network.service",
        "enable unit sriov-config.service",
        "enable unit sriov-config-post-network.service",
        "write /etc/sriov-operator/sriov-interface-config.yaml",
        "write /etc/sriov-operator/sriov-interface-result.yaml",
    ];
    assert_eq!(lines(&plan.steps), expected);
    assert_eq!(plan.disruption(), Disruption::None);

    let done = after(&plan.steps, &machine());
    let result = BootResult::succeeded();
    let again = plan_boot(&request(&nothing, Some(&result)), &done);
    assert!(again.is_done(), "{again:?}");

    // Another build of the same version.
    let upgraded = HostFacts { has_boot_program: false, ..done };
    let plan = plan_boot(&request(&nothing, Some(&result)), &upgraded);
    assert_eq!(lines(&plan.steps), ["install vfleet as /var/lib/sriov/vfleet"]);
    assert_eq!(plan.disruption(), Disruption::None);
}

#[test]
fn a_spec_that_is_not_planned_needs_no_steps() {
    let unknown = SriovNetworkNodeStateSpec::default();
    assert!(plan_boot(&request(&unknown, None), &machine()).is_done());
}

#[test]
fn vfs_are_created_in_a_reboot() {
    let spec = two_vfs();
    let plan = plan_boot(&request(&spec, None), &machine());
    assert!(reboots(&plan), "{plan:?}");
    assert!(lines(&plan.steps).contains(&"write /etc/sriov-operator/sriov-interface-config.yaml".to_owned()));
    assert!(!lines(&plan.steps).iter().any(|line| line.contains("numvfs")), "the units do that");
    assert!(plan.steps.last().unwrap().why.contains("numvfs 2"), "{plan:?}");
}

#[test]
fn the_old_result_is_removed_before_the_config_changes() {
    let spec = two_vfs();
    let old = BootResult::succeeded();
    let mut facts = machine();
    facts.files.insert(BOOT_CONFIG.to_owned(), "one".to_owned());
    facts.files.insert(BOOT_RESULT.to_owned(), old.file().text);
    let plan = plan_boot(&request(&spec, Some(&old)), &facts);
    let lines = lines(&plan.steps);
    let at = |line: &str| lines.iter().position(|found| found == line).unwrap();
    assert!(
        at("remove /etc/sriov-operator/sriov-interface-result.yaml")
            < at("write /etc/sriov-operator/sriov-interface-config.yaml")
    );
    assert!(reboots(&plan));
}

#[test]
fn units_without_a_result_get_two_reboots() {
    let spec = two_vfs();
    let mut facts = machine();
    for count in 1..=2 {
        let plan = plan_boot(&request(&spec, None), &facts);
        assert!(reboots(&plan), "reboot {count}: {plan:?}");
        facts = after(&plan.steps, &facts);
        let counts: Vec<u32> =
            facts.kernel.reboots.iter().flat_map(|all| all.needs.values()).map(|one| one.count).collect();
        assert_eq!(counts, [count]);
    }
    let plan = plan_boot(&request(&spec, None), &facts);
    assert!(plan.steps.is_empty(), "{plan:?}");
    assert_eq!(reason(&plan), Some("UnitsDidNotRun"));

    let another = plan_boot(&BootRequest { config: "another", ..request(&spec, None) }, &facts);
    assert!(reboots(&another), "another config is another need");
}

#[test]
fn a_pending_reboot_is_not_counted_again() {
    let spec = two_vfs();
    let plan = plan_boot(&request(&spec, None), &machine());
    let cut = after(&plan.steps[..plan.steps.len() - 1], &machine());
    let again = plan_boot(&request(&spec, None), &cut);
    assert_eq!(lines(&again.steps), ["reboot"]);
}

#[test]
fn results_of_the_units_are_reported_without_a_reboot() {
    let spec = two_vfs();
    let first = plan_boot(&request(&spec, None), &machine());
    let booted = after(&first.steps, &machine());
    let cases = [
        (BootResult::failed("post: no driver"), "BootFailed"),
        (BootResult::in_progress(), "BootUnfinished"),
        (BootResult::succeeded(), "ChangedSinceBoot"),
    ];
    for (result, expected) in cases {
        let plan = plan_boot(&request(&spec, Some(&result)), &booted);
        assert!(plan.steps.is_empty(), "{plan:?}");
        assert_eq!(reason(&plan), Some(expected));
    }
}

#[test]
fn the_agent_waits_while_a_unit_runs() {
    let spec = two_vfs();
    for result in [None, Some(BootResult::in_progress()), Some(BootResult::failed("pre: no card"))] {
        let first = plan_boot(&request(&spec, None), &machine());
        let mut booted = after(&first.steps, &machine());
        booted.running_units.insert(UNITS[1].to_owned());
        let plan = plan_boot(&request(&spec, result.as_ref()), &booted);
        assert_eq!((lines(&plan.steps), reason(&plan)), (Vec::new(), Some("BootUnfinished")));
        // A new config would not belong to the result of the running unit.
        let plan = plan_boot(&BootRequest { config: "another", ..request(&spec, result.as_ref()) }, &booted);
        assert_eq!((lines(&plan.steps), reason(&plan)), (Vec::new(), Some("BootUnfinished")));
    }
}

/// Directives that systemd 239 supports, also in combination.
const SYSTEMD_239_DIRECTIVES: [&str; 13] = [
    "After",
    "Before",
    "Conflicts",
    "DefaultDependencies",
    "Description",
    "ExecStart",
    "RemainAfterExit",
    "RequiresMountsFor",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "Type",
    "WantedBy",
    "Wants",
];

/// Returns the files after a plan that installs all units.
fn files_with_all_units() -> BTreeMap<String, String> {
    let spec = with_ovs_bridge();
    let options = NodeOptions { manage_bridges: true, ..NodeOptions::default() };
    let plan = plan_boot(&BootRequest { options, ..request(&spec, None) }, &machine());
    after(&plan.steps, &machine()).files
}

fn with_ovs_bridge() -> SriovNetworkNodeStateSpec {
    let bridge =
        serde_json::json!({"name": "br-0000_3b_00.0", "uplinks": [{"pciAddress": PF, "name": "ens1f0"}]});
    let bridges = serde_json::from_value(serde_json::json!({ "ovs": [bridge] })).unwrap();
    SriovNetworkNodeStateSpec { bridges: Some(bridges), ..two_vfs() }
}

#[test]
fn a_bridge_on_a_configured_pf_needs_no_reboot() {
    let spec = with_ovs_bridge();
    let options = NodeOptions { manage_bridges: true, ..NodeOptions::default() };
    let mut facts = with_vf_in_use(2);
    facts.pfs[0].vfs[0].link.as_mut().unwrap().host_use = None;
    facts.bridges.ovs = OvsFacts::Database(OvsDatabase::default());
    let facts = recorded(facts, &two_vfs());
    let plan = plan_boot(&BootRequest { options, ..request(&spec, None) }, &facts);
    assert!(!reboots(&plan), "{plan:?}");
    assert!(plan.steps.iter().any(|planned| matches!(planned.step, Step::SetOvsBridge { .. })), "{plan:?}");
}

#[test]
fn units_have_only_directives_of_systemd_239() {
    let files = files_with_all_units();
    for file in UNITS.map(unit_path) {
        let text = &files[&file];
        assert!(text.lines().any(|line| line == "Type=oneshot"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty()) {
            // Restart= is not supported: systemd 239 refuses the whole unit.
            let (name, _) = line.split_once('=').unwrap();
            assert!(SYSTEMD_239_DIRECTIVES.contains(&name), "{line}");
        }
    }
}

/// systemd sends four signals before it abandons a process that hangs in the kernel.
#[test]
fn a_hanging_driver_delays_the_boot_for_the_documented_time() {
    let files = files_with_all_units();
    for file in UNITS.map(unit_path) {
        for line in [format!("TimeoutStartSec={START_MINUTES}min"), format!("TimeoutStopSec={STOP_SECONDS}s")]
        {
            assert!(files[&file].lines().any(|found| found == line), "{line} is not in\n{}", files[&file]);
        }
    }
    let most = START_MINUTES + (4 * STOP_SECONDS).div_ceil(60);
    let documented = include_str!("../../../../docs/systemd-mode.md");
    for sentence in [format!("{START_MINUTES} minutes"), format!("at most {most} minutes")] {
        assert!(documented.contains(&sentence), "docs/systemd-mode.md does not say {sentence:?}");
    }
}

#[test]
fn steps_without_disruption_run_immediately() {
    let spec = spec(&serde_json::json!([]));
    let mut facts = machine();
    let mut record = Record::taken_over(address(), two_vfs().interfaces.unwrap().remove(0));
    record.interface.externally_managed = Some(true);
    facts.records.push(record);
    let plan = plan_boot(&request(&spec, None), &facts);
    assert!(lines(&plan.steps).contains(&format!("remove state file of {PF}")), "{plan:?}");
    assert_eq!(plan.disruption(), Disruption::None);
}

#[test]
fn reboot_counts_of_the_units_are_removed_when_the_cards_are_configured() {
    let nothing = spec(&serde_json::json!([]));
    let mut facts = machine();
    facts.kernel.reboots = Some(Reboots::for_need("systemd mode with config 0123", 1, "before"));
    let plan = plan_boot(&request(&nothing, None), &facts);
    assert_eq!(
        lines(&plan.steps).iter().filter(|line| *line == "remove reboot count").count(),
        1,
        "{plan:?}"
    );
}

#[test]
fn leaving_the_mode_removes_all_files() {
    let spec = two_vfs();
    let on = plan_boot(&request(&spec, None), &machine());
    let mut facts = after(&on.steps, &machine());
    facts.files.insert(BOOT_RESULT.to_owned(), BootResult::succeeded().file().text);
    let steps = plan_systemd_mode_removal(&facts);
    let lines = lines(&steps);
    let at = |line: &str| lines.iter().position(|found| found == line).unwrap();
    assert!(at("remove /var/lib/sriov/vfleet") < at("remove /etc/systemd/system/sriov-config.service"));
    assert!(
        at("remove /var/lib/sriov/sriov-network-config-daemon")
            < at("remove /etc/systemd/system/sriov-config.service")
    );
    let off = after(&steps, &facts);
    assert!(off.files.is_empty() && off.enabled_units.is_empty(), "{off:?}");
    assert!(plan_systemd_mode_removal(&off).is_empty());
    assert!(plan_systemd_mode_removal(&machine()).is_empty());
}

#[test]
fn the_error_of_a_result_is_one_line() {
    let text = BootResult::failed("pre: \"a\": b\nc").file().text;
    assert_eq!(text, "syncStatus: Failed\nlastSyncError: \"pre: \\\"a\\\": b\\nc\"\n");
}

/// Returns a machine with a Mellanox card whose firmware has fewer VFs than desired.
fn with_firmware(next_boot: u16) -> HostFacts {
    let settings = |count| FirmwareSettings { sriov: Some(true), num_vfs: Some(count), ..Default::default() };
    let mut facts = machine();
    let pf = &mut facts.pfs[0];
    (pf.vendor, pf.total_vfs) = (0x15b3, 1);
    pf.firmware = Some(FirmwareFacts { current: settings(1), next_boot: settings(next_boot) });
    facts
}

#[test]
fn the_firmware_is_set_before_the_only_reboot() {
    let spec = two_vfs();
    let plan = plan_boot(&request(&spec, None), &with_firmware(1));
    let is_set = |plan: &Plan| lines(&plan.steps).contains(&format!("set {PF} firmware NUM_OF_VFS=2"));
    assert!(is_set(&plan) && !reboots(&plan), "{plan:?}");
    let set = after(&plan.steps, &with_firmware(2));
    let plan = plan_boot(&request(&spec, None), &set);
    assert!(reboots(&plan) && !is_set(&plan), "{plan:?}");
    assert_eq!(plan.steps.last().unwrap().why, "firmware of 0000:3b:00");
}

#[test]
fn units_do_not_set_firmware() {
    let config = BootConfig { spec: two_vfs(), ..Default::default() };
    for phase in [BootPhase::BeforeNetwork, BootPhase::AfterNetwork] {
        let plan = plan_phase(phase, &config, &with_firmware(1));
        assert_eq!((lines(&plan.steps), reason(&plan)), (Vec::new(), Some("TooManyVfs")));
    }
}

/// Neither the kernel arguments nor the units have an effect.
#[test]
fn reboots_for_units_and_kernel_arguments_are_counted_separately() {
    let spec = two_vfs();
    let mut facts = machine();
    facts.kernel.reboots = Some(Reboots::for_need("kernel arguments x", 2, "before"));
    let plan = plan_boot(&request(&spec, None), &facts);
    let counted = after(&plan.steps, &facts).kernel.reboots.unwrap();
    assert_eq!(counted.needs.values().map(|tries| tries.count).collect::<Vec<_>>(), [2, 1]);

    // The planner of nodes has no need: its count is removed, that of the units is kept.
    facts.kernel.reboots = Some(counted);
    let node = reboots::keep_unit_counts(plan_node_with(&spec, &facts, &NodeOptions::default()), &facts);
    let left = after(&node.steps, &facts).kernel.reboots.unwrap();
    assert!(
        left.needs.len() == 1 && left.needs.keys().all(|need| need.starts_with("systemd mode")),
        "{left:?}"
    );
}

#[test]
fn settings_of_the_agent_are_in_the_config() {
    let spec = two_vfs();
    let settings = NodeSettings {
        options: NodeOptions { firmware_reset: true, mellanox: false, ..NodeOptions::default() },
        one_card_at_a_time: true,
        has_lone_vfs: true,
        node_addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        ..NodeSettings::default()
    };
    let config = BootConfig {
        spec,
        settings,
        in_use: [(address(), HostUse::DefaultRoute)].into(),
        ..Default::default()
    };
    let text = config_text(&config);
    let in_use = format!("      \"{PF}\": \"defaultRoute\"");
    for line in [
        &in_use,
        "  \"platformType\": 1,",
        "  \"vfleet\": {",
        "    \"mellanox\": false,",
        "    \"firmwareReset\": true,",
        "      \"fd00::1\"",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert_ne!(text, config_text(&BootConfig { spec: config.spec, ..Default::default() }));
}

#[test]
fn a_config_without_settings_means_the_defaults() {
    let config = serde_json::json!({ "spec": {}, "platformType": 0 });
    assert_eq!(read_config(config).unwrap().settings, NodeSettings::default());
    let openstack = serde_json::json!({ "spec": {}, "platformType": 1, "vfleet": { "mellanox": false } });
    let settings = read_config(openstack).unwrap().settings;
    assert!(settings.has_lone_vfs && !settings.options.mellanox && !settings.options.firmware_reset);
    let bad = serde_json::json!({ "spec": {}, "vfleet": { "nodeAddresses": ["here"] } });
    assert!(read_config(bad).is_err());
}

/// A unit does not know all needs for reboots: kernel arguments, firmware, the units themselves.
#[test]
fn units_do_not_change_reboot_counts() {
    let config = BootConfig { spec: two_vfs(), ..Default::default() };
    for need in ["firmware of 0000:3b:00", "systemd mode with config 0123"] {
        let mut facts = with_firmware(2);
        facts.kernel.reboots = Some(Reboots::for_need(need, 1, "before"));
        for phase in [BootPhase::BeforeNetwork, BootPhase::AfterNetwork] {
            let steps = plan_phase(phase, &config, &facts).steps;
            assert_eq!(after(&steps, &facts).kernel.reboots, facts.kernel.reboots, "{need}, {phase:?}");
        }
    }
}

/// Returns a machine with VFs on the kernel driver, of which VF 0 has the node's address.
fn with_vf_in_use(count: u16) -> HostFacts {
    let mut facts = machine();
    facts.kernel.has_iommu = true;
    facts.kernel.modules = KNOWN_MODULES.map(|name| (name.to_owned(), ModuleState::Loaded)).into();
    let link = facts.pfs[0].link.clone().unwrap();
    facts.pfs[0].vfs = (0..count)
        .map(|index| VfFacts {
            index,
            address: PciAddress::new(0, 0x3b, 2, u8::try_from(index).unwrap()).unwrap(),
            vendor: 0x8086,
            device: 0x154c,
            driver: Some("iavf".to_owned()),
            admin_mac: None,
            admin_guid: None,
            rdma: None,
            vdpa: None,
            representor: None,
            link: Some(link.clone()),
            attachment: Fact::None,
        })
        .collect();
    facts.pfs[0].vfs[0].link.as_mut().unwrap().host_use = Some(HostUse::NodeAddress);
    facts
}

fn vfs(count: u16, range: &str, driver: &str) -> SriovNetworkNodeStateSpec {
    let group = serde_json::json!({ "vfRange": range, "deviceType": driver, "policyName": "p" });
    spec(&serde_json::json!([{ "pciAddress": PF, "numVfs": count, "vfGroups": [group] }]))
}

fn recorded(mut facts: HostFacts, spec: &SriovNetworkNodeStateSpec) -> HostFacts {
    facts.records = vec![Record::taken_over(address(), spec.interfaces.as_ref().unwrap()[0].clone())];
    facts
}

#[test]
fn a_spec_without_refused_parts_is_accepted_unchanged() {
    let facts = with_vf_in_use(2);
    for desired in [vfs(2, "1-1", "vfio-pci"), vfs(2, "0-1", "netdevice"), spec(&serde_json::json!([]))] {
        assert_eq!(accepted_spec(&desired, &facts, None), desired);
    }
}

#[test]
fn a_refused_pf_keeps_the_state_of_the_config() {
    let last = vfs(2, "1-1", "netdevice");
    let facts = recorded(with_vf_in_use(2), &last);
    let refused = [vfs(2, "0-1", "vfio-pci"), vfs(3, "1-2", "netdevice"), spec(&serde_json::json!([]))];
    for desired in refused {
        assert_eq!(accepted_spec(&desired, &facts, Some(&last)), last, "as in the config");
        assert_eq!(accepted_spec(&desired, &facts, None), last, "as last configured");
        let request = BootRequest { accepted: &last, ..request(&desired, None) };
        let plan = plan_boot(&request, &facts);
        assert_eq!((reboots(&plan), reason(&plan)), (false, Some("VfInUse")), "{plan:#?}");
        assert!(plan.disruption() <= Disruption::Vf, "{plan:#?}");
    }
}

/// Config and record have the refused state too: the agent was in another mode when the VF was refused.
#[test]
fn a_refused_vf_is_in_no_group_at_boot() {
    let desired = vfs(4, "0-3", "vfio-pci");
    let mut facts = recorded(with_vf_in_use(4), &desired);
    facts.pfs[0].vfs[2].link.as_mut().unwrap().host_use = Some(HostUse::Storage);
    let accepted = accepted_spec(&desired, &facts, Some(&desired));
    let groups = accepted.interfaces.unwrap().remove(0).vf_groups.unwrap();
    let ranges: Vec<_> = groups.iter().map(|group| group.vf_range.as_ref().unwrap().text()).collect();
    assert_eq!(ranges, ["1-1", "3-3"]);
}

#[test]
fn other_problems_do_not_hide_the_protection() {
    let last = vfs(2, "1-1", "netdevice");
    let mut facts = recorded(with_vf_in_use(2), &last);
    facts.kernel.modules.clear();
    let desired = vfs(2, "0-1", "vfio-pci");
    let plan = plan_boot(&BootRequest { accepted: &last, ..request(&desired, None) }, &facts);
    assert_eq!(reason(&plan), Some("MissingModule"));
    assert_eq!(accepted_spec(&desired, &facts, Some(&last)), last);
}

#[test]
fn a_refused_pf_without_a_record_is_left_out() {
    let facts = with_vf_in_use(2);
    assert_eq!(accepted_spec(&vfs(3, "1-2", "netdevice"), &facts, None), spec(&serde_json::json!([])));
}

#[test]
fn a_manually_changed_pf_keeps_its_observed_state_at_boot() {
    let desired = vfs(3, "1-2", "netdevice");
    let facts = recorded(with_vf_in_use(2), &desired);
    let accepted = accepted_spec(&desired, &facts, Some(&desired)).interfaces.unwrap();
    assert_eq!((accepted[0].num_vfs, &accepted[0].vf_groups), (Some(2), &None));
}

/// Another PF waits for a reboot, and the refused one does not prevent it.
#[test]
fn other_pfs_get_their_reboot() {
    let last = vfs(2, "1-1", "netdevice");
    let mut facts = recorded(with_vf_in_use(2), &last);
    let other = PfFacts { address: "0000:5e:00.0".parse().unwrap(), ..machine().pfs.remove(0) };
    facts.pfs.push(other);
    let both = |first: SriovNetworkNodeStateSpec| {
        let more = serde_json::json!([{ "pciAddress": "0000:5e:00.0", "numVfs": 2 }]);
        let interfaces = first.interfaces.into_iter().chain(spec(&more).interfaces);
        SriovNetworkNodeStateSpec { interfaces: Some(interfaces.flatten().collect()), ..Default::default() }
    };
    let desired = both(vfs(2, "0-1", "vfio-pci"));
    let accepted = accepted_spec(&desired, &facts, Some(&last));
    assert_eq!(accepted, both(last));
    let plan = plan_boot(&BootRequest { accepted: &accepted, ..request(&desired, None) }, &facts);
    assert!(reboots(&plan) && plan.problems[0].cause.reason() == "VfInUse", "{plan:#?}");
    assert!(plan.steps.last().unwrap().why.contains("0000:5e:00.0"), "{plan:#?}");
}

#[test]
fn uses_before_the_boot_do_not_stop_the_units() {
    let config = BootConfig { spec: vfs(2, "0-1", "netdevice"), ..Default::default() };
    let mut facts = machine();
    let of_earlier_boot =
        LingeringUse { host_use: HostUse::DefaultRoute, is_of_earlier_boot: true, absent: None };
    facts.lingering_uses.insert(address(), of_earlier_boot);
    let mut mtu = config.clone();
    mtu.spec.interfaces.as_mut().unwrap()[0].mtu = Some(9000);
    for config in [config, mtu] {
        assert_eq!(reason(&plan_phase(BootPhase::BeforeNetwork, &config, &facts)), None);
    }
}

/// Unknown is not absent: a VF of the card may have the node's address.
#[test]
fn an_unreadable_card_keeps_the_state_of_the_config() {
    let last = vfs(2, "1-1", "netdevice");
    let mut facts = recorded(with_vf_in_use(2), &last);
    facts.pfs.clear();
    facts.unreadable.push(UnreadableCard { pf: address(), error: "it hangs".to_owned(), reason: "Deadline" });
    for desired in [vfs(2, "0-1", "vfio-pci"), spec(&serde_json::json!([]))] {
        assert_eq!(accepted_spec(&desired, &facts, Some(&last)), last);
    }
}
