//! vDPA devices.

use vfleet_plan::{EswitchMode, Step, VdpaKind};

use super::cases;
use crate::contract::bench::{Bench, Shown};
use crate::contract::check::{agree_on_vdpa, bind, execute, refused, same, vf};

cases! {
    tells_no_vdpa_where_there_is_none: VfsMadeDown,
    removing_a_vdpa_device_that_is_not_there_is_harmless: VfsMadeDown,
    makes_and_removes_vdpa_devices: RdmaCard,
    a_vdpa_device_needs_its_driver: RdmaCard,
    a_vdpa_device_needs_switchdev: RdmaCard,
    a_vdpa_device_goes_with_the_driver_of_its_vf: RdmaCard,
}

fn make(bench: &dyn Bench, index: u16, kind: VdpaKind) -> Step {
    Step::MakeVdpa { vf: vf(bench, index), kind }
}

fn load(kind: VdpaKind) -> Step {
    Step::LoadModule { module: kind.driver().to_owned(), options: Vec::new() }
}

/// In switchdev mode, with bound VFs and both drivers.
fn prepare(bench: &dyn Bench) -> Shown {
    let all = [0, 1, 2];
    all.into_iter().try_for_each(|index| bench.outsider().unbind(vf(bench, index)))?;
    execute(bench, &[Step::SetEswitchMode { pf: bench.pf(), mode: EswitchMode::Switchdev, trial: None }])?;
    execute(bench, &all.map(|index| bind(bench, index, None)))?;
    execute(bench, &[load(VdpaKind::Vhost), load(VdpaKind::Virtio)])
}

fn tells_no_vdpa_where_there_is_none(bench: &dyn Bench) -> Shown {
    same("the vDPA devices", &agree_on_vdpa(bench)?, &vec![None; 3])
}

fn removing_a_vdpa_device_that_is_not_there_is_harmless(bench: &dyn Bench) -> Shown {
    execute(bench, &[Step::RemoveVdpa { vf: vf(bench, 0) }])
}

fn makes_and_removes_vdpa_devices(bench: &dyn Bench) -> Shown {
    prepare(bench)?;
    let (vhost, virtio) = (make(bench, 0, VdpaKind::Vhost), make(bench, 2, VdpaKind::Virtio));
    execute(bench, &[vhost.clone(), virtio, vhost])?;
    same(
        "the vDPA devices",
        &agree_on_vdpa(bench)?,
        &vec![Some(VdpaKind::Vhost), None, Some(VdpaKind::Virtio)],
    )?;
    let remove = Step::RemoveVdpa { vf: vf(bench, 0) };
    execute(bench, &[remove.clone(), remove])?;
    same("the vDPA devices", &agree_on_vdpa(bench)?, &vec![None, None, Some(VdpaKind::Virtio)])
}

fn a_vdpa_device_needs_its_driver(bench: &dyn Bench) -> Shown {
    refused(bench, &make(bench, 0, VdpaKind::Vhost), "DriverNotLoaded")?;
    same("the vDPA devices", &agree_on_vdpa(bench)?, &vec![None; 3])
}

fn a_vdpa_device_needs_switchdev(bench: &dyn Bench) -> Shown {
    execute(bench, &[load(VdpaKind::Vhost)])?;
    refused(bench, &make(bench, 0, VdpaKind::Vhost), "NetlinkRefused")?;
    same("the vDPA devices", &agree_on_vdpa(bench)?, &vec![None; 3])
}

fn a_vdpa_device_goes_with_the_driver_of_its_vf(bench: &dyn Bench) -> Shown {
    prepare(bench)?;
    execute(bench, &[make(bench, 0, VdpaKind::Vhost)])?;
    bench.outsider().unbind(vf(bench, 0))?;
    same("the vDPA devices", &agree_on_vdpa(bench)?, &vec![None; 3])
}
