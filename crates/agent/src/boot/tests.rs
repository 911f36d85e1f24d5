use serde_json::json;
use vfleet_api::PciAddress;
use vfleet_host::SimHost;
use vfleet_host::sim::Machine;
use vfleet_plan::boot::config_text;
use vfleet_plan::files::UNITS;
use vfleet_plan::{DEFAULT_PROTECTION_TIME, HostUse, NodeOptions, Plan};

use super::*;
use crate::mode::Mode;

/// Timeout for cards that never appear.
const SHORT: Duration = Duration::from_millis(50);

fn machine() -> SimHost {
    SimHost::new(&Machine::lab(), "node").unwrap()
}

fn pf() -> PciAddress {
    Machine::lab().pfs[0].address
}

fn three_vfs() -> SriovNetworkNodeStateSpec {
    let group = json!({ "vfRange": "0-2", "deviceType": "netdevice", "policyName": "three" });
    serde_json::from_value(json!({
        "interfaces": [{ "pciAddress": pf(), "numVfs": 3, "vfGroups": [group] }],
    }))
    .unwrap()
}

/// Runs one attempt of an agent in this mode.
fn agent(host: &SimHost, mode: Mode, spec: &SriovNetworkNodeStateSpec) -> ApplyOutcome {
    agent_with_settings(host, mode, spec, &NodeSettings::default())
}

fn agent_with_settings(
    host: &SimHost,
    mode: Mode,
    spec: &SriovNetworkNodeStateSpec,
    settings: &NodeSettings,
) -> ApplyOutcome {
    let planner = |facts: &HostFacts| mode.plan(spec, facts, settings);
    let context =
        ApplyContext { host, node: "node", planner: &planner, one_card_at_a_time: false, listener: &|_| {} };
    let (facts, plan) = survey(host, &planner).unwrap();
    if plan.steps.is_empty() {
        ApplyOutcome::without_steps(facts, plan)
    } else {
        apply_plan(&context, facts, plan)
    }
}

fn result(host: &SimHost) -> Option<BootResult> {
    read_result(&host.facts().unwrap())
}

/// Returns a machine in systemd mode that was just rebooted for three VFs. Its units have not run yet.
fn rebooted_machine() -> SimHost {
    let host = machine();
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.reboots, "{outcome:?}");
    host.restart_process();
    assert!(host.facts().unwrap().pf(pf()).unwrap().vfs.is_empty(), "the units create them");
    host
}

#[test]
fn vfs_are_created_at_boot_and_the_agent_has_nothing_left_to_do() {
    let host = rebooted_machine();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    assert_eq!(result(&host), Some(BootResult::in_progress()));
    let vfs = host.facts().unwrap().pf(pf()).unwrap().vfs.clone();
    assert!(vfs.len() == 3 && vfs.iter().all(|vf| vf.driver.is_none()), "created and not bound: {vfs:?}");

    run(&host, BootPhase::AfterNetwork).unwrap();
    assert_eq!(result(&host), Some(BootResult::succeeded()));
    assert!(host.facts().unwrap().pf(pf()).unwrap().vfs.iter().all(|vf| vf.driver.is_some()));

    let before = host.executed_steps().len();
    for _ in 0..2 {
        let outcome = agent(&host, Mode::Systemd, &three_vfs());
        assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    }
    assert_eq!(host.executed_steps()[before..], ["remove reboot count"], "the count is the agent's");
}

/// Marks the second unit as running or not.
fn set_unit_running(host: &SimHost, is_running: bool) {
    host.modify_kernel(|kernel| {
        kernel.running_units = is_running.then(|| UNITS[1].to_owned()).into_iter().collect();
    });
}

#[test]
fn what_a_unit_that_was_killed_left_undone_is_done_by_the_agent() {
    let host = rebooted_machine();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    host.kill_at(2);
    run(&host, BootPhase::AfterNetwork).unwrap_err();
    host.restart_process();
    assert_eq!(result(&host), Some(BootResult::in_progress()));
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    assert_eq!(result(&host), Some(BootResult::succeeded()));
    assert!(host.facts().unwrap().pf(pf()).unwrap().vfs.iter().all(|vf| vf.driver.is_some()));
}

#[test]
fn the_agent_reports_the_result_of_the_units_and_does_not_reboot_again() {
    let host = rebooted_machine();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    set_unit_running(&host, true);
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert_eq!(outcome.failures[0].reason(), "BootUnfinished", "{outcome:?}");

    set_unit_running(&host, false);
    host.fail_at(0);
    let error = run(&host, BootPhase::AfterNetwork).unwrap_err();
    assert!(error.to_string().starts_with("post: cannot "), "{error}");
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(!outcome.reboots, "{outcome:?}");
}

#[test]
fn a_missing_first_phase_is_reported_and_the_second_one_configures_everything() {
    let host = rebooted_machine();
    let error = run(&host, BootPhase::AfterNetwork).unwrap_err();
    assert!(error.to_string().contains("pre: the unit was not run"), "{error}");
    assert_eq!(host.facts().unwrap().pf(pf()).unwrap().vfs.len(), 3);
    // The machine is configured, which is what counts for the agent.
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    assert_eq!(result(&host), Some(BootResult::succeeded()));
}

#[test]
fn without_a_config_there_is_nothing_to_do() {
    let host = machine();
    for phase in [BootPhase::BeforeNetwork, BootPhase::AfterNetwork] {
        run(&host, phase).unwrap();
    }
    assert!(host.executed_steps().is_empty() && result(&host).is_none());
}

fn settings_of(host: &SimHost) -> NodeSettings {
    super::read_settings(host, BootPhase::BeforeNetwork).unwrap()
}

fn with_config(host: &SimHost, config: &str) {
    host.modify_kernel(|kernel| kernel.files.insert(BOOT_CONFIG.to_owned(), config.to_owned()));
}

#[test]
fn a_config_that_cannot_be_read_changes_nothing_and_is_reported() {
    for config in ["spec: [", "{}", "spec: null", "spec: { interfaces: 7 }", "spec: { interfaces: [{}] }"] {
        let host = machine();
        with_config(&host, config);
        let error = run(&host, BootPhase::BeforeNetwork).unwrap_err();
        assert!(error.to_string().starts_with("pre: /etc/sriov-operator/"), "{config}: {error}");
        assert_eq!(result(&host).unwrap().sync_status, "Failed");
        assert_eq!(host.executed_steps().len(), 2, "only the result: {:?}", host.executed_steps());
    }
}

/// A config that the Go daemon wrote, with lower-case names and with all default values.
#[test]
fn a_config_of_the_go_daemon_is_followed() {
    let host = machine();
    with_config(&host, include_str!("../../../host/tests/go_daemon/lab/config.yaml"));
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    assert_eq!(host.facts().unwrap().pf(pf()).unwrap().vfs.len(), 3);
}

#[test]
fn a_written_config_is_read_back() {
    let spec = three_vfs();
    let settings = NodeSettings {
        options: NodeOptions { firmware_reset: true, mellanox: false, ..NodeOptions::default() },
        one_card_at_a_time: true,
        has_lone_vfs: true,
        node_addresses: vec![[10, 0, 0, 1].into()],
        ..NodeSettings::default()
    };
    let config = BootConfig { spec, settings: settings.clone(), ..Default::default() };
    let text = config_text(&config);
    assert_eq!(parse_config(&text).unwrap(), config);
    let host = machine();
    assert_eq!(settings_of(&host), NodeSettings::default());
    with_config(&host, &text);
    assert_eq!(settings_of(&host), settings);
    with_config(&host, "spec: [");
    assert_eq!(settings_of(&host), NodeSettings::default(), "the run reports the error");
}

#[test]
fn a_card_that_never_appears_fails_and_the_others_are_configured() {
    let host = machine();
    let mut spec = three_vfs();
    let missing = json!({ "pciAddress": "0000:ff:00.0", "numVfs": 1 });
    spec.interfaces.as_mut().unwrap().push(serde_json::from_value(missing).unwrap());
    with_config(&host, &config_text(&BootConfig { spec, ..Default::default() }));
    let error = run_within(&host, BootPhase::BeforeNetwork, SHORT).unwrap_err();
    assert!(error.to_string().contains("0000:ff:00.0"), "{error}");
    run_within(&host, BootPhase::AfterNetwork, SHORT).unwrap_err();
    assert!(host.facts().unwrap().pf(pf()).unwrap().vfs.iter().all(|vf| vf.driver.is_some()));
    let result = result(&host).unwrap();
    assert!(
        result.last_sync_error.contains("pre: ") && result.last_sync_error.contains("post: "),
        "{result:?}"
    );
}

#[test]
fn a_card_that_appears_late_is_waited_for() {
    let host = machine();
    let spec = three_vfs();
    let name = host.modify_kernel(|kernel| kernel.pf_mut(pf()).unwrap().link.take());
    let other_handle = host.new_process();
    let waits = std::thread::spawn({
        let host = host.new_process();
        let missing = move |facts: &HostFacts| missing_cards(&spec, facts);
        move || wait_for_cards(&host, Duration::from_secs(30), missing).map(|()| host.facts().unwrap())
    });
    other_handle.modify_kernel(|kernel| kernel.pf_mut(pf()).unwrap().link = name);
    let facts = waits.join().unwrap().unwrap();
    assert!(facts.pf(pf()).unwrap().link.is_some());
}

#[test]
fn killed_at_any_step_the_machine_ends_the_same() {
    let spec = three_vfs();
    let steps = {
        let host = rebooted_machine();
        run(&host, BootPhase::BeforeNetwork).unwrap();
        run(&host, BootPhase::AfterNetwork).unwrap();
        host.executed_steps().len()
    };
    for cut in 0..steps {
        let host = rebooted_machine();
        host.kill_at(cut);
        let _ = run(&host, BootPhase::BeforeNetwork).and_then(|()| run(&host, BootPhase::AfterNetwork));
        // An administrator reboots the machine.
        host.modify_kernel(vfleet_host::sim::Kernel::reboot);
        host.restart_process();
        run(&host, BootPhase::BeforeNetwork).unwrap();
        run(&host, BootPhase::AfterNetwork).unwrap();
        assert!(!agent(&host, Mode::Systemd, &spec).reboots, "cut at {cut}");
        let plan: Plan = Mode::Systemd.plan(&spec, &host.facts().unwrap(), &NodeSettings::default());
        assert!(plan.is_done(), "cut at {cut}: {plan:?}");
    }
}

#[test]
fn leaving_systemd_mode_leaves_the_cards_and_nothing_else() {
    let host = rebooted_machine();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    let outcome = agent(&host, Mode::Daemon, &three_vfs());
    assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    let kernel = host.kernel();
    assert!(kernel.enabled_units.is_empty() && kernel.programs.is_empty(), "{kernel:?}");
    assert!(!kernel.files.keys().any(|path| path.contains("sriov-interface") || path.contains("systemd")));
    assert_eq!(host.facts().unwrap().pf(pf()).unwrap().vfs.len(), 3);
}

#[test]
fn enabling_systemd_mode_on_a_configured_machine_does_not_reboot_it() {
    let host = machine();
    assert!(agent(&host, Mode::Daemon, &three_vfs()).failures.is_empty());
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    assert_eq!(result(&host), Some(BootResult::succeeded()));
}

#[test]
fn a_vf_that_lost_its_driver_is_repaired_without_a_reboot() {
    let host = machine();
    assert!(agent(&host, Mode::Daemon, &three_vfs()).failures.is_empty());
    assert!(agent(&host, Mode::Systemd, &three_vfs()).failures.is_empty());
    let vf = vfleet_api::VfRef { pf: pf(), index: 1 };
    host.modify_kernel(|kernel| kernel.unbind(vf)).unwrap();
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.failures.is_empty() && !outcome.reboots && outcome.executed > 0, "{outcome:?}");
}

/// Returns a machine with a Mellanox card whose firmware allows two VFs.
fn mellanox_card() -> SimHost {
    let card = json!({
        "address": pf(), "name": "ens1f0", "vendor": "15b3", "device": "1017", "vfDevice": "1018",
        "driver": "mlx5_core", "vfDriver": "mlx5_core", "totalVfs": 64,
        "firmware": { "sriov": true, "numVfs": 2, "linkTypes": ["ETH"] },
    });
    SimHost::from_yaml(&json!({ "pfs": [card] }).to_string(), "mellanox").unwrap()
}

#[test]
fn a_disabled_vendor_is_disabled_at_boot_too() {
    for mellanox in [false, true] {
        let host = mellanox_card();
        let options = NodeOptions { mellanox, ..NodeOptions::default() };
        let settings = NodeSettings { options, ..NodeSettings::default() };
        agent_with_settings(&host, Mode::Systemd, &three_vfs(), &settings);
        host.restart_process();
        let _ = run(&host, BootPhase::BeforeNetwork).and(run(&host, BootPhase::AfterNetwork));
        let executed = host.executed_steps();
        assert_eq!(executed.iter().any(|step| step.contains("firmware")), mellanox, "{executed:?}");
    }
}

#[test]
fn a_changed_setting_alone_does_not_reboot_the_machine() {
    let host = rebooted_machine();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    let slow = NodeSettings { one_card_at_a_time: true, ..NodeSettings::default() };
    let outcome = agent_with_settings(&host, Mode::Systemd, &three_vfs(), &slow);
    assert!(outcome.failures.is_empty() && !outcome.reboots && outcome.executed > 0, "{outcome:?}");
    assert!(settings_of(&host).one_card_at_a_time);
    assert_eq!(agent_with_settings(&host, Mode::Systemd, &three_vfs(), &slow).executed, 0);
}

/// Boots a machine whose card stores firmware settings but never applies them: it always has two VFs.
fn boot_with_two_vfs(host: &SimHost) {
    host.restart_process();
    host.modify_kernel(|kernel| {
        let card = kernel.pf_mut(pf()).unwrap();
        card.firmware.as_mut().unwrap().current.num_vfs = Some(2);
        card.vf_addresses.truncate(2);
    });
    let _ = run(host, BootPhase::BeforeNetwork).and(run(host, BootPhase::AfterNetwork));
}

#[test]
fn firmware_that_never_applies_its_settings_causes_two_reboots() {
    let host = mellanox_card();
    for reboot in 1..=2 {
        assert!(agent(&host, Mode::Systemd, &three_vfs()).reboots, "reboot {reboot}");
        boot_with_two_vfs(&host);
    }
    for _ in 0..2 {
        let outcome = agent(&host, Mode::Systemd, &three_vfs());
        assert!(!outcome.reboots, "{outcome:?}");
        assert!(
            outcome.failures.iter().any(|failure| failure.reason() == "RebootLimitReached"),
            "{outcome:?}"
        );
        // An administrator reboots the machine.
        host.modify_kernel(vfleet_host::sim::Kernel::reboot);
        boot_with_two_vfs(&host);
    }
}

/// Returns a spec with userspace VFs on an externally managed PF, and `own` VFs on another PF.
fn with_external(own: u16) -> SriovNetworkNodeStateSpec {
    let [group, other] = ["0-1", "0-0"]
        .map(|range| json!({ "vfRange": range, "deviceType": "vfio-pci", "policyName": "outside" }));
    let outside = json!({ "pciAddress": pf(), "numVfs": 2, "vfGroups": [group], "externallyManaged": true });
    let ours = json!({ "pciAddress": Machine::lab().pfs[1].address, "numVfs": own, "vfGroups": [other] });
    let interfaces = if own > 0 { vec![outside, ours] } else { vec![outside] };
    serde_json::from_value(json!({ "interfaces": interfaces })).unwrap()
}

fn create_vfs_by_hand(host: &SimHost) {
    host.modify_kernel(|kernel| {
        kernel.set_link_up(pf(), true).unwrap();
        kernel.set_num_vfs(pf(), 2).unwrap();
    });
}

fn drivers(host: &SimHost) -> Vec<String> {
    let facts = host.facts().unwrap();
    facts.pf(pf()).unwrap().vfs.iter().map(|vf| vf.driver.clone().unwrap_or_default()).collect()
}

#[test]
fn vfs_that_were_created_by_hand_get_their_driver_without_a_reboot() {
    let host = machine();
    create_vfs_by_hand(&host);
    assert_eq!(drivers(&host), ["igbvf"; 2]);
    let outcome = agent(&host, Mode::Systemd, &with_external(0));
    assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    assert_eq!(drivers(&host), ["vfio-pci"; 2]);
    assert_eq!(result(&host), Some(BootResult::succeeded()));
}

#[test]
fn vfs_that_are_created_by_hand_after_the_boot_get_their_driver_then() {
    for own in [0, 1] {
        let host = machine();
        let spec = with_external(own);
        assert_eq!(agent(&host, Mode::Systemd, &spec).reboots, own > 0);
        host.restart_process();
        // The units cannot know whether an administrator creates VFs later.
        let _ = run(&host, BootPhase::BeforeNetwork);
        run(&host, BootPhase::AfterNetwork).unwrap_err();
        assert_eq!(agent(&host, Mode::Systemd, &spec).failures[0].reason(), "TooFewVfs");
        create_vfs_by_hand(&host);
        let outcome = agent(&host, Mode::Systemd, &spec);
        assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
        assert_eq!(drivers(&host), ["vfio-pci"; 2]);
        assert_eq!(result(&host), Some(BootResult::succeeded()));
    }
}

/// The units failed on a card of our own. That card waits for a reboot by hand, the others do not.
#[test]
fn vfs_that_were_created_by_hand_do_not_wait_for_cards_of_our_own() {
    let host = machine();
    let spec = with_external(1);
    assert!(agent(&host, Mode::Systemd, &spec).reboots);
    host.restart_process();
    let failed = BootResult::failed("pre: the card does not answer").file();
    host.execute(&Step::WriteFile { pf: None, file: failed }).unwrap();
    create_vfs_by_hand(&host);
    let outcome = agent(&host, Mode::Systemd, &spec);
    assert_eq!(outcome.failures[0].reason(), "BootFailed", "{outcome:?}");
    assert_eq!(drivers(&host), ["vfio-pci"; 2]);
    assert!(!outcome.reboots, "{outcome:?}");
}

/// Machine that cannot be read, but whose files can be written.
struct Unreadable<'a>(&'a SimHost);

impl Host for Unreadable<'_> {
    fn facts(&self) -> Result<HostFacts, HostError> {
        Err(HostError::InjectedFault { attempt: "read the machine".to_owned() })
    }

    fn start(&self, step: &Step) -> Result<vfleet_host::TaskHandle<()>, HostError> {
        self.0.start(step)
    }

    fn on_change(&self, wake: vfleet_host::ChangeCallback) -> Result<vfleet_host::WatchGuard, HostError> {
        self.0.on_change(wake)
    }
}

#[test]
fn a_machine_that_cannot_be_read_is_no_success_of_the_last_boot() {
    for phase in [BootPhase::BeforeNetwork, BootPhase::AfterNetwork] {
        for only_settings in [true, false] {
            let host = rebooted_machine();
            host.execute(&Step::WriteFile { pf: None, file: BootResult::succeeded().file() }).unwrap();
            let unreadable = Unreadable(&host);
            let read = if only_settings {
                super::read_settings(&unreadable, phase).map(drop)
            } else {
                run(&unreadable, phase)
            };
            assert!(matches!(read, Err(BootError::Unreadable(_))), "{read:?}");
            let result = result(&host).unwrap();
            assert_eq!(result.sync_status, "Failed", "{result:?}");
            let begin = format!("{}: cannot read the machine: ", phase_name(phase));
            assert!(result.last_sync_error.starts_with(&begin), "{result:?}");
        }
    }
}

fn with_mtu(mtu: u32) -> SriovNetworkNodeStateSpec {
    let mut spec = three_vfs();
    spec.interfaces.as_mut().unwrap()[0].mtu = Some(mtu.into());
    spec
}

fn mtu(host: &SimHost) -> u32 {
    host.facts().unwrap().pf(pf()).unwrap().link.as_ref().unwrap().mtu
}

/// Sets or removes the default route through the PF. There is none before the network starts.
fn set_default_route(host: &SimHost, exists: bool) {
    let host_use = exists.then_some(HostUse::DefaultRoute);
    host.modify_kernel(|kernel| kernel.pf_mut(pf()).unwrap().link.as_mut().unwrap().host_use = host_use);
}

/// Reboots the machine. The route exists once the network is up.
fn reboot_and_run_units(host: &SimHost) -> Result<(), BootError> {
    host.modify_kernel(vfleet_host::sim::Kernel::reboot);
    host.restart_process();
    let before = run(host, BootPhase::BeforeNetwork);
    set_default_route(host, true);
    before.and(run(host, BootPhase::AfterNetwork))
}

#[test]
fn a_change_of_a_pf_in_use_that_the_agent_refused_is_not_made_at_boot() {
    let host = machine();
    set_default_route(&host, true);
    let refused = agent(&host, Mode::Systemd, &with_mtu(9000));
    assert_eq!((refused.failures[0].reason(), refused.reboots), ("PfInUse", false), "{refused:?}");
    reboot_and_run_units(&host).unwrap();
    assert_eq!(mtu(&host), 1500);
    assert_eq!(agent(&host, Mode::Systemd, &with_mtu(9000)).failures[0].reason(), "PfInUse");

    // An administrator moved the route: the change is made at a boot, but not while the route may come back at once.
    set_default_route(&host, false);
    let refused = agent(&host, Mode::Systemd, &with_mtu(9000));
    assert_eq!((refused.failures[0].reason(), refused.reboots), ("PfInUse", false), "{refused:?}");
    host.advance_clock(DEFAULT_PROTECTION_TIME);
    assert!(agent(&host, Mode::Systemd, &with_mtu(9000)).reboots);
    host.restart_process();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    assert_eq!(mtu(&host), 9000);
}

#[test]
fn a_pf_that_was_configured_before_the_node_used_it_is_configured_at_every_boot() {
    let host = machine();
    assert!(agent(&host, Mode::Systemd, &with_mtu(9000)).reboots);
    host.restart_process();
    reboot_and_run_units(&host).unwrap();
    assert_eq!(mtu(&host), 9000);
    // A boot in which the first unit did not run.
    host.modify_kernel(vfleet_host::sim::Kernel::reboot);
    host.restart_process();
    set_default_route(&host, true);
    assert_eq!(agent(&host, Mode::Systemd, &with_mtu(9000)).failures[0].reason(), "PfInUse");
    reboot_and_run_units(&host).unwrap();
    assert_eq!(mtu(&host), 9000);
}

/// Returns a spec for three VFs with these groups: range and driver.
fn grouped(groups: &[(&str, &str)]) -> SriovNetworkNodeStateSpec {
    let mut spec = three_vfs();
    let interface = &mut spec.interfaces.as_mut().unwrap()[0];
    let group = |(range, driver): &(&str, &str)| {
        let group = serde_json::json!({ "vfRange": range, "deviceType": driver, "policyName": "p" });
        serde_json::from_value(group).unwrap()
    };
    interface.vf_groups = Some(groups.iter().map(group).collect());
    spec
}

fn use_vf_0(host: &SimHost, host_use: Option<HostUse>) {
    host.modify_kernel(|kernel| kernel.set_vf_host_use(vfleet_api::VfRef { pf: pf(), index: 0 }, host_use))
        .unwrap();
}

/// The node uses VF 0: the network starts on it at boot, and it carries the node's address.
#[test]
fn a_policy_that_selects_the_vf_with_the_nodes_address_causes_no_reboot_and_no_change_at_boot() {
    let host = machine();
    let before = grouped(&[("1-2", "netdevice")]);
    assert!(agent(&host, Mode::Systemd, &before).reboots);
    host.restart_process();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    assert!(agent(&host, Mode::Systemd, &before).failures.is_empty());
    let config = || host.facts().unwrap().files[BOOT_CONFIG].clone();
    let accepted = config();
    use_vf_0(&host, Some(HostUse::NodeAddress));
    let drivers_before = drivers_of(&host, pf());

    let more = grouped(&[("0-2", "vfio-pci")]);
    for host_use in [Some(HostUse::NodeAddress), None] {
        // Also while the address is missing for a moment.
        use_vf_0(&host, host_use);
        let refused = agent(&host, Mode::Systemd, &more);
        assert_eq!((refused.failures[0].reason(), refused.reboots), ("VfInUse", false), "{refused:?}");
        assert_eq!(config(), accepted, "the config contains nothing that was refused");
    }
    use_vf_0(&host, Some(HostUse::NodeAddress));

    // The machine reboots for another reason.
    host.modify_kernel(vfleet_host::sim::Kernel::reboot);
    host.restart_process();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    assert!(drivers_of(&host, pf())[0].is_some(), "the kernel binds it, and the network starts on it");
    use_vf_0(&host, Some(HostUse::NodeAddress));
    run(&host, BootPhase::AfterNetwork).unwrap();
    assert_eq!(drivers_of(&host, pf()), drivers_before);
    assert_eq!(agent(&host, Mode::Systemd, &more).failures[0].reason(), "VfInUse");

    // The address moved to another interface: the change is made at a boot.
    use_vf_0(&host, None);
    agent(&host, Mode::Systemd, &more);
    host.advance_clock(DEFAULT_PROTECTION_TIME);
    assert!(agent(&host, Mode::Systemd, &more).reboots);
}

/// No policy selects the PF any more, and one of its VFs carries the node's address.
#[test]
fn a_pf_that_cannot_be_reset_is_configured_at_boot_as_before() {
    let host = machine();
    let before = grouped(&[("1-2", "netdevice")]);
    assert!(agent(&host, Mode::Systemd, &before).reboots);
    host.restart_process();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    use_vf_0(&host, Some(HostUse::NodeAddress));
    let nothing = SriovNetworkNodeStateSpec { interfaces: Some(Vec::new()), ..Default::default() };
    let refused = agent(&host, Mode::Systemd, &nothing);
    assert_eq!((refused.failures[0].reason(), refused.reboots), ("VfInUse", false), "{refused:?}");
    host.modify_kernel(vfleet_host::sim::Kernel::reboot);
    host.restart_process();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    assert_eq!(drivers_of(&host, pf()).len(), 3);
}

/// Returns the drivers of the VFs.
fn drivers_of(host: &SimHost, pf: PciAddress) -> Vec<Option<String>> {
    host.facts().unwrap().pf(pf).unwrap().vfs.iter().map(|vf| vf.driver.clone()).collect()
}
