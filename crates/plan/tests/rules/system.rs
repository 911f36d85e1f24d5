//! State of the whole machine, on simulated machines: kernel arguments, RDMA mode, firmware, reboots.

use std::time::Duration;

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::{Host, SimHost};
use vfleet_plan::node::{NodeOptions, plan_node_with};
use vfleet_plan::{
    ExternalQuery, FailedQuery, HostFacts, Plan, Step, UnreadAttachments, reread_after, schedule,
};

/// Returns a machine with two ports of a Mellanox card and an Intel card; `more` is further YAML.
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

/// Returns YAML of VFs on a PF.
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

fn vfio_desired() -> SriovNetworkNodeStateSpec {
    spec(&format!("interfaces: [{}]", vfs("0000:5e:00.0", "ens2", 2, VFIO)))
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|planned| planned.step.to_string()).collect()
}

fn reasons(plan: &Plan) -> Vec<&'static str> {
    plan.problems.iter().map(|problem| problem.cause.reason()).collect()
}

/// Plans and executes until no steps are left, or a step fails. Includes reboots.
fn settle(host: &SimHost, spec: &SriovNetworkNodeStateSpec, options: NodeOptions) -> (Plan, HostFacts) {
    for _ in 0..12 {
        let facts = host.facts().unwrap();
        let plan = plan_node_with(spec, &facts, &options);
        if plan.steps.is_empty() {
            return (plan, facts);
        }
        execute_plan(host, &plan);
    }
    panic!("no end: {:#?}", steps(&plan_node_with(spec, &host.facts().unwrap(), &options)));
}

/// Executes the steps. Returns whether all of them succeeded.
fn execute_plan(host: &SimHost, plan: &Plan) -> bool {
    for planned in &plan.steps {
        let result = host.execute(&planned.step);
        if planned.step == Step::Reboot && result.is_ok() {
            host.restart_process();
        } else if result.is_err() {
            return false;
        }
    }
    true
}

fn reboots(host: &SimHost) -> usize {
    host.executed_steps().iter().filter(|step| *step == "reboot").count()
}

#[test]
fn an_iommu_needs_one_reboot() {
    let host = machine("", &format!("{INTEL}, commandLine: quiet}}\n"));
    let (plan, facts) = settle(&host, &vfio_desired(), NodeOptions::default());
    assert_eq!(reasons(&plan), [""; 0]);
    assert_eq!(
        host.executed_steps()[..3],
        [
            "change kernel arguments with grubby: +intel_iommu=on +iommu=pt",
            "write reboot count: 1 for kernel arguments intel_iommu=on iommu=pt",
            "reboot",
        ]
    );
    assert_eq!(reboots(&host), 1);
    assert!(facts.kernel.has_iommu && facts.kernel.reboots.is_none());
    let drivers: Vec<_> = facts.pfs[2].vfs.iter().map(|vf| vf.driver.as_deref()).collect();
    assert_eq!(drivers, [Some("vfio-pci"); 2]);
}

#[test]
fn an_active_iommu_needs_no_arguments() {
    let host = machine("", "userspaceDrivers: [vfio-pci]\nkernel: {processor: intel, bootLoader: grubby}\n");
    let (plan, _) = settle(&host, &vfio_desired(), NodeOptions::default());
    assert!(plan.is_done() && reboots(&host) == 0);
}

#[test]
fn without_a_boot_loader_there_is_no_reboot() {
    let more =
        "userspaceDrivers: [vfio-pci]\nkernel: {processor: intel, iommu: false, commandLine: iommu=pt}\n";
    let plan = plan_node_with(&vfio_desired(), &machine("", more).facts().unwrap(), &NodeOptions::default());
    assert_eq!(reasons(&plan), ["KernelArgumentsRequired", "WaitingForIommu"]);
    let text = plan.problems[0].to_string();
    assert!(
        text.contains("must be booted with intel_iommu=on, and") && text.contains("(policy p)"),
        "{text}"
    );
    assert!(!plan.steps.iter().any(|planned| planned.step == Step::Reboot), "{:?}", steps(&plan));
}

#[test]
fn reboots_without_effect_are_limited_to_two() {
    let host = machine("", &format!("{INTEL}, keepsArguments: false}}\n"));
    let vfio = vfio_desired();
    for _ in 0..3 {
        let facts = host.facts().unwrap();
        execute_plan(&host, &plan_node_with(&vfio, &facts, &NodeOptions::default()));
    }
    assert_eq!(reboots(&host), 2);
    let facts = host.facts().unwrap();
    let plan = plan_node_with(&vfio, &facts, &NodeOptions::default());
    assert!(reasons(&plan).contains(&"RebootLimitReached"), "{:?}", plan.problems);
    assert!(!steps(&plan).iter().any(|step| step.contains("reboot") || step.contains("argument")));
    let text = plan.problems[0].to_string();
    assert!(text.contains("2 reboots for kernel arguments intel_iommu=on iommu=pt"), "{text}");

    // The count is removed when the need ends.
    let plan = plan_node_with(&spec("interfaces: []"), &facts, &NodeOptions::default());
    assert!(steps(&plan).contains(&"remove reboot count".to_owned()), "{:?}", steps(&plan));
}

#[test]
fn an_interrupted_reboot_is_requested_again_and_not_counted() {
    for cut in 0..3 {
        let host = machine("", &format!("{INTEL}}}\n"));
        host.kill_at(cut);
        let plan = plan_node_with(&vfio_desired(), &host.facts().unwrap(), &NodeOptions::default());
        assert!(!execute_plan(&host, &plan), "cut at {cut}");
        host.restart_process();
        let (plan, facts) = settle(&host, &vfio_desired(), NodeOptions::default());
        assert!(plan.is_done() && facts.kernel.has_iommu, "cut at {cut}: {:?}", plan.problems);
        assert_eq!(reboots(&host), 1, "cut at {cut}");
        let counted =
            host.executed_steps().iter().filter(|step| step.starts_with("write reboot count")).count();
        assert_eq!(counted, 1, "cut at {cut}");
    }
}

#[test]
fn a_boot_without_an_id_is_counted() {
    let mut facts = machine("", &format!("{INTEL}}}\n")).facts().unwrap();
    facts.kernel.boot_id.clear();
    let need = "kernel arguments intel_iommu=on iommu=pt";
    facts.kernel.reboots = Some(vfleet_plan::Reboots::for_need(need, 2, ""));
    let plan = plan_node_with(&vfio_desired(), &facts, &NodeOptions::default());
    assert!(reasons(&plan).contains(&"RebootLimitReached"));
}

#[test]
fn a_machine_without_iommu_hardware_is_not_rebooted() {
    let more = format!("{INTEL}, commandLine: \"intel_iommu=sm_on,on iommu=pt\"}}\n");
    let mut facts = machine("", &more).facts().unwrap();
    facts.kernel.has_iommu = false;
    for processor in
        [vfleet_plan::Processor::Intel, vfleet_plan::Processor::Amd, vfleet_plan::Processor::Other]
    {
        facts.kernel.processor = processor;
        let plan = plan_node_with(&vfio_desired(), &facts, &NodeOptions::default());
        assert_eq!(reasons(&plan), ["NoIommu", "WaitingForIommu"], "{processor:?}");
        assert_eq!(steps(&plan), [""; 0], "neither a reboot nor VFs that cannot be bound");
    }
}

#[test]
fn steps_toward_a_reboot_never_follow_a_failure() {
    let facts = machine("", &format!("{INTEL}}}\n")).facts().unwrap();
    let plan = plan_node_with(&vfio_desired(), &facts, &NodeOptions::default());
    let schedule = schedule(&plan.steps);
    assert!(schedule.before.is_empty() && schedule.lanes.is_empty());
    assert_eq!(schedule.after.len(), 3);
}

const RDMA: &str = "kernel: {rdmaMode: shared, bootLoader: rpmOstree";
const MODULE_OPTIONS: &str = vfleet_plan::files::MODULE_OPTIONS;

#[test]
fn the_rdma_mode_changes_with_a_reboot_and_stays() {
    let exclusive = spec("interfaces: []\nsystem: {rdmaMode: exclusive}");
    let host = machine("", &format!("{RDMA}, commandLine: \"quiet ib_core.netns_mode=1\"}}\n"));
    let (plan, facts) = settle(&host, &exclusive, NodeOptions::default());
    assert!(plan.is_done(), "{:?}", plan.problems);
    assert_eq!(
        host.executed_steps(),
        [
            format!("write {MODULE_OPTIONS}").as_str(),
            "change kernel arguments with rpm-ostree: +ib_core.netns_mode=0 -ib_core.netns_mode=1",
            "write reboot count: 1 for kernel arguments ib_core.netns_mode=0",
            "reboot",
            "remove reboot count",
        ]
    );
    assert_eq!(facts.files[MODULE_OPTIONS], "options ib_core netns_mode=0\n");

    // No mode is requested anymore: that needs no reboot.
    let (plan, facts) = settle(&host, &spec("interfaces: []"), NodeOptions::default());
    assert!(plan.is_done() && reboots(&host) == 1);
    assert!(!facts.files.contains_key(MODULE_OPTIONS));
    let last = host.executed_steps().into_iter().skip(5).collect::<Vec<_>>();
    assert_eq!(
        last,
        [
            "change kernel arguments with rpm-ostree: -ib_core.netns_mode=0",
            &format!("remove {MODULE_OPTIONS}")
        ]
    );
}

#[test]
fn the_current_rdma_mode_needs_no_reboot() {
    let host = machine("", &format!("{RDMA}}}\n"));
    let shared = spec("interfaces: []\nsystem: {rdmaMode: shared}");
    let (plan, _) = settle(&host, &shared, NodeOptions::default());
    assert!(plan.is_done());
    assert_eq!(host.executed_steps(), [format!("write {MODULE_OPTIONS}")]);
}

#[test]
fn rdma_that_is_not_loaded_is_loaded_in_the_right_mode() {
    let exclusive = spec("interfaces: []\nsystem: {rdmaMode: exclusive}");
    let host = machine("", "kernel: {modules: {ib_core: loadable}, bootLoader: grubby}\n");
    let (plan, facts) = settle(&host, &exclusive, NodeOptions::default());
    assert!(plan.is_done() && reboots(&host) == 0, "{:?}", host.executed_steps());
    assert!(facts.kernel.rdma_mode.is_some());

    let plan = plan_node_with(&exclusive, &machine("", "").facts().unwrap(), &NodeOptions::default());
    assert_eq!((reasons(&plan), plan.steps.len()), (vec!["NoRdma"], 0));
}

#[test]
fn module_options_that_vfleet_did_not_write_are_kept() {
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
fn more_vfs_in_the_firmware_need_a_reboot() {
    let host = machine(FIRMWARE, "");
    let (plan, facts) = settle(&host, &vfs_on_both_ports(12, 20), NodeOptions::default());
    assert!(plan.is_done(), "{:?}", plan.problems);
    assert_eq!(
        host.executed_steps()[..3],
        [
            "set 0000:3b:00.0 firmware NUM_OF_VFS=20",
            "write reboot count: 1 for firmware of 0000:3b:00",
            "reboot",
        ]
    );
    assert_eq!((vf_counts(&facts), reboots(&host)), (vec![12, 20, 0], 1));

    // Fewer VFs need no firmware change.
    let (plan, facts) = settle(&host, &vfs_on_both_ports(2, 2), NodeOptions::default());
    assert!(plan.is_done());
    assert_eq!((vf_counts(&facts), reboots(&host)), (vec![2, 2, 0], 1));
    assert_eq!(facts.pfs[0].total_vfs, 20);
}

#[test]
fn a_firmware_reset_avoids_the_reboot() {
    let options = NodeOptions { firmware_reset: true, ..NodeOptions::default() };
    let host = machine(FIRMWARE, "");
    settle(&host, &spec(&format!("interfaces: [{}]", vfs("0000:3b:00.0", "ens1f0", 4, ""))), options);
    let before = host.executed_steps().len();
    let (plan, facts) = settle(&host, &vfs_on_both_ports(12, 20), options);
    assert!(plan.is_done(), "{:?}", plan.problems);
    let executed = host.executed_steps();
    assert_eq!(
        executed[before..before + 3],
        [
            "set 0000:3b:00.0 firmware NUM_OF_VFS=20",
            "set 0000:3b:00.0 numvfs 0",
            "reset firmware of 0000:3b:00.0",
        ]
    );
    assert_eq!((vf_counts(&facts), reboots(&host)), (vec![12, 20, 0], 0));
}

#[test]
fn a_failed_firmware_reset_causes_a_reboot() {
    let options = NodeOptions { firmware_reset: true, ..NodeOptions::default() };
    let host = machine(FIRMWARE, "");
    host.fail_at(1);
    let (plan, facts) = settle(&host, &vfs_on_both_ports(12, 20), options);
    assert!(plan.is_done(), "{:?}", plan.problems);
    assert_eq!((vf_counts(&facts), reboots(&host)), (vec![12, 20, 0], 1));
}

#[test]
fn the_firmware_of_a_card_in_use_is_not_reset() {
    let options = NodeOptions { firmware_reset: true, ..NodeOptions::default() };
    let resets = |host: &SimHost, desired: &SriovNetworkNodeStateSpec| {
        let plan = plan_node_with(desired, &host.facts().unwrap(), &options);
        assert!(steps(&plan).iter().any(|step| step.contains("NUM_OF_VFS=12")), "{:?}", steps(&plan));
        steps(&plan).iter().any(|step| step.starts_with("reset firmware"))
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
fn firmware_is_not_changed_if_it_is_disabled_external_or_locked() {
    let facts = machine(FIRMWARE, "").facts().unwrap();
    let touches = |plan: &Plan| steps(plan).iter().any(|step| step.contains("firmware") || step == "reboot");
    let desired = vfs_on_both_ports(12, 20);
    let off = NodeOptions { mellanox: false, ..NodeOptions::default() };
    assert!(!touches(&plan_node_with(&desired, &facts, &off)));

    let external = vfs("0000:3b:00.0", "ens1f0", 12, "").replacen('{', "{externallyManaged: true, ", 1);
    let plan = plan_node_with(&spec(&format!("interfaces: [{external}]")), &facts, &NodeOptions::default());
    assert!(!touches(&plan) && !plan.problems.is_empty(), "{:?}", steps(&plan));

    let mut locked = facts;
    locked.kernel.is_locked_down = true;
    let plan = plan_node_with(&desired, &locked, &NodeOptions::default());
    assert!(!touches(&plan) && reasons(&plan).contains(&"KernelLockedDown"), "{:?}", plan.problems);
    let text = plan.problems[0].to_string();
    assert!(text.starts_with("PF ens1f0 (0000:3b:00.0): ") && text.ends_with("(policy p)"), "{text}");
}

#[test]
fn a_missing_firmware_tool_is_a_problem_only_if_settings_are_needed() {
    let mut facts = machine("", "").facts().unwrap();
    facts.pfs[0].total_vfs = 8;
    let few = plan_node_with(&vfs_on_both_ports(8, 8), &facts, &NodeOptions::default());
    assert!(few.problems.is_empty(), "{:?}", few.problems);
    let many = plan_node_with(&vfs_on_both_ports(9, 8), &facts, &NodeOptions::default());
    assert!(reasons(&many).contains(&"NoFirmwareTool"), "{:?}", many.problems);

    // The query at the other port of the card failed.
    let error = "`mstconfig query` failed (exit status: 3): no such card".to_owned();
    let pf = facts.pfs[1].address;
    facts.failed_queries =
        vec![FailedQuery { pf, query: ExternalQuery::Firmware, error, reason: "CommandFailed" }];
    let many = plan_node_with(&vfs_on_both_ports(9, 8), &facts, &NodeOptions::default());
    let reasons = reasons(&many);
    assert!(reasons.contains(&"FirmwareToolFailed") && !reasons.contains(&"NoFirmwareTool"), "{reasons:?}");
    let few = plan_node_with(&vfs_on_both_ports(8, 8), &facts, &NodeOptions::default());
    assert!(few.problems.is_empty(), "{:?}", few.problems);
}

#[test]
fn unknown_facts_that_no_event_announces_are_read_again() {
    let mut facts = machine("", "").facts().unwrap();
    assert_eq!(reread_after(&facts), None);
    let error = "cannot list /var/lib/cni/vfleet: Input/output error".to_owned();
    facts.unread_attachments = Some(UnreadAttachments { error, reason: "HostFileFailed" });
    assert_eq!(reread_after(&facts), Some(Duration::from_mins(1)));
    facts.pfs[0].link.as_mut().unwrap().is_named = false;
    assert_eq!(reread_after(&facts), Some(Duration::from_secs(1)), "the shortest pause");
}

#[test]
fn a_card_without_vfs_is_not_asked_for_fewer() {
    let mut facts = machine("", "").facts().unwrap();
    facts.pfs[0].total_vfs = 0;
    let options = NodeOptions { mellanox: false, ..NodeOptions::default() };
    let plan = plan_node_with(&vfs_on_both_ports(8, 8), &facts, &options);
    let text = plan.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert!(text.contains("enable SR-IOV in its firmware") && !text.contains("lower numVfs"), "{text}");
}

#[test]
fn the_link_type_of_a_port_is_changed() {
    let host = machine(FIRMWARE, "");
    let ib = vfs("0000:3b:00.1", "ens1f1", 2, "").replacen('{', "{linkType: IB, ", 1);
    let (plan, facts) = settle(&host, &spec(&format!("interfaces: [{ib}]")), NodeOptions::default());
    assert_eq!(host.executed_steps()[0], "set 0000:3b:00.0 firmware LINK_TYPE_P2=IB");
    assert_eq!(reboots(&host), 1);
    assert_eq!(facts.pfs[1].link.as_ref().unwrap().kind, vfleet_plan::LinkKind::Infiniband);
    assert!(!reasons(&plan).contains(&"LinkTypeNotSupported"), "{:?}", plan.problems);
}

/// A process that is killed before any step and started again has the same result, with one reboot.
#[test]
fn a_process_may_be_killed_before_any_step() {
    let (first, second) = (vfs("0000:3b:00.0", "ens1f0", 12, VFIO), vfs("0000:3b:00.1", "ens1f1", 20, ""));
    let desired = spec(&format!("interfaces: [{first}, {second}]\nsystem: {{rdmaMode: exclusive}}"));
    let options = NodeOptions::default();
    let more = format!("{INTEL}, rdmaMode: shared}}\n");
    let undisturbed = machine(FIRMWARE, &more);
    let (plan, expected) = settle(&undisturbed, &desired, options);
    assert!(plan.is_done(), "{:?}", plan.problems);
    let count = undisturbed.executed_steps().len();
    assert_eq!(reboots(&undisturbed), 1);
    for cut in 0..count {
        let host = machine(FIRMWARE, &more);
        host.kill_at(cut);
        for _ in 0..4 {
            let Ok(facts) = host.facts() else { break };
            if !execute_until_cut(&host, &plan_node_with(&desired, &facts, &options), cut) {
                break;
            }
        }
        host.restart_process();
        let (plan, facts) = settle(&host, &desired, options);
        assert!(plan.is_done(), "cut at {cut}: {:?}", plan.problems);
        assert_eq!(facts, expected, "cut at {cut}");
    }
}

/// Like [`execute_plan`], but a reboot does not remove a planned interruption.
fn execute_until_cut(host: &SimHost, plan: &Plan, cut: usize) -> bool {
    for planned in &plan.steps {
        if host.execute(&planned.step).is_err() {
            return false;
        }
        if planned.step == Step::Reboot {
            let left = cut.saturating_sub(host.executed_steps().len());
            host.restart_process();
            host.kill_at(left);
        }
    }
    true
}
