use serde_json::json;
use vfleet_api::PciAddress;
use vfleet_host::SimHost;
use vfleet_host::sim::Machine;
use vfleet_plan::boot::config_text;
use vfleet_plan::{NodeOptions, Plan};

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

    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert!(outcome.failures.is_empty() && outcome.executed == 0 && !outcome.reboots, "{outcome:?}");
}

#[test]
fn the_agent_says_what_the_units_say_and_does_not_restart_again() {
    let host = restarted();
    run(&host, BootPhase::BeforeNetwork).unwrap();
    let outcome = agent(&host, Mode::Systemd, &three_vfs());
    assert_eq!(outcome.failures[0].reason(), "BootUnfinished", "{outcome:?}");

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

/// As the Go daemon's YAML library writes it: lower case, and with all that was not said.
#[test]
fn a_config_of_the_go_daemon_is_followed() {
    let host = machine();
    with_config(
        &host,
        &format!(
            "spec:\n    interfaces:\n        - pciaddress: {}\n          numvfs: 2\n          mtu: 0\n          \
             name: eth0\n          linktype: \"\"\n          eswitchmode: legacy\n          vfgroups:\n            \
             - resourcename: a\n              devicetype: netdevice\n              vfrange: 0-1\n              \
             policyname: p\n              mtu: 0\n              isrdma: false\n              vdpatype: \"\"\n          \
             externallymanaged: false\n    bridges:\n        ovs: []\n    system:\n        rdmamode: \"\"\n\
             unsupportedNics: false\nplatformType: 0\nmanageSoftwareBridges: false\novsdbSocketPath: \"\"\n",
            pf()
        ),
    );
    run(&host, BootPhase::BeforeNetwork).unwrap();
    run(&host, BootPhase::AfterNetwork).unwrap();
    assert_eq!(host.facts().unwrap().pf(pf()).unwrap().vfs.len(), 2);
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
    let text = config_text(&spec, &settings);
    assert_eq!(parse(&text).unwrap(), BootConfig { spec, settings: settings.clone() });
    let host = machine();
    assert_eq!(super::settings(&host).unwrap(), NodeSettings::default());
    with_config(&host, &text);
    assert_eq!(super::settings(&host).unwrap(), settings);
    with_config(&host, "spec: [");
    assert_eq!(super::settings(&host).unwrap(), NodeSettings::default(), "the run says what is wrong");
}

#[test]
fn a_card_that_never_comes_fails_and_the_others_are_configured() {
    let host = machine();
    let mut spec = three_vfs();
    let missing = json!({ "pciAddress": "0000:ff:00.0", "numVfs": 1 });
    spec.interfaces.as_mut().unwrap().push(serde_json::from_value(missing).unwrap());
    with_config(&host, &config_text(&spec, &NodeSettings::default()));
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
    assert!(super::settings(&host).unwrap().one_card_at_a_time);
    assert_eq!(agent_told(&host, Mode::Systemd, &three_vfs(), &slow).executed, 0);
}
