use serde_json::json;
use vfleet_api::PciAddress;
use vfleet_host::SimHost;
use vfleet_host::sim::Machine;
use vfleet_plan::boot::config_text;
use vfleet_plan::files::UNITS;
use vfleet_plan::{HostUse, NodeOptions, PROTECTION, Plan};

use super::*;
use crate::mode::Mode;

/// A card that never comes must not hold up the tests.
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

/// What an agent in this mode does for `spec`, once.
fn agent(host: &SimHost, mode: Mode, spec: &SriovNetworkNodeStateSpec) -> Outcome {
    agent_told(host, mode, spec, &NodeSettings::default())
}

fn agent_told(
    host: &SimHost,
    mode: Mode,
    spec: &SriovNetworkNodeStateSpec,
    settings: &NodeSettings,
) -> Outcome {
    let planner = |facts: &HostFacts| mode.plan(spec, facts, settings);
    let work = Work { host, node: "node", planner: &planner, one_card_at_a_time: false, listener: &|_| {} };
    let (facts, plan) = survey(host, &planner).unwrap();
    if plan.steps.is_empty() { Outcome::without_steps(facts, plan) } else { carry_out(&work, facts, plan) }
}

fn result(host: &SimHost) -> Option<BootResult> {
    known_result(&host.facts().unwrap())
}

/// A machine in systemd mode that was just restarted for three VFs: its units have not run yet.
fn restarted() -> SimHost {
    let host = machine();
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.reboots, "{outcome:?}");
    host.restart();
    assert!(host.facts().unwrap().pf(pf()).unwrap().vfs.is_empty(), "that is the units' work");
    host
}

#[test]
fn vfs_are_made_at_boot_and_the_agent_has_nothing_left_to_do() {
    let host = restarted();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    assert_eq!(result(&host), Some(BootResult::in_progress()));
    let vfs = host.facts().unwrap().pf(pf()).unwrap().vfs.clone();
    assert!(vfs.len() == 3 && vfs.iter().all(|vf| vf.driver.is_none()), "made and not bound: {vfs:?}");

    run(&host, BootPhase::AfterNetwork).unwrap();
    assert_eq!(result(&host), Some(BootResult::succeeded()));
    assert!(host.facts().unwrap().pf(pf()).unwrap().vfs.iter().all(|vf| vf.driver.is_some()));

    let before = host.executed().len();
    for _ in 0..2 {
        let outcome = agent(&host, Mode::Systemd, &three_vfs());
        assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    }
    assert_eq!(host.executed()[before..], ["forget reboots"], "the count is the agent's");
}

/// The second unit runs, or not.
fn is_at_work(host: &SimHost, is_it: bool) {
    host.behind_its_back(|kernel| {
        kernel.working_units = is_it.then(|| UNITS[1].to_owned()).into_iter().collect();
    });
}

#[test]
fn what_a_unit_that_was_killed_left_undone_is_done_by_the_agent() {
    let host = restarted();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    host.cut_at(2);
    run(&host, BootPhase::AfterNetwork).unwrap_err();
    host.restart();
    assert_eq!(result(&host), Some(BootResult::in_progress()));
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    assert_eq!(result(&host), Some(BootResult::succeeded()));
    assert!(host.facts().unwrap().pf(pf()).unwrap().vfs.iter().all(|vf| vf.driver.is_some()));
}

#[test]
fn the_agent_says_what_the_units_say_and_does_not_restart_again() {
    let host = restarted();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    is_at_work(&host, true);
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert_eq!(outcome.failures[0].reason(), "BootUnfinished", "{outcome:?}");

    is_at_work(&host, false);
    host.fail_at(0);
    let error = run(&host, BootPhase::AfterNetwork).unwrap_err();
    assert!(error.to_string().starts_with("post: cannot "), "{error}");
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(!outcome.reboots, "{outcome:?}");
}

#[test]
fn a_missing_first_phase_is_told_and_the_second_one_does_all_the_same() {
    let host = restarted();
    let error = run(&host, BootPhase::AfterNetwork).unwrap_err();
    assert!(error.to_string().contains("pre: it was not run"), "{error}");
    assert_eq!(host.facts().unwrap().pf(pf()).unwrap().vfs.len(), 3);
    // The machine is as wanted, which is what counts for the agent.
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
    assert!(host.executed().is_empty() && result(&host).is_none());
}

fn told(host: &SimHost) -> NodeSettings {
    super::settings(host, BootPhase::BeforeNetwork).unwrap()
}

fn with_config(host: &SimHost, config: &str) {
    host.behind_its_back(|kernel| kernel.files.insert(BOOT_CONFIG.to_owned(), config.to_owned()));
}

#[test]
fn a_config_that_cannot_be_read_changes_nothing_and_is_told() {
    for config in ["spec: [", "{}", "spec: null", "spec: { interfaces: 7 }", "spec: { interfaces: [{}] }"] {
        let host = machine();
        with_config(&host, config);
        let error = run(&host, BootPhase::BeforeNetwork).unwrap_err();
        assert!(error.to_string().starts_with("pre: /etc/sriov-operator/"), "{config}: {error}");
        assert_eq!(result(&host).unwrap().sync_status, "Failed");
        assert_eq!(host.executed().len(), 2, "only the result: {:?}", host.executed());
    }
}

/// A config by the Go daemon's own code, with names in lower case and with all that was not said.
#[test]
fn a_config_of_the_go_daemon_is_followed() {
    let host = machine();
    with_config(&host, include_str!("../../../host/tests/go_daemon/lab/config.yaml"));
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    assert_eq!(host.facts().unwrap().pf(pf()).unwrap().vfs.len(), 3);
}

#[test]
fn what_is_written_is_read_back() {
    let spec = three_vfs();
    let settings = NodeSettings {
        options: NodeOptions { firmware_reset: true, mellanox: false },
        one_card_at_a_time: true,
        has_lone_vfs: true,
        node_addresses: vec![[10, 0, 0, 1].into()],
    };
    let config = BootConfig { spec, settings: settings.clone(), ..Default::default() };
    let text = config_text(&config);
    assert_eq!(parse(&text).unwrap(), config);
    let host = machine();
    assert_eq!(told(&host), NodeSettings::default());
    with_config(&host, &text);
    assert_eq!(told(&host), settings);
    with_config(&host, "spec: [");
    assert_eq!(told(&host), NodeSettings::default(), "the run says what is wrong");
}

#[test]
fn a_card_that_never_comes_fails_and_the_others_are_configured() {
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
fn a_card_that_comes_late_is_waited_for() {
    let host = machine();
    let spec = three_vfs();
    let name = host.behind_its_back(|kernel| kernel.pf_mut(pf()).unwrap().link.take());
    let comes = host.another();
    let waits = std::thread::spawn({
        let host = host.another();
        let missing = move |facts: &HostFacts| missing(&spec, facts);
        move || wait_for_cards(&host, Duration::from_secs(30), missing).map(|()| host.facts().unwrap())
    });
    comes.behind_its_back(|kernel| kernel.pf_mut(pf()).unwrap().link = name);
    let facts = waits.join().unwrap().unwrap();
    assert!(facts.pf(pf()).unwrap().link.is_some());
}

#[test]
fn killed_at_any_step_the_machine_ends_the_same() {
    let spec = three_vfs();
    let steps = {
        let host = restarted();
        run(&host, BootPhase::BeforeNetwork).unwrap();
        run(&host, BootPhase::AfterNetwork).unwrap();
        host.executed().len()
    };
    for cut in 0..steps {
        let host = restarted();
        host.cut_at(cut);
        let _ = run(&host, BootPhase::BeforeNetwork).and_then(|()| run(&host, BootPhase::AfterNetwork));
        // The machine is restarted by hand, and boots again.
        host.behind_its_back(vfleet_host::sim::Kernel::reboot);
        host.restart();
        run(&host, BootPhase::BeforeNetwork).unwrap();
        run(&host, BootPhase::AfterNetwork).unwrap();
        assert!(!agent(&host, Mode::Systemd, &spec).reboots, "cut at {cut}");
        let plan: Plan = Mode::Systemd.plan(&spec, &host.facts().unwrap(), &NodeSettings::default());
        assert!(plan.is_done(), "cut at {cut}: {plan:?}");
    }
}

#[test]
fn leaving_systemd_mode_leaves_the_cards_and_nothing_else() {
    let host = restarted();
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
fn switching_the_mode_on_for_a_machine_that_is_as_wanted_restarts_nothing() {
    let host = machine();
    assert!(agent(&host, Mode::Daemon, &three_vfs()).failures.is_empty());
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    assert_eq!(result(&host), Some(BootResult::succeeded()));
}

#[test]
fn a_vf_that_lost_its_driver_is_healed_without_a_restart() {
    let host = machine();
    assert!(agent(&host, Mode::Daemon, &three_vfs()).failures.is_empty());
    assert!(agent(&host, Mode::Systemd, &three_vfs()).failures.is_empty());
    let vf = vfleet_api::VfRef { pf: pf(), index: 1 };
    host.behind_its_back(|kernel| kernel.unbind(vf)).unwrap();
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.failures.is_empty() && !outcome.reboots && outcome.executed > 0, "{outcome:?}");
}

/// A Mellanox card whose firmware shows two VFs at most.
fn mellanox_card() -> SimHost {
    let card = json!({
        "address": pf(), "name": "ens1f0", "vendor": "15b3", "device": "1017", "vfDevice": "1018",
        "driver": "mlx5_core", "vfDriver": "mlx5_core", "totalVfs": 64,
        "firmware": { "sriov": true, "numVfs": 2, "linkTypes": ["ETH"] },
    });
    SimHost::from_yaml(&json!({ "pfs": [card] }).to_string(), "mellanox").unwrap()
}

#[test]
fn a_vendor_that_is_switched_off_is_off_at_boot_too() {
    for mellanox in [false, true] {
        let host = mellanox_card();
        let options = NodeOptions { mellanox, ..NodeOptions::default() };
        let told = NodeSettings { options, ..NodeSettings::default() };
        agent_told(&host, Mode::Systemd, &three_vfs(), &told);
        host.restart();
        let _ = run(&host, BootPhase::BeforeNetwork).and(run(&host, BootPhase::AfterNetwork));
        let executed = host.executed();
        assert_eq!(executed.iter().any(|step| step.contains("firmware")), mellanox, "{executed:?}");
    }
}

#[test]
fn another_setting_alone_restarts_nothing() {
    let host = restarted();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    let slow = NodeSettings { one_card_at_a_time: true, ..NodeSettings::default() };
    let outcome = agent_told(&host, Mode::Systemd, &three_vfs(), &slow);
    assert!(outcome.failures.is_empty() && !outcome.reboots && outcome.executed > 0, "{outcome:?}");
    assert!(told(&host).one_card_at_a_time);
    assert_eq!(agent_told(&host, Mode::Systemd, &three_vfs(), &slow).executed, 0);
}

/// A card that keeps its settings, and never works by them: two VFs, whatever it is told.
fn boots_with_two_vfs(host: &SimHost) {
    host.restart();
    host.behind_its_back(|kernel| {
        let card = kernel.pf_mut(pf()).unwrap();
        card.firmware.as_mut().unwrap().current.num_vfs = Some(2);
        card.vf_addresses.truncate(2);
    });
    let _ = run(host, BootPhase::BeforeNetwork).and(run(host, BootPhase::AfterNetwork));
}

#[test]
fn firmware_that_never_takes_its_settings_gets_two_restarts() {
    let host = mellanox_card();
    for restart in 1..=2 {
        assert!(agent(&host, Mode::Systemd, &three_vfs()).reboots, "restart {restart}");
        boots_with_two_vfs(&host);
    }
    for _ in 0..2 {
        let outcome = agent(&host, Mode::Systemd, &three_vfs());
        assert!(!outcome.reboots, "{outcome:?}");
        assert!(
            outcome.failures.iter().any(|failure| failure.reason() == "RebootsDidNotHelp"),
            "{outcome:?}"
        );
        // Somebody restarts the machine by hand.
        host.behind_its_back(vfleet_host::sim::Kernel::reboot);
        boots_with_two_vfs(&host);
    }
}

/// VFs for programs, on a PF that somebody else manages; and VFs of our own on another.
fn with_external(own: u16) -> SriovNetworkNodeStateSpec {
    let [group, other] = ["0-1", "0-0"]
        .map(|range| json!({ "vfRange": range, "deviceType": "vfio-pci", "policyName": "outside" }));
    let outside = json!({ "pciAddress": pf(), "numVfs": 2, "vfGroups": [group], "externallyManaged": true });
    let ours = json!({ "pciAddress": Machine::lab().pfs[1].address, "numVfs": own, "vfGroups": [other] });
    let interfaces = if own > 0 { vec![outside, ours] } else { vec![outside] };
    serde_json::from_value(json!({ "interfaces": interfaces })).unwrap()
}

fn make_vfs_by_hand(host: &SimHost) {
    host.behind_its_back(|kernel| {
        kernel.set_up(pf(), true).unwrap();
        kernel.set_num_vfs(pf(), 2).unwrap();
    });
}

fn drivers(host: &SimHost) -> Vec<String> {
    let facts = host.facts().unwrap();
    facts.pf(pf()).unwrap().vfs.iter().map(|vf| vf.driver.clone().unwrap_or_default()).collect()
}

#[test]
fn vfs_that_were_made_by_hand_get_their_driver_without_a_restart() {
    let host = machine();
    make_vfs_by_hand(&host);
    assert_eq!(drivers(&host), ["igbvf"; 2]);
    let outcome = agent(&host, Mode::Systemd, &with_external(0));
    assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
    assert_eq!(drivers(&host), ["vfio-pci"; 2]);
    assert_eq!(result(&host), Some(BootResult::succeeded()));
}

#[test]
fn vfs_that_are_made_by_hand_after_the_boot_get_their_driver_then() {
    for own in [0, 1] {
        let host = machine();
        let spec = with_external(own);
        assert_eq!(agent(&host, Mode::Systemd, &spec).reboots, own > 0);
        host.restart();
        // They cannot know whether somebody makes VFs later.
        let _ = run(&host, BootPhase::BeforeNetwork);
        run(&host, BootPhase::AfterNetwork).unwrap_err();
        assert_eq!(agent(&host, Mode::Systemd, &spec).failures[0].reason(), "TooFewVfs");
        make_vfs_by_hand(&host);
        let outcome = agent(&host, Mode::Systemd, &spec);
        assert!(outcome.failures.is_empty() && !outcome.reboots, "{outcome:?}");
        assert_eq!(drivers(&host), ["vfio-pci"; 2]);
        assert_eq!(result(&host), Some(BootResult::succeeded()));
    }
}

/// The units could not do something on a card of our own. That waits for a restart by hand, the others do not wait for it.
#[test]
fn vfs_that_were_made_by_hand_do_not_wait_for_cards_of_our_own() {
    let host = machine();
    let spec = with_external(1);
    assert!(agent(&host, Mode::Systemd, &spec).reboots);
    host.restart();
    let failed = BootResult::failed("pre: the card does not answer").file();
    host.execute(&Step::WriteFile { pf: None, file: failed }).unwrap();
    make_vfs_by_hand(&host);
    let outcome = agent(&host, Mode::Systemd, &spec);
    assert_eq!(outcome.failures[0].reason(), "BootFailed", "{outcome:?}");
    assert_eq!(drivers(&host), ["vfio-pci"; 2]);
    assert!(!outcome.reboots, "{outcome:?}");
}

/// A machine that cannot be read, but whose files can be written.
struct Unreadable<'a>(&'a SimHost);

impl Host for Unreadable<'_> {
    fn facts(&self) -> Result<HostFacts, HostError> {
        Err(HostError::Injected { attempt: "read the machine".to_owned() })
    }

    fn start(&self, step: &Step) -> Result<vfleet_host::Running<()>, HostError> {
        self.0.start(step)
    }

    fn on_change(&self, wake: vfleet_host::Wake) -> Result<vfleet_host::Watch, HostError> {
        self.0.on_change(wake)
    }
}

#[test]
fn a_machine_that_cannot_be_read_is_no_success_of_the_last_boot() {
    for phase in [BootPhase::BeforeNetwork, BootPhase::AfterNetwork] {
        for only_settings in [true, false] {
            let host = restarted();
            host.execute(&Step::WriteFile { pf: None, file: BootResult::succeeded().file() }).unwrap();
            let unreadable = Unreadable(&host);
            let looked = if only_settings {
                super::settings(&unreadable, phase).map(drop)
            } else {
                run(&unreadable, phase)
            };
            assert!(matches!(looked, Err(BootError::Unreadable(_))), "{looked:?}");
            let result = result(&host).unwrap();
            assert_eq!(result.sync_status, "Failed", "{result:?}");
            let begin = format!("{}: cannot read the machine: ", name(phase));
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

/// The node's default route leads through the PF, or not: before the network starts there is none.
fn has_default_route(host: &SimHost, has_it: bool) {
    let host_use = has_it.then_some(HostUse::DefaultRoute);
    host.behind_its_back(|kernel| kernel.pf_mut(pf()).unwrap().link.as_mut().unwrap().host_use = host_use);
}

/// The machine restarts, for whatever reason. The route is there when the network is.
fn boots(host: &SimHost) -> Result<(), BootError> {
    host.behind_its_back(vfleet_host::sim::Kernel::reboot);
    host.restart();
    let before = run(host, BootPhase::BeforeNetwork);
    has_default_route(host, true);
    before.and(run(host, BootPhase::AfterNetwork))
}

#[test]
fn what_the_agent_refused_on_a_pf_in_use_is_not_done_at_boot() {
    let host = machine();
    has_default_route(&host, true);
    let refused = agent(&host, Mode::Systemd, &with_mtu(9000));
    assert_eq!((refused.failures[0].reason(), refused.reboots), ("PfInUse", false), "{refused:?}");
    boots(&host).unwrap();
    assert_eq!(mtu(&host), 1500);
    assert_eq!(agent(&host, Mode::Systemd, &with_mtu(9000)).failures[0].reason(), "PfInUse");

    // Somebody moved the route away: then it is done, at a boot. Not while it may come back at once.
    has_default_route(&host, false);
    let refused = agent(&host, Mode::Systemd, &with_mtu(9000));
    assert_eq!((refused.failures[0].reason(), refused.reboots), ("PfInUse", false), "{refused:?}");
    host.pass(PROTECTION);
    assert!(agent(&host, Mode::Systemd, &with_mtu(9000)).reboots);
    host.restart();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    assert_eq!(mtu(&host), 9000);
}

#[test]
fn what_a_pf_was_made_before_the_node_used_it_it_is_made_at_every_boot() {
    let host = machine();
    assert!(agent(&host, Mode::Systemd, &with_mtu(9000)).reboots);
    host.restart();
    boots(&host).unwrap();
    assert_eq!(mtu(&host), 9000);
    // One boot in which the first unit could do nothing.
    host.behind_its_back(vfleet_host::sim::Kernel::reboot);
    host.restart();
    has_default_route(&host, true);
    assert_eq!(agent(&host, Mode::Systemd, &with_mtu(9000)).failures[0].reason(), "PfInUse");
    boots(&host).unwrap();
    assert_eq!(mtu(&host), 9000);
}

/// VFs 0 to 2: `groups` are the driver for each range.
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
    host.behind_its_back(|kernel| kernel.use_vf(vfleet_api::VfRef { pf: pf(), index: 0 }, host_use)).unwrap();
}

/// VF 0 is the host's own: the network starts on it at boot, and the node is known by the address that it carries.
#[test]
fn a_policy_that_takes_the_vf_with_the_nodes_address_has_nothing_restart_and_nothing_done_at_boot() {
    let host = machine();
    let before = grouped(&[("1-2", "netdevice")]);
    assert!(agent(&host, Mode::Systemd, &before).reboots);
    host.restart();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    assert!(agent(&host, Mode::Systemd, &before).failures.is_empty());
    let config = || host.facts().unwrap().files[BOOT_CONFIG].clone();
    let accepted = config();
    use_vf_0(&host, Some(HostUse::NodeAddress));
    let drivers_before = drivers_of(&host, pf());

    let more = grouped(&[("0-2", "vfio-pci")]);
    for host_use in [Some(HostUse::NodeAddress), None] {
        // Also while the address is away for a moment.
        use_vf_0(&host, host_use);
        let refused = agent(&host, Mode::Systemd, &more);
        assert_eq!((refused.failures[0].reason(), refused.reboots), ("VfInUse", false), "{refused:?}");
        assert_eq!(config(), accepted, "the config has nothing that was refused");
    }
    use_vf_0(&host, Some(HostUse::NodeAddress));

    // The machine restarts for another reason.
    host.behind_its_back(vfleet_host::sim::Kernel::reboot);
    host.restart();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    assert!(drivers_of(&host, pf())[0].is_some(), "the kernel binds it, and the network starts on it");
    use_vf_0(&host, Some(HostUse::NodeAddress));
    run(&host, BootPhase::AfterNetwork).unwrap();
    assert_eq!(drivers_of(&host, pf()), drivers_before);
    assert_eq!(agent(&host, Mode::Systemd, &more).failures[0].reason(), "VfInUse");

    // The address moved elsewhere: then it is done, at a boot.
    use_vf_0(&host, None);
    agent(&host, Mode::Systemd, &more);
    host.pass(PROTECTION);
    assert!(agent(&host, Mode::Systemd, &more).reboots);
}

/// No policy wants the PF any more, and one of its VFs carries the node's address.
#[test]
fn a_pf_that_cannot_be_given_back_is_made_at_boot_as_before() {
    let host = machine();
    let before = grouped(&[("1-2", "netdevice")]);
    assert!(agent(&host, Mode::Systemd, &before).reboots);
    host.restart();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    use_vf_0(&host, Some(HostUse::NodeAddress));
    let nothing = SriovNetworkNodeStateSpec { interfaces: Some(Vec::new()), ..Default::default() };
    let refused = agent(&host, Mode::Systemd, &nothing);
    assert_eq!((refused.failures[0].reason(), refused.reboots), ("VfInUse", false), "{refused:?}");
    host.behind_its_back(vfleet_host::sim::Kernel::reboot);
    host.restart();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    assert_eq!(drivers_of(&host, pf()).len(), 3);
}

/// The VFs' drivers.
fn drivers_of(host: &SimHost, pf: PciAddress) -> Vec<Option<String>> {
    host.facts().unwrap().pf(pf).unwrap().vfs.iter().map(|vf| vf.driver.clone()).collect()
}
