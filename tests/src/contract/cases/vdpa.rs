//! vDPA devices.

use vfleet_plan::{EswitchMode, Step, VdpaKind};

use super::cases;
use crate::contract::check::{bind_step, compare_vdpa, execute, expect_eq, expect_refusal, vf_ref};
use crate::contract::testbed::{CaseResult, TestBed};

cases! {
    reports_no_vdpa_devices_when_there_are_none: VfsCreatedDown,
    removing_a_missing_vdpa_device_is_harmless: VfsCreatedDown,
    creates_and_removes_vdpa_devices: RdmaCard,
    a_vdpa_device_needs_its_driver: RdmaCard,
    a_vdpa_device_needs_switchdev: RdmaCard,
    unbinding_a_vf_deletes_its_vdpa_device: RdmaCard,
}

fn create_step(testbed: &dyn TestBed, index: u16, kind: VdpaKind) -> Step {
    Step::MakeVdpa { vf: vf_ref(testbed, index), kind }
}

fn load_step(kind: VdpaKind) -> Step {
    Step::LoadModule { module: kind.driver().to_owned(), options: Vec::new() }
}

/// Sets switchdev mode, binds all VFs and loads both vDPA drivers.
fn prepare(testbed: &dyn TestBed) -> CaseResult {
    let all = [0, 1, 2];
    all.into_iter().try_for_each(|index| testbed.admin().unbind(vf_ref(testbed, index)))?;
    execute(
        testbed,
        &[Step::SetEswitchMode { pf: testbed.pf(), mode: EswitchMode::Switchdev, trial: None }],
    )?;
    execute(testbed, &all.map(|index| bind_step(testbed, index, None)))?;
    execute(testbed, &[load_step(VdpaKind::Vhost), load_step(VdpaKind::Virtio)])
}

fn reports_no_vdpa_devices_when_there_are_none(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the vDPA devices", &compare_vdpa(testbed)?, &vec![None; 3])
}

fn removing_a_missing_vdpa_device_is_harmless(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[Step::RemoveVdpa { vf: vf_ref(testbed, 0) }])
}

fn creates_and_removes_vdpa_devices(testbed: &dyn TestBed) -> CaseResult {
    prepare(testbed)?;
    let (vhost, virtio) =
        (create_step(testbed, 0, VdpaKind::Vhost), create_step(testbed, 2, VdpaKind::Virtio));
    execute(testbed, &[vhost.clone(), virtio, vhost])?;
    expect_eq(
        "the vDPA devices",
        &compare_vdpa(testbed)?,
        &vec![Some(VdpaKind::Vhost), None, Some(VdpaKind::Virtio)],
    )?;
    let remove = Step::RemoveVdpa { vf: vf_ref(testbed, 0) };
    execute(testbed, &[remove.clone(), remove])?;
    expect_eq("the vDPA devices", &compare_vdpa(testbed)?, &vec![None, None, Some(VdpaKind::Virtio)])
}

fn a_vdpa_device_needs_its_driver(testbed: &dyn TestBed) -> CaseResult {
    expect_refusal(testbed, &create_step(testbed, 0, VdpaKind::Vhost), "DriverNotLoaded")?;
    expect_eq("the vDPA devices", &compare_vdpa(testbed)?, &vec![None; 3])
}

fn a_vdpa_device_needs_switchdev(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[load_step(VdpaKind::Vhost)])?;
    expect_refusal(testbed, &create_step(testbed, 0, VdpaKind::Vhost), "NetlinkRefused")?;
    expect_eq("the vDPA devices", &compare_vdpa(testbed)?, &vec![None; 3])
}

fn unbinding_a_vf_deletes_its_vdpa_device(testbed: &dyn TestBed) -> CaseResult {
    prepare(testbed)?;
    execute(testbed, &[create_step(testbed, 0, VdpaKind::Vhost)])?;
    testbed.admin().unbind(vf_ref(testbed, 0))?;
    expect_eq("the vDPA devices", &compare_vdpa(testbed)?, &vec![None; 3])
}
