//! What concerns the whole machine, on simulated machines: kernel arguments, RDMA mode, firmware, restarts.

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::{Host, SimHost};
use vfleet_plan::node::{NodeOptions, plan_node_with};
use vfleet_plan::{HostFacts, Plan, Question, Step, Unanswered, schedule};

/// Two ports of a Mellanox card and an Intel one; `more` follows.
fn machine(firmware: &str, more: &str) -> SimHost {
    let card = |address: &str, name: &str, vendor: &str, driver: &str, firmware: &str| {
        format!(
            "- {{address: \"{address}\", name: {name}, vendor: \"{vendor}\", device: \"1017\", vfDevice: \"1018\", \
             driver: {driver}, vfDriver: {driver}, totalVfs: 64{firmware}}}\n"
        )
    };
    let text = format!(
        "pfs:\n{}{}{}{more}",
        card("0000:3b:00.0", "ens1f0", "15b3", "mlx5_core", firmware),
        card("0000:3b:00.1", "ens1f1", "15b3", "mlx5_core", firmware),
        card("0000:5e:00.0", "ens2", "8086", "ice", ""),
    );
    SimHost::from_yaml(&text, "system").unwrap()
}

fn spec(text: &str) -> SriovNetworkNodeStateSpec {
    serde_saphyr::from_str(text).unwrap()
}

/// VFs on a PF.
fn vfs(pf: &str, name: &str, count: u16, more: &str) -> String {
    format!(
        "{{pciAddress: \"{pf}\", name: {name}, numVfs: {count}, vfGroups: [{{vfRange: \"0-{}\", policyName: p, \
         resourceName: r{more}}}]}}",
        count - 1
    )
}

const VFIO: &str = ", deviceType: vfio-pci";
const INTEL: &str =
    "userspaceDrivers: [vfio-pci]\nkernel: {processor: intel, iommu: false, bootLoader: grubby";

fn vfio_wanted() -> SriovNetworkNodeStateSpec {
    spec(&format!("interfaces: [{}]", vfs("0000:5e:00.0", "ens2", 2, VFIO)))
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|planned| planned.step.to_string()).collect()
}

fn reasons(plan: &Plan) -> Vec<&'static str> {
    plan.problems.iter().map(|problem| problem.cause.reason()).collect()
}

/// Looks and acts until nothing is left to do, or a step fails. Restarts are part of it.
fn settle(host: &SimHost, spec: &SriovNetworkNodeStateSpec, options: NodeOptions) -> (Plan, HostFacts) {
    for _ in 0..12 {
        let facts = host.facts().unwrap();
        let plan = plan_node_with(spec, &facts, &options);
        if plan.steps.is_empty() {
            return (plan, facts);
        }
        carry_out(host, &plan);
    }
    panic!("no end: {:#?}", steps(&plan_node_with(spec, &host.facts().unwrap(), &options)));
}

/// Tells whether all steps were executed.
fn carry_out(host: &SimHost, plan: &Plan) -> bool {
    for planned in &plan.steps {
        let result = host.execute(&planned.step);
        if planned.step == Step::Reboot && result.is_ok() {
            host.restart();
        } else if result.is_err() {
            return false;
        }
    }
    true
}

fn reboots(host: &SimHost) -> usize {
    host.executed().iter().filter(|step| *step == "reboot").count()
}

#[test]
fn an_iommu_is_had_by_one_restart() {
    let host = machine("", &format!("{INTEL}, commandLine: quiet}}\n"));
    let (plan, facts) = settle(&host, &vfio_wanted(), NodeOptions::default());
    assert_eq!(reasons(&plan), [""; 0]);
    assert_eq!(
        host.executed()[..3],
        [
            "change kernel arguments by grubby: +intel_iommu=on +iommu=pt",
            "write down reboot 1 for kernel arguments intel_iommu=on iommu=pt",
            "reboot",
        ]
    );
    assert_eq!(reboots(&host), 1);
    assert!(facts.kernel.has_iommu && facts.kernel.reboots.is_none());
    let drivers: Vec<_> = facts.pfs[2].vfs.iter().map(|vf| vf.driver.as_deref()).collect();
    assert_eq!(drivers, [Some("vfio-pci"); 2]);
}

#[test]
fn an_iommu_that_works_needs_no_arguments() {
    let host = machine("", "userspaceDrivers: [vfio-pci]\nkernel: {processor: intel, bootLoader: grubby}\n");
    let (plan, _) = settle(&host, &vfio_wanted(), NodeOptions::default());
    assert!(plan.is_done() && reboots(&host) == 0);
}

#[test]
fn without_a_boot_loader_nothing_restarts() {
    let more =
        "userspaceDrivers: [vfio-pci]\nkernel: {processor: intel, iommu: false, commandLine: iommu=pt}\n";
    let plan = plan_node_with(&vfio_wanted(), &machine("", more).facts().unwrap(), &NodeOptions::default());
    assert_eq!(reasons(&plan), ["KernelArgumentsByHand", "WaitsForIommu"]);
    let text = plan.problems[0].to_string();
    assert!(
        text.contains("must be started with intel_iommu=on, but") && text.contains("(policy p)"),
        "{text}"
    );
    assert!(!plan.steps.iter().any(|planned| planned.step == Step::Reboot), "{:?}", steps(&plan));
}

#[test]
fn two_restarts_that_do_not_help_are_enough() {
    let host = machine("", &format!("{INTEL}, keepsArguments: false}}\n"));
    let vfio = vfio_wanted();
    for _ in 0..3 {
        let facts = host.facts().unwrap();
        carry_out(&host, &plan_node_with(&vfio, &facts, &NodeOptions::default()));
    }
    assert_eq!(reboots(&host), 2);
    let facts = host.facts().unwrap();
    let plan = plan_node_with(&vfio, &facts, &NodeOptions::default());
    assert!(reasons(&plan).contains(&"RebootsDidNotHelp"), "{:?}", plan.problems);
    assert!(!steps(&plan).iter().any(|step| step.contains("reboot") || step.contains("argument")));
    let text = plan.problems[0].to_string();
    assert!(text.contains("2 restarts for kernel arguments intel_iommu=on iommu=pt"), "{text}");

    // When it is not wanted any more, it is forgotten.
    let plan = plan_node_with(&spec("interfaces: []"), &facts, &NodeOptions::default());
    assert!(steps(&plan).contains(&"forget reboots".to_owned()), "{:?}", steps(&plan));
}

#[test]
fn a_restart_that_was_cut_off_is_asked_for_again_and_not_counted() {
    for cut in 0..3 {
        let host = machine("", &format!("{INTEL}}}\n"));
        host.cut_at(cut);
        let plan = plan_node_with(&vfio_wanted(), &host.facts().unwrap(), &NodeOptions::default());
        assert!(!carry_out(&host, &plan), "cut at {cut}");
        host.restart();
        let (plan, facts) = settle(&host, &vfio_wanted(), NodeOptions::default());
        assert!(plan.is_done() && facts.kernel.has_iommu, "cut at {cut}: {:?}", plan.problems);
        assert_eq!(reboots(&host), 1, "cut at {cut}");
        let counted = host.executed().iter().filter(|step| step.starts_with("write down")).count();
        assert_eq!(counted, 1, "cut at {cut}");
    }
}

#[test]
fn a_boot_that_cannot_be_told_from_others_does_not_escape_the_count() {
    let mut facts = machine("", &format!("{INTEL}}}\n")).facts().unwrap();
    facts.kernel.boot_id.clear();
    let need = "kernel arguments intel_iommu=on iommu=pt";
    facts.kernel.reboots = Some(vfleet_plan::Reboots::for_one(need, 2, ""));
    let plan = plan_node_with(&vfio_wanted(), &facts, &NodeOptions::default());
    assert!(reasons(&plan).contains(&"RebootsDidNotHelp"));
}

#[test]
fn a_machine_without_an_iommu_is_not_restarted_in_vain() {
    let more = format!("{INTEL}, commandLine: \"intel_iommu=sm_on,on iommu=pt\"}}\n");
    let mut facts = machine("", &more).facts().unwrap();
    facts.kernel.has_iommu = false;
    for processor in
        [vfleet_plan::Processor::Intel, vfleet_plan::Processor::Amd, vfleet_plan::Processor::Other]
    {
        facts.kernel.processor = processor;
        let plan = plan_node_with(&vfio_wanted(), &facts, &NodeOptions::default());
        assert_eq!(reasons(&plan), ["NoIommu", "WaitsForIommu"], "{processor:?}");
        assert_eq!(steps(&plan), [""; 0], "neither a restart nor VFs that cannot be bound");
    }
}

#[test]
fn what_leads_to_a_restart_never_follows_a_failure() {
    let facts = machine("", &format!("{INTEL}}}\n")).facts().unwrap();
    let plan = plan_node_with(&vfio_wanted(), &facts, &NodeOptions::default());
    let schedule = schedule(&plan.steps);
    assert!(schedule.before.is_empty() && schedule.lanes.is_empty());
    assert_eq!(schedule.after.len(), 3);
}

const RDMA: &str = "kernel: {rdmaMode: shared, bootLoader: rpmOstree";
const MODULE_OPTIONS: &str = vfleet_plan::files::MODULE_OPTIONS;

#[test]
fn the_rdma_mode_changes_with_a_restart_and_stays() {
    let exclusive = spec("interfaces: []\nsystem: {rdmaMode: exclusive}");
    let host = machine("", &format!("{RDMA}, commandLine: \"quiet ib_core.netns_mode=1\"}}\n"));
    let (plan, facts) = settle(&host, &exclusive, NodeOptions::default());
    assert!(plan.is_done(), "{:?}", plan.problems);
    assert_eq!(
        host.executed(),
        [
            format!("write {MODULE_OPTIONS}").as_str(),
            "change kernel arguments by rpm-ostree: +ib_core.netns_mode=0 -ib_core.netns_mode=1",
            "write down reboot 1 for kernel arguments ib_core.netns_mode=0",
            "reboot",
            "forget reboots",
        ]
    );
    assert_eq!(facts.files[MODULE_OPTIONS], "options ib_core netns_mode=0\n");

    // Nobody wants a mode any more: no restart for that.
    let (plan, facts) = settle(&host, &spec("interfaces: []"), NodeOptions::default());
    assert!(plan.is_done() && reboots(&host) == 1);
    assert!(!facts.files.contains_key(MODULE_OPTIONS));
    let last = host.executed().into_iter().skip(5).collect::<Vec<_>>();
    assert_eq!(
        last,
        ["change kernel arguments by rpm-ostree: -ib_core.netns_mode=0", &format!("remove {MODULE_OPTIONS}")]
    );
}

#[test]
fn the_rdma_mode_that_is_there_needs_no_restart() {
    let host = machine("", &format!("{RDMA}}}\n"));
    let shared = spec("interfaces: []\nsystem: {rdmaMode: shared}");
    let (plan, _) = settle(&host, &shared, NodeOptions::default());
    assert!(plan.is_done());
    assert_eq!(host.executed(), [format!("write {MODULE_OPTIONS}")]);
}

#[test]
fn rdma_that_is_not_loaded_is_loaded_in_the_right_mode() {
    let exclusive = spec("interfaces: []\nsystem: {rdmaMode: exclusive}");
    let host = machine("", "kernel: {modules: {ib_core: loadable}, bootLoader: grubby}\n");
    let (plan, facts) = settle(&host, &exclusive, NodeOptions::default());
    assert!(plan.is_done() && reboots(&host) == 0, "{:?}", host.executed());
    assert!(facts.kernel.rdma_mode.is_some());

    let plan = plan_node_with(&exclusive, &machine("", "").facts().unwrap(), &NodeOptions::default());
    assert_eq!((reasons(&plan), plan.steps.len()), (vec!["NoRdma"], 0));
}

#[test]
fn options_of_modules_that_others_wrote_stay() {
    let text = "options ib_core netns_mode=0\noptions vfio disable_vga=1\n";
    let mut facts = machine("", &format!("{RDMA}, commandLine: ib_core.netns_mode=0}}\n")).facts().unwrap();
    facts.files.insert(MODULE_OPTIONS.to_owned(), text.to_owned());
    assert!(plan_node_with(&spec("interfaces: []"), &facts, &NodeOptions::default()).is_done());
}

const FIRMWARE: &str = ", firmware: {sriov: true, numVfs: 8, linkTypes: [ETH, ETH]}";

fn vfs_on_both_ports(first: u16, second: u16) -> SriovNetworkNodeStateSpec {
    let (first, second) =
        (vfs("0000:3b:00.0", "ens1f0", first, ""), vfs("0000:3b:00.1", "ens1f1", second, ""));
    spec(&format!("interfaces: [{first}, {second}]"))
}

fn vf_counts(facts: &HostFacts) -> Vec<usize> {
    facts.pfs.iter().map(|pf| pf.vfs.len()).collect()
}

#[test]
fn a_card_is_told_of_more_vfs_and_the_machine_restarts() {
    let host = machine(FIRMWARE, "");
    let (plan, facts) = settle(&host, &vfs_on_both_ports(12, 20), NodeOptions::default());
    assert!(plan.is_done(), "{:?}", plan.problems);
    assert_eq!(
        host.executed()[..3],
        [
            "set 0000:3b:00.0 firmware NUM_OF_VFS=20",
            "write down reboot 1 for firmware of 0000:3b:00",
            "reboot",
        ]
    );
    assert_eq!((vf_counts(&facts), reboots(&host)), (vec![12, 20, 0], 1));

    // Fewer VFs need no change of the firmware.
    let (plan, facts) = settle(&host, &vfs_on_both_ports(2, 2), NodeOptions::default());
    assert!(plan.is_done());
    assert_eq!((vf_counts(&facts), reboots(&host)), (vec![2, 2, 0], 1));
    assert_eq!(facts.pfs[0].total_vfs, 20);
}

#[test]
fn a_restart_of_the_firmware_saves_that_of_the_machine() {
    let options = NodeOptions { firmware_reset: true, ..NodeOptions::default() };
    let host = machine(FIRMWARE, "");
    settle(&host, &spec(&format!("interfaces: [{}]", vfs("0000:3b:00.0", "ens1f0", 4, ""))), options);
    let before = host.executed().len();
    let (plan, facts) = settle(&host, &vfs_on_both_ports(12, 20), options);
    assert!(plan.is_done(), "{:?}", plan.problems);
    let executed = host.executed();
    assert_eq!(
        executed[before..before + 3],
        [
            "set 0000:3b:00.0 firmware NUM_OF_VFS=20",
            "set 0000:3b:00.0 numvfs 0",
            "restart the firmware of 0000:3b:00.0",
        ]
    );
    assert_eq!((vf_counts(&facts), reboots(&host)), (vec![12, 20, 0], 0));
}

#[test]
fn a_firmware_whose_restart_fails_makes_the_machine_restart() {
    let options = NodeOptions { firmware_reset: true, ..NodeOptions::default() };
    let host = machine(FIRMWARE, "");
    host.fail_at(1);
    let (plan, facts) = settle(&host, &vfs_on_both_ports(12, 20), options);
    assert!(plan.is_done(), "{:?}", plan.problems);
    assert_eq!((vf_counts(&facts), reboots(&host)), (vec![12, 20, 0], 1));
}

#[test]
fn a_card_that_others_use_is_not_restarted_alone() {
    let options = NodeOptions { firmware_reset: true, ..NodeOptions::default() };
    let resets = |host: &SimHost, wanted: &SriovNetworkNodeStateSpec| {
        let plan = plan_node_with(wanted, &host.facts().unwrap(), &options);
        assert!(steps(&plan).iter().any(|step| step.contains("NUM_OF_VFS=12")), "{:?}", steps(&plan));
        steps(&plan).iter().any(|step| step.starts_with("restart the firmware"))
    };
    let first = spec(&format!("interfaces: [{}]", vfs("0000:3b:00.0", "ens1f0", 12, "")));
    let second = spec(&format!("interfaces: [{}]", vfs("0000:3b:00.1", "ens1f1", 12, "")));
    assert!(resets(&machine(FIRMWARE, ""), &first) && resets(&machine(FIRMWARE, ""), &second));
    let in_use = format!("{FIRMWARE}, hostUse: defaultRoute");
    assert!(!resets(&machine(&in_use, ""), &first));
    let with_vfs = format!("{FIRMWARE}, numVfs: 2");
    assert!(!resets(&machine(&with_vfs, ""), &first), "the other port has VFs");
    assert!(!resets(&machine(&with_vfs, ""), &second), "the other port's VFs are not ours");
}

#[test]
fn firmware_is_left_alone_where_it_shall_be() {
    let facts = machine(FIRMWARE, "").facts().unwrap();
    let touches = |plan: &Plan| steps(plan).iter().any(|step| step.contains("firmware") || step == "reboot");
    let wanted = vfs_on_both_ports(12, 20);
    let off = NodeOptions { mellanox: false, ..NodeOptions::default() };
    assert!(!touches(&plan_node_with(&wanted, &facts, &off)));

    let outside = vfs("0000:3b:00.0", "ens1f0", 12, "").replacen('{', "{externallyManaged: true, ", 1);
    let plan = plan_node_with(&spec(&format!("interfaces: [{outside}]")), &facts, &NodeOptions::default());
    assert!(!touches(&plan) && !plan.problems.is_empty(), "{:?}", steps(&plan));

    let mut locked = facts;
    locked.kernel.is_locked_down = true;
    let plan = plan_node_with(&wanted, &locked, &NodeOptions::default());
    assert!(!touches(&plan) && reasons(&plan).contains(&"KernelLockedDown"), "{:?}", plan.problems);
    let text = plan.problems[0].to_string();
    assert!(text.starts_with("ens1f0 (0000:3b:00.0): ") && text.ends_with("(policy p)"), "{text}");
}

#[test]
fn a_card_of_which_no_tool_tells_is_a_problem_only_when_it_matters() {
    let mut facts = machine("", "").facts().unwrap();
    facts.pfs[0].total_vfs = 8;
    let few = plan_node_with(&vfs_on_both_ports(8, 8), &facts, &NodeOptions::default());
    assert!(few.problems.is_empty(), "{:?}", few.problems);
    let many = plan_node_with(&vfs_on_both_ports(9, 8), &facts, &NodeOptions::default());
    assert!(reasons(&many).contains(&"NoFirmwareTool"), "{:?}", many.problems);

    // The tool was asked at the other port of the card.
    let error = "`mstconfig query` failed (exit status: 3): no such card".to_owned();
    let pf = facts.pfs[1].address;
    facts.unanswered = vec![Unanswered { pf, question: Question::Firmware, error, reason: "CommandFailed" }];
    let many = plan_node_with(&vfs_on_both_ports(9, 8), &facts, &NodeOptions::default());
    let reasons = reasons(&many);
    assert!(reasons.contains(&"FirmwareToolFailed") && !reasons.contains(&"NoFirmwareTool"), "{reasons:?}");
    let few = plan_node_with(&vfs_on_both_ports(8, 8), &facts, &NodeOptions::default());
    assert!(few.problems.is_empty(), "{:?}", few.problems);
}

#[test]
fn a_card_that_shows_no_vfs_is_not_one_that_asks_for_fewer() {
    let mut facts = machine("", "").facts().unwrap();
    facts.pfs[0].total_vfs = 0;
    let options = NodeOptions { mellanox: false, ..NodeOptions::default() };
    let plan = plan_node_with(&vfs_on_both_ports(8, 8), &facts, &options);
    let text = plan.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert!(text.contains("switched off in its firmware") && !text.contains("lower numVfs"), "{text}");
}

#[test]
fn a_port_is_turned_into_another_kind() {
    let host = machine(FIRMWARE, "");
    let ib = vfs("0000:3b:00.1", "ens1f1", 2, "").replacen('{', "{linkType: IB, ", 1);
    let (plan, facts) = settle(&host, &spec(&format!("interfaces: [{ib}]")), NodeOptions::default());
    assert_eq!(host.executed()[0], "set 0000:3b:00.0 firmware LINK_TYPE_P2=IB");
    assert_eq!(reboots(&host), 1);
    assert_eq!(facts.pfs[1].link.as_ref().unwrap().kind, vfleet_plan::LinkKind::Infiniband);
    assert!(!reasons(&plan).contains(&"LinkTypeNotPossible"), "{:?}", plan.problems);
}

/// Killed before any step, and started again: the same machine in the end, with one restart.
#[test]
fn a_process_may_be_killed_before_any_step() {
    let (first, second) = (vfs("0000:3b:00.0", "ens1f0", 12, VFIO), vfs("0000:3b:00.1", "ens1f1", 20, ""));
    let wanted = spec(&format!("interfaces: [{first}, {second}]\nsystem: {{rdmaMode: exclusive}}"));
    let options = NodeOptions::default();
    let more = format!("{INTEL}, rdmaMode: shared}}\n");
    let undisturbed = machine(FIRMWARE, &more);
    let (plan, expected) = settle(&undisturbed, &wanted, options);
    assert!(plan.is_done(), "{:?}", plan.problems);
    let count = undisturbed.executed().len();
    assert_eq!(reboots(&undisturbed), 1);
    for cut in 0..count {
        let host = machine(FIRMWARE, &more);
        host.cut_at(cut);
        for _ in 0..4 {
            let Ok(facts) = host.facts() else { break };
            if !carry_out_until_cut(&host, &plan_node_with(&wanted, &facts, &options), cut) {
                break;
            }
        }
        host.restart();
        let (plan, facts) = settle(&host, &wanted, options);
        assert!(plan.is_done(), "cut at {cut}: {:?}", plan.problems);
        assert_eq!(facts, expected, "cut at {cut}");
    }
}

/// As [`carry_out`], but a restart of the machine does not take back the cut that is still to come.
fn carry_out_until_cut(host: &SimHost, plan: &Plan, cut: usize) -> bool {
    for planned in &plan.steps {
        if host.execute(&planned.step).is_err() {
            return false;
        }
        if planned.step == Step::Reboot {
            let left = cut.saturating_sub(host.executed().len());
            host.restart();
            host.cut_at(left);
        }
    }
    true
}
