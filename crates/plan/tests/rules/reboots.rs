//! Reboots of the machine: their needs and their limit.

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::{Host, SimHost};
use vfleet_plan::{BootLoader, HostFacts, Plan, Processor, Reboots, Step, UnreadableCard, plan_node};

const ARGUMENTS: &str = "kernel arguments intel_iommu=on iommu=pt";
const FIRMWARE: &str = "firmware of 0000:3b:00";

/// Returns an Intel machine without an IOMMU, with a Mellanox card whose firmware has 8 VFs now and 16 after a reset.
fn machine() -> HostFacts {
    let card = "{address: '0000:3b:00.0', name: ens1f0, vendor: '15b3', device: '1017', vfDevice: '1018', \
                driver: mlx5_core, vfDriver: mlx5_core, totalVfs: 64, firmware: {sriov: true, numVfs: 8}}";
    let kernel = "{processor: intel, iommu: false, bootLoader: grubby}";
    let text = format!("pfs: [{card}]\nuserspaceDrivers: [vfio-pci]\nkernel: {kernel}\n");
    let mut facts = SimHost::from_yaml(&text, "reboots").unwrap().facts().unwrap();
    let firmware = facts.pfs[0].firmware.as_mut().unwrap();
    firmware.next_boot.num_vfs = Some(16);
    facts
}

fn spec(num_vfs: u16, driver: &str) -> SriovNetworkNodeStateSpec {
    serde_saphyr::from_str(&format!(
        "interfaces: [{{pciAddress: '0000:3b:00.0', name: ens1f0, numVfs: {num_vfs}, \
         vfGroups: [{{vfRange: 0-1, policyName: p, deviceType: {driver}}}]}}]"
    ))
    .unwrap()
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|planned| planned.step.to_string()).collect()
}

fn problems(plan: &Plan) -> Vec<String> {
    plan.problems.iter().map(|problem| format!("{}: {problem}", problem.cause.reason())).collect()
}

fn reboot_reason(plan: &Plan) -> Option<&str> {
    plan.steps.iter().find(|planned| planned.step == Step::Reboot).map(|planned| planned.why.as_str())
}

/// Returns the reboot counts after the plan.
fn counted(plan: &Plan, facts: &HostFacts) -> Option<Reboots> {
    plan.steps.iter().fold(facts.kernel.reboots.clone(), |counted, planned| match &planned.step {
        Step::CountReboot { reboots } => Some(reboots.clone()),
        Step::ForgetReboots => None,
        _ => counted,
    })
}

/// The firmware can be read only in every other boot, and no reboot helps.
#[test]
fn a_need_that_comes_and_goes_does_not_extend_the_limit_of_another() {
    let mut facts = machine();
    let firmware = facts.pfs[0].firmware.take();
    let mut for_arguments = 0;
    for boot in 0..12 {
        facts.kernel.boot_id = format!("boot {boot}");
        facts.pfs[0].firmware = firmware.clone().filter(|_| boot % 2 == 0);
        let plan = plan_node(&spec(16, "vfio-pci"), &facts);
        for_arguments += usize::from(reboot_reason(&plan).is_some_and(|why| why.contains(ARGUMENTS)));
        facts.kernel.reboots = counted(&plan, &facts);
    }
    assert_eq!(for_arguments, 2);
}

/// Change of facts that hides a need.
type Disturbance = fn(&mut HostFacts);

fn unreadable(facts: &mut HostFacts) {
    let pf = facts.pfs.remove(0).address;
    facts.unreadable.push(UnreadableCard { pf, error: "it hangs".to_owned(), reason: "DeadlineExceeded" });
}

/// No reboot helps, and after each boot the need is hidden at first: the card appears late, its driver hangs, a tool
/// fails, or the card lost its settings.
#[test]
fn a_hidden_need_keeps_its_count() {
    let disturbances: [(&str, Disturbance); 5] = [
        ("unread", unreadable),
        ("not there", |facts| facts.pfs.clear()),
        ("without an interface", |facts| facts.pfs[0].link = None),
        ("not answered", |facts| facts.pfs[0].firmware = None),
        ("lost", |facts| facts.pfs[0].firmware.as_mut().unwrap().next_boot.num_vfs = Some(8)),
    ];
    for (name, disturb) in disturbances {
        let mut facts = machine();
        let mut restarts_for = [0, 0];
        for boot in 0..12 {
            facts.kernel.boot_id = format!("boot {boot}");
            let mut disturbed = facts.clone();
            disturb(&mut disturbed);
            facts.kernel.reboots = counted(&plan_node(&spec(16, "vfio-pci"), &disturbed), &facts);
            let plan = plan_node(&spec(16, "vfio-pci"), &facts);
            for (count, need) in restarts_for.iter_mut().zip([ARGUMENTS, FIRMWARE]) {
                *count += usize::from(reboot_reason(&plan).is_some_and(|why| why.contains(need)));
            }
            facts.kernel.reboots = counted(&plan, &facts);
        }
        assert_eq!(restarts_for, [2, 2], "{name}");
    }
}

#[test]
fn the_count_of_a_card_without_policies_is_removed() {
    let mut facts = machine();
    facts.kernel.reboots = Some(Reboots::for_need(FIRMWARE, 2, "an earlier one"));
    let nothing = serde_saphyr::from_str("interfaces: []").unwrap();
    assert_eq!(counted(&plan_node(&nothing, &facts), &facts), None);
    unreadable(&mut facts);
    assert_eq!(counted(&plan_node(&nothing, &facts), &facts), None);
}

#[test]
fn a_need_at_its_limit_does_not_stop_another() {
    let mut facts = machine();
    facts.kernel.reboots = Some(Reboots::for_need(ARGUMENTS, 2, "an earlier one"));
    let plan = plan_node(&spec(16, "vfio-pci"), &facts);
    assert_eq!(reboot_reason(&plan), Some(FIRMWARE));
    let expected = format!("write reboot count: 1 for {FIRMWARE}, 2 for {ARGUMENTS}");
    assert!(steps(&plan).contains(&expected), "{:?}", steps(&plan));
    assert!(problems(&plan)[0].starts_with("RebootLimitReached: 2 reboots for kernel arguments"), "{plan:?}");

    // It gets no further reboot while that of the other need is pending.
    facts.kernel.reboots = counted(&plan, &facts);
    assert_eq!(reboot_reason(&plan_node(&spec(2, "vfio-pci"), &facts)), None);
}

#[test]
fn the_count_of_an_ended_need_is_removed_while_another_stays() {
    let mut facts = machine();
    let mut both = Reboots::for_need(ARGUMENTS, 2, "an earlier one");
    both.needs.extend(Reboots::for_need(FIRMWARE, 2, "an earlier one").needs);
    facts.kernel.reboots = Some(both);
    let plan = plan_node(&spec(2, "vfio-pci"), &facts);
    assert_eq!(counted(&plan, &facts), Some(Reboots::for_need(ARGUMENTS, 2, "an earlier one")));
    assert_eq!(counted(&plan_node(&spec(2, "netdevice"), &facts), &facts), None);
}

#[test]
fn firmware_whose_settings_take_no_effect_is_the_only_problem_of_its_pf() {
    let mut facts = machine();
    facts.kernel.reboots = Some(Reboots::for_need(FIRMWARE, 2, "an earlier one"));
    let plan = plan_node(&spec(16, "netdevice"), &facts);
    let found = problems(&plan);
    assert_eq!((found.len(), reboot_reason(&plan)), (1, None), "{found:?}");
    assert!(found[0].starts_with("RebootLimitReached: PF ens1f0 (0000:3b:00.0): 2 reboots"), "{found:?}");
}

#[test]
fn arguments_that_disable_the_iommu_are_removed() {
    let mut facts = machine();
    let mut expect = |processor, line: &str, change: &str, need: &str| {
        facts.kernel.processor = processor;
        facts.kernel.command_line = line.to_owned();
        facts.kernel.boot_loader = Some(BootLoader::Grubby);
        let plan = plan_node(&spec(2, "vfio-pci"), &facts);
        assert_eq!(steps(&plan)[0], format!("change kernel arguments with grubby: {change}"));
        assert_eq!(reboot_reason(&plan), Some(need));
        facts.kernel.boot_loader = None;
        let plan = plan_node(&spec(2, "vfio-pci"), &facts);
        assert_eq!(reboot_reason(&plan), None);
        problems(&plan).remove(0)
    };
    let need = "kernel arguments that allow an IOMMU";
    let manual = expect(Processor::Amd, "quiet amd_iommu=off", "-amd_iommu=off", need);
    assert!(
        manual.contains("must be booted without amd_iommu=off, and vfleet supports no boot loader"),
        "{manual}"
    );
    let manual = expect(Processor::Intel, "iommu=off intel_iommu=on", "+iommu=pt -iommu=off", ARGUMENTS);
    assert!(manual.contains("booted with iommu=pt and without iommu=off, and"), "{manual}");
}
