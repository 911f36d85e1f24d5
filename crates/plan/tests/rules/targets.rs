//! Targets of steps: parallel steps, and their lanes.

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{Disruption, PlannedStep, Stage, Step, Target, VfDriver, schedule};

fn pf(bus: u8) -> PciAddress {
    PciAddress::new(0, bus, 0, 0).unwrap()
}

fn vf(bus: u8, index: u16) -> VfRef {
    VfRef { pf: pf(bus), index }
}

fn bind(bus: u8, index: u16) -> Step {
    Step::BindVf { vf: vf(bus, index), driver: VfDriver::Kernel }
}

fn load_module() -> Step {
    Step::LoadModule { module: "vfio-pci".to_owned(), options: Vec::new() }
}

fn set_kernel_arguments() -> Step {
    let (add, remove) = (vec!["iommu=pt".to_owned()], Vec::new());
    Step::SetKernelArguments { loader: vfleet_plan::BootLoader::Grubby, add, remove }
}

#[test]
fn targets_exclude_each_other_by_pf_vf_and_machine() {
    let targets =
        [Target::Machine, Target::Pf(pf(1)), Target::Vf(vf(1, 0)), Target::Vf(vf(1, 1)), Target::Pf(pf(2))];
    let excluded = [
        // machine, PF 1, its VF 0, its VF 1, PF 2
        [true, false, false, false, false],
        [false, true, true, true, false],
        [false, true, true, false, false],
        [false, true, false, true, false],
        [false, false, false, false, true],
    ];
    for (one, row) in targets.iter().zip(excluded) {
        for (other, expected) in targets.iter().zip(row) {
            assert_eq!(one.excludes(*other), expected, "{one} and {other}");
            assert_eq!(other.excludes(*one), expected, "the rule is the same in both directions");
        }
    }
}

#[test]
fn a_reboot_and_its_preparation_wait_for_everything() {
    for step in [Step::Reboot, set_kernel_arguments()] {
        for running in [Target::Machine, Target::Pf(pf(1)), Target::Vf(vf(1, 0))] {
            assert!(step.waits_for(running, false), "{step} waits for {running}");
        }
    }
    assert!(!Step::Reboot.waits_for(Target::Pf(pf(1)), true), "a driver that hangs may never end otherwise");
    assert!(Step::Reboot.waits_for(Target::Machine, true));
    assert!(!load_module().waits_for(Target::Pf(pf(1)), false));
    assert!(load_module().waits_for(Target::Machine, true));
    assert!(
        !Step::SetLinkUp { pf: pf(1) }.waits_for(Target::Machine, false),
        "a module that hangs holds up no card"
    );
}

fn planned(step: Step) -> PlannedStep {
    PlannedStep { step, disruption: Disruption::None, why: String::new() }
}

#[test]
fn stages_of_a_lane_are_separated_by_steps_of_its_target() {
    let steps = [
        load_module(),
        Step::SetNumVfs { pf: pf(1), count: 2 },
        bind(1, 0),
        bind(1, 1),
        Step::SetVfMtu { vf: vf(1, 0), mtu: 2000 },
        Step::SetLinkUp { pf: pf(1) },
        Step::SetLinkUp { pf: pf(2) },
        Step::Reboot,
    ]
    .map(planned);
    let schedule = schedule(&steps);
    assert_eq!(schedule.before, [&steps[0]]);
    assert_eq!(schedule.after, [&steps[7]]);
    let [first, second] = schedule.lanes.as_slice() else { panic!("{schedule:#?}") };
    assert_eq!((first.target, second.target), (Target::Pf(pf(1)), Target::Pf(pf(2))));
    let parts =
        vec![(Target::Vf(vf(1, 0)), vec![&steps[2], &steps[4]]), (Target::Vf(vf(1, 1)), vec![&steps[3]])];
    assert_eq!(first.stages, [Stage::Whole(&steps[1]), Stage::Parts(parts), Stage::Whole(&steps[5])]);
    assert_eq!(second.stages, [Stage::Whole(&steps[6])]);
}

/// A VF is configured after the bridge of its PF, and VFs are configured in parallel.
#[test]
fn steps_of_a_bridge_are_stages_between_the_pf_and_its_vfs() {
    let attach = Step::AttachUplink { pf: pf(1), bridge: "br-x".to_owned() };
    let create = Step::CreateLinuxBridge { pf: pf(1), name: "br-x".to_owned(), alias: String::new() };
    let steps =
        [Step::SetNumVfs { pf: pf(1), count: 2 }, create, attach, bind(1, 0), bind(1, 1)].map(planned);
    let schedule = schedule(&steps);
    let [lane] = schedule.lanes.as_slice() else { panic!("{schedule:#?}") };
    let whole = |at: usize| Stage::Whole(&steps[at]);
    let vfs = [3, 4].map(|at| (steps[at].step.target(), vec![&steps[at]])).to_vec();
    assert_eq!(lane.stages, [whole(0), whole(1), whole(2), Stage::Parts(vfs)]);
}
