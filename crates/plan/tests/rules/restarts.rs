//! Restarts of the machine: what they are for, and their end.

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::{Host, SimHost};
use vfleet_plan::{BootLoader, HostFacts, Plan, Processor, Reboots, Step, Unread, plan_node};

const ARGUMENTS: &str = "kernel arguments intel_iommu=on iommu=pt";
const FIRMWARE: &str = "firmware of 0000:3b:00";

/// An Intel machine without an IOMMU, and a Mellanox card whose firmware shows 8 VFs and was told to show 16.
fn machine() -> HostFacts {
    let card = "{address: '0000:3b:00.0', name: ens1f0, vendor: '15b3', device: '1017', vfDevice: '1018', \
                driver: mlx5_core, vfDriver: mlx5_core, totalVfs: 64, firmware: {sriov: true, numVfs: 8}}";
    let kernel = "{processor: intel, iommu: false, bootLoader: grubby}";
    let text = format!("pfs: [{card}]\nuserspaceDrivers: [vfio-pci]\nkernel: {kernel}\n");
    let mut facts = SimHost::from_yaml(&text, "restarts").unwrap().facts().unwrap();
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

fn restarts(plan: &Plan) -> Option<&str> {
    plan.steps.iter().find(|planned| planned.step == Step::Reboot).map(|planned| planned.why.as_str())
}

/// What is written down once the plan is carried out.
fn counted(plan: &Plan, facts: &HostFacts) -> Option<Reboots> {
    plan.steps.iter().fold(facts.kernel.reboots.clone(), |counted, planned| match &planned.step {
        Step::CountReboot { reboots } => Some(reboots.clone()),
        Step::ForgetReboots => None,
        _ => counted,
    })
}

/// The tool tells of the firmware only in every other boot, and nothing ever helps.
#[test]
fn a_need_that_comes_and_goes_gives_no_new_tries_to_another() {
    let mut facts = machine();
    let firmware = facts.pfs[0].firmware.take();
    let mut for_arguments = 0;
    for boot in 0..12 {
        facts.kernel.boot_id = format!("boot {boot}");
        facts.pfs[0].firmware = firmware.clone().filter(|_| boot % 2 == 0);
        let plan = plan_node(&spec(16, "vfio-pci"), &facts);
        for_arguments += usize::from(restarts(&plan).is_some_and(|why| why.contains(ARGUMENTS)));
        facts.kernel.reboots = counted(&plan, &facts);
    }
    assert_eq!(for_arguments, 2);
}

/// What makes a need look as if there were none.
type Disturbance = fn(&mut HostFacts);

fn unreadable(facts: &mut HostFacts) {
    let pf = facts.pfs.remove(0).address;
    facts.unread.push(Unread { pf, error: "it hangs".to_owned(), reason: "DeadlineExceeded" });
}

/// Nothing ever helps, and in each boot the agent first sees nothing of the need: the card comes late, its driver hangs
/// for a while, a tool fails, or the card has lost its settings.
#[test]
fn a_need_that_cannot_be_seen_for_a_while_keeps_its_tries() {
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
                *count += usize::from(restarts(&plan).is_some_and(|why| why.contains(need)));
            }
            facts.kernel.reboots = counted(&plan, &facts);
        }
        assert_eq!(restarts_for, [2, 2], "{name}");
    }
}

#[test]
fn a_need_of_a_card_that_nobody_wants_any_more_is_forgotten() {
    let mut facts = machine();
    facts.kernel.reboots = Some(Reboots::for_one(FIRMWARE, 2, "an earlier one"));
    let nothing = serde_saphyr::from_str("interfaces: []").unwrap();
    assert_eq!(counted(&plan_node(&nothing, &facts), &facts), None);
    unreadable(&mut facts);
    assert_eq!(counted(&plan_node(&nothing, &facts), &facts), None);
}

#[test]
fn a_need_that_is_in_vain_does_not_stop_another() {
    let mut facts = machine();
    facts.kernel.reboots = Some(Reboots::for_one(ARGUMENTS, 2, "an earlier one"));
    let plan = plan_node(&spec(16, "vfio-pci"), &facts);
    assert_eq!(restarts(&plan), Some(FIRMWARE));
    let expected = format!("write down reboot 1 for {FIRMWARE}, 2 for {ARGUMENTS}");
    assert!(steps(&plan).contains(&expected), "{:?}", steps(&plan));
    assert!(problems(&plan)[0].starts_with("RebootsDidNotHelp: 2 restarts for kernel arguments"), "{plan:?}");

    // Nor does it get one more while that of the other is still to come.
    facts.kernel.reboots = counted(&plan, &facts);
    assert_eq!(restarts(&plan_node(&spec(2, "vfio-pci"), &facts)), None);
}

#[test]
fn a_need_that_is_gone_is_forgotten_while_another_stays() {
    let mut facts = machine();
    let mut both = Reboots::for_one(ARGUMENTS, 2, "an earlier one");
    both.needs.extend(Reboots::for_one(FIRMWARE, 2, "an earlier one").needs);
    facts.kernel.reboots = Some(both);
    let plan = plan_node(&spec(2, "vfio-pci"), &facts);
    assert_eq!(counted(&plan, &facts), Some(Reboots::for_one(ARGUMENTS, 2, "an earlier one")));
    assert_eq!(counted(&plan_node(&spec(2, "netdevice"), &facts), &facts), None);
}

#[test]
fn a_firmware_that_does_not_take_its_settings_up_is_the_one_problem_of_its_pf() {
    let mut facts = machine();
    facts.kernel.reboots = Some(Reboots::for_one(FIRMWARE, 2, "an earlier one"));
    let plan = plan_node(&spec(16, "netdevice"), &facts);
    let found = problems(&plan);
    assert_eq!((found.len(), restarts(&plan)), (1, None), "{found:?}");
    assert!(found[0].starts_with("RebootsDidNotHelp: ens1f0 (0000:3b:00.0): 2 restarts"), "{found:?}");
}

#[test]
fn an_iommu_that_was_switched_off_is_allowed_again() {
    let mut facts = machine();
    let mut expect = |processor, line: &str, change: &str, need: &str| {
        facts.kernel.processor = processor;
        facts.kernel.command_line = line.to_owned();
        facts.kernel.boot_loader = Some(BootLoader::Grubby);
        let plan = plan_node(&spec(2, "vfio-pci"), &facts);
        assert_eq!(steps(&plan)[0], format!("change kernel arguments by grubby: {change}"));
        assert_eq!(restarts(&plan), Some(need));
        facts.kernel.boot_loader = None;
        let plan = plan_node(&spec(2, "vfio-pci"), &facts);
        assert_eq!(restarts(&plan), None);
        problems(&plan).remove(0)
    };
    let need = "kernel arguments that allow an IOMMU";
    let by_hand = expect(Processor::Amd, "quiet amd_iommu=off", "-amd_iommu=off", need);
    assert!(by_hand.contains("must be started without amd_iommu=off, but no boot loader"), "{by_hand}");
    let by_hand = expect(Processor::Intel, "iommu=off intel_iommu=on", "+iommu=pt -iommu=off", ARGUMENTS);
    assert!(by_hand.contains("started with iommu=pt and without iommu=off, but"), "{by_hand}");
}
