//! GUIDs of InfiniBand VFs, and RDMA devices.

use vfleet_api::{Guid, MacAddr};
use vfleet_plan::{LinkKind, Step};

use super::cases;
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{agree_on_guids, bind, ensure, execute, facts, refused, same, there, vf};

const NONE: Guid = Guid([0; 8]);
const GUID: Guid = Guid([2, 0, 0, 3, 0, 0, 0, 9]);

cases! {
    refuses_a_guid_on_ethernet: VfsMadeUp,
    tells_no_rdma_of_a_card_without: VfsMadeUp,
    new_infiniband_vfs_have_no_guid: InfinibandCard,
    sets_the_guid_of_the_right_vf: InfinibandCard,
    a_guid_reaches_the_vf_at_the_next_bind: InfinibandCard,
    a_guid_survives_other_drivers: InfinibandCard,
    refuses_an_ethernet_address_on_infiniband: InfinibandCard,
    an_rdma_vf_has_a_guid_once_it_is_bound_with_an_address: RdmaCard,
}

fn set_guid(bench: &dyn Bench, index: u16) -> Step {
    Step::SetVfGuid { vf: vf(bench, index), guid: GUID }
}

fn kept(bench: &dyn Bench) -> Result<Vec<Option<Guid>>, Stop> {
    Ok(agree_on_guids(bench)?.kept)
}

fn of_devices(bench: &dyn Bench) -> Result<Vec<Option<Guid>>, Stop> {
    Ok(agree_on_guids(bench)?.of_vfs)
}

fn refuses_a_guid_on_ethernet(bench: &dyn Bench) -> Shown {
    refused(bench, &set_guid(bench, 0), "NetlinkRefused")?;
    same("the GUIDs", &kept(bench)?, &vec![None; 3])
}

fn tells_no_rdma_of_a_card_without(bench: &dyn Bench) -> Shown {
    same("the RDMA device of the PF", &agree_on_guids(bench)?.of_pf, &None)?;
    same("the RDMA devices of the VFs", &of_devices(bench)?, &vec![None; 3])
}

fn new_infiniband_vfs_have_no_guid(bench: &dyn Bench) -> Shown {
    let link = there("the interface", facts(bench)?.link)?;
    same("what it speaks, and its Ethernet address", &(link.kind, link.mac), &(LinkKind::Infiniband, None))?;
    same("the GUIDs", &kept(bench)?, &vec![Some(NONE); 3])?;
    same("the GUIDs of the devices", &of_devices(bench)?, &vec![Some(NONE); 3])?;
    ensure(agree_on_guids(bench)?.of_pf.is_some_and(|guid| guid != NONE), "the PF has a GUID")
}

fn sets_the_guid_of_the_right_vf(bench: &dyn Bench) -> Shown {
    execute(bench, &[set_guid(bench, 1), set_guid(bench, 1)])?;
    same("the GUIDs", &kept(bench)?, &vec![Some(NONE), Some(GUID), Some(NONE)])
}

fn a_guid_reaches_the_vf_at_the_next_bind(bench: &dyn Bench) -> Shown {
    execute(bench, &[set_guid(bench, 1)])?;
    same("the GUIDs of the devices", &of_devices(bench)?, &vec![Some(NONE); 3])?;
    execute(bench, &[bind(bench, 1, None)])?;
    same("the GUIDs of the devices", &of_devices(bench)?, &vec![Some(NONE), Some(GUID), Some(NONE)])
}

fn a_guid_survives_other_drivers(bench: &dyn Bench) -> Shown {
    execute(bench, &[set_guid(bench, 0), bind(bench, 0, Some("vfio-pci"))])?;
    same("the GUIDs of the devices", &of_devices(bench)?[0], &None)?;
    execute(bench, &[bind(bench, 0, None)])?;
    same("the GUIDs of the devices", &of_devices(bench)?[0], &Some(GUID))
}

fn refuses_an_ethernet_address_on_infiniband(bench: &dyn Bench) -> Shown {
    let step = Step::SetVfMac { vf: vf(bench, 0), mac: MacAddr([2, 0, 0, 0, 0, 1]) };
    refused(bench, &step, "NetlinkRefused").map(drop)
}

fn an_rdma_vf_has_a_guid_once_it_is_bound_with_an_address(bench: &dyn Bench) -> Shown {
    same("the GUIDs of the devices", &of_devices(bench)?, &vec![Some(NONE); 3])?;
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    execute(bench, &[Step::SetVfMac { vf: vf(bench, 0), mac }, bind(bench, 0, None)])?;
    let guid = there("the RDMA device", of_devices(bench)?[0])?;
    ensure(guid != NONE, "it has no GUID")
}
