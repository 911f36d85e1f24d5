//! vDPA devices.

use vfleet_plan::{Disruption, EswitchMode, Fact, PfFacts, VdpaKind, plan_node};

use super::machine::{expect, machine, pf, reasons, spec, two};

fn switchdev(vdpa: Option<VdpaKind>) -> PfFacts {
    let mut pf = pf(1);
    pf.eswitch = Fact::Value(EswitchMode::Switchdev);
    pf.vfs[0].vdpa = vdpa;
    pf
}

fn desired(kind: &str) -> vfleet_api::SriovNetworkNodeStateSpec {
    spec(&format!("numVfs: 1, eSwitchMode: switchdev, vfGroups: [{{vfRange: 0-0, vdpaType: '{kind}'}}]"))
}

const CREATE_VHOST: &str = "create vDPA device on 0000:3b:00.0 vf 0 with driver vhost_vdpa";
const REMOVE: &str = "remove vDPA device of 0000:3b:00.0 vf 0";

#[test]
fn a_vdpa_device_gets_the_desired_driver() {
    let vhost = desired("vhost");
    expect(machine(switchdev(None)), Some(&vhost), &vhost, &[CREATE_VHOST], Disruption::Vf);
    expect(machine(switchdev(None)), Some(&desired("")), &vhost, &[CREATE_VHOST], Disruption::Drain);
    expect(machine(switchdev(Some(VdpaKind::Vhost))), Some(&vhost), &vhost, &[], Disruption::None);
    let virtio = machine(switchdev(Some(VdpaKind::Virtio)));
    expect(virtio.clone(), Some(&desired("virtio")), &vhost, &[REMOVE, CREATE_VHOST], Disruption::Drain);
    expect(virtio, Some(&desired("virtio")), &desired(""), &[REMOVE], Disruption::Drain);
}

#[test]
fn a_vdpa_device_is_removed_before_its_vf_is_rebound() {
    let desired = spec("numVfs: 1, eSwitchMode: switchdev, vfGroups: [{vfRange: 0-0, deviceType: vfio-pci}]");
    let steps = [REMOVE, "bind 0000:3b:00.0 vf 0 to vfio-pci"];
    expect(machine(switchdev(Some(VdpaKind::Vhost))), None, &desired, &steps, Disruption::Drain);
}

#[test]
fn invalid_values_are_reported() {
    for (desired, reason) in [
        (two("vdpaType: vhost"), "VdpaNotSupported"),
        (two("vdpaType: toaster"), "InvalidSpec"),
        (two("deviceType: toaster"), "InvalidSpec"),
        (spec("numVfs: 1, eSwitchMode: toaster"), "InvalidSpec"),
    ] {
        let plan = plan_node(&desired, &machine(pf(0)));
        assert_eq!(reasons(&plan), [reason]);
    }
}

#[test]
fn userspace_drivers_are_bound_by_name() {
    for driver in ["vfio-pci", "uio_pci_generic", "igb_uio"] {
        let steps = [0, 1].map(|index| format!("bind 0000:3b:00.0 vf {index} to {driver}"));
        let steps = steps.each_ref().map(String::as_str);
        expect(machine(pf(2)), None, &two(&format!("deviceType: {driver}")), &steps, Disruption::Drain);
    }
}
