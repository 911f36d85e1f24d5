//! vDPA devices.

use vfleet_plan::{Disruption, EswitchMode, Fact, PfFacts, VdpaKind, plan_node};

use super::machine::{expect, machine, pf, reasons, spec, two};

fn switchdev(vdpa: Option<VdpaKind>) -> PfFacts {
    let mut pf = pf(1);
    pf.eswitch = Fact::Value(EswitchMode::Switchdev);
    pf.vfs[0].vdpa = vdpa;
    pf
}

fn wanted(kind: &str) -> vfleet_api::SriovNetworkNodeStateSpec {
    spec(&format!("numVfs: 1, eSwitchMode: switchdev, vfGroups: [{{vfRange: 0-0, vdpaType: '{kind}'}}]"))
}

const MAKE_VHOST: &str = "make 0000:3b:00.0 vf 0 a vdpa device for vhost_vdpa";
const REMOVE: &str = "remove the vdpa device of 0000:3b:00.0 vf 0";

#[test]
fn a_vdpa_device_becomes_the_wanted_one() {
    let vhost = wanted("vhost");
    expect(machine(switchdev(None)), Some(&vhost), &vhost, &[MAKE_VHOST], Disruption::Vf);
    expect(machine(switchdev(None)), Some(&wanted("")), &vhost, &[MAKE_VHOST], Disruption::Drain);
    expect(machine(switchdev(Some(VdpaKind::Vhost))), Some(&vhost), &vhost, &[], Disruption::None);
    let virtio = machine(switchdev(Some(VdpaKind::Virtio)));
    expect(virtio.clone(), Some(&wanted("virtio")), &vhost, &[REMOVE, MAKE_VHOST], Disruption::Drain);
    expect(virtio, Some(&wanted("virtio")), &wanted(""), &[REMOVE], Disruption::Drain);
}

#[test]
fn it_goes_before_its_vf_gets_another_driver() {
    let wanted = spec("numVfs: 1, eSwitchMode: switchdev, vfGroups: [{vfRange: 0-0, deviceType: vfio-pci}]");
    let steps = [REMOVE, "bind 0000:3b:00.0 vf 0 to vfio-pci"];
    expect(machine(switchdev(Some(VdpaKind::Vhost))), None, &wanted, &steps, Disruption::Drain);
}

#[test]
fn words_that_are_not_known_are_named() {
    for (wanted, reason) in [
        (two("vdpaType: vhost"), "VdpaNotPossible"),
        (two("vdpaType: toaster"), "InvalidSpec"),
        (two("deviceType: toaster"), "InvalidSpec"),
        (spec("numVfs: 1, eSwitchMode: toaster"), "InvalidSpec"),
    ] {
        let plan = plan_node(&wanted, &machine(pf(0)));
        assert_eq!(reasons(&plan), [reason]);
    }
}

#[test]
fn drivers_for_programs_are_bound_by_name() {
    for driver in ["vfio-pci", "uio_pci_generic", "igb_uio"] {
        let steps = [0, 1].map(|index| format!("bind 0000:3b:00.0 vf {index} to {driver}"));
        let steps = steps.each_ref().map(String::as_str);
        expect(machine(pf(2)), None, &two(&format!("deviceType: {driver}")), &steps, Disruption::Drain);
    }
}
