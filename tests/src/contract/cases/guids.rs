//! GUIDs of InfiniBand VFs and of RDMA devices.

use vfleet_api::{Guid, MacAddr};
use vfleet_plan::{LinkKind, Step};

use super::cases;
use crate::contract::check::{
    bind_step, compare_guids, ensure, execute, expect_eq, expect_refusal, expect_some, read_pf_facts, vf_ref,
};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

const NO_GUID: Guid = Guid([0; 8]);
const GUID: Guid = Guid([2, 0, 0, 3, 0, 0, 0, 9]);

cases! {
    refuses_a_guid_on_ethernet: VfsCreatedUp,
    reports_no_rdma_device_on_a_card_without_rdma: VfsCreatedUp,
    new_infiniband_vfs_have_no_guid: InfinibandCard,
    sets_the_guid_of_the_right_vf: InfinibandCard,
    a_guid_takes_effect_at_the_next_bind: InfinibandCard,
    a_guid_survives_a_driver_change: InfinibandCard,
    refuses_a_mac_on_infiniband: InfinibandCard,
    an_rdma_vf_that_is_bound_with_a_mac_has_a_guid: RdmaCard,
}

fn set_guid(testbed: &dyn TestBed, index: u16) -> Step {
    Step::SetVfGuid { vf: vf_ref(testbed, index), guid: GUID }
}

fn compare_admin_guids(testbed: &dyn TestBed) -> Result<Vec<Option<Guid>>, CaseError> {
    Ok(compare_guids(testbed)?.admin_guids)
}

fn compare_device_guids(testbed: &dyn TestBed) -> Result<Vec<Option<Guid>>, CaseError> {
    Ok(compare_guids(testbed)?.vf_devices)
}

fn refuses_a_guid_on_ethernet(testbed: &dyn TestBed) -> CaseResult {
    expect_refusal(testbed, &set_guid(testbed, 0), "NetlinkRefused")?;
    expect_eq("the GUIDs", &compare_admin_guids(testbed)?, &vec![None; 3])
}

fn reports_no_rdma_device_on_a_card_without_rdma(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the RDMA device of the PF", &compare_guids(testbed)?.pf_device, &None)?;
    expect_eq("the RDMA devices of the VFs", &compare_device_guids(testbed)?, &vec![None; 3])
}

fn new_infiniband_vfs_have_no_guid(testbed: &dyn TestBed) -> CaseResult {
    let link = expect_some("the interface", read_pf_facts(testbed)?.link)?;
    expect_eq("the link type and the MAC", &(link.kind, link.mac), &(LinkKind::Infiniband, None))?;
    expect_eq("the GUIDs", &compare_admin_guids(testbed)?, &vec![Some(NO_GUID); 3])?;
    expect_eq("the GUIDs of the devices", &compare_device_guids(testbed)?, &vec![Some(NO_GUID); 3])?;
    ensure(compare_guids(testbed)?.pf_device.is_some_and(|guid| guid != NO_GUID), "the PF has no GUID")
}

fn sets_the_guid_of_the_right_vf(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_guid(testbed, 1), set_guid(testbed, 1)])?;
    expect_eq("the GUIDs", &compare_admin_guids(testbed)?, &vec![Some(NO_GUID), Some(GUID), Some(NO_GUID)])
}

fn a_guid_takes_effect_at_the_next_bind(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_guid(testbed, 1)])?;
    expect_eq("the GUIDs of the devices", &compare_device_guids(testbed)?, &vec![Some(NO_GUID); 3])?;
    execute(testbed, &[bind_step(testbed, 1, None)])?;
    expect_eq(
        "the GUIDs of the devices",
        &compare_device_guids(testbed)?,
        &vec![Some(NO_GUID), Some(GUID), Some(NO_GUID)],
    )
}

fn a_guid_survives_a_driver_change(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_guid(testbed, 0), bind_step(testbed, 0, Some("vfio-pci"))])?;
    expect_eq("the GUIDs of the devices", &compare_device_guids(testbed)?[0], &None)?;
    execute(testbed, &[bind_step(testbed, 0, None)])?;
    expect_eq("the GUIDs of the devices", &compare_device_guids(testbed)?[0], &Some(GUID))
}

fn refuses_a_mac_on_infiniband(testbed: &dyn TestBed) -> CaseResult {
    let step = Step::SetVfMac { vf: vf_ref(testbed, 0), mac: MacAddr([2, 0, 0, 0, 0, 1]) };
    expect_refusal(testbed, &step, "NetlinkRefused").map(drop)
}

fn an_rdma_vf_that_is_bound_with_a_mac_has_a_guid(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the GUIDs of the devices", &compare_device_guids(testbed)?, &vec![Some(NO_GUID); 3])?;
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    execute(testbed, &[Step::SetVfMac { vf: vf_ref(testbed, 0), mac }, bind_step(testbed, 0, None)])?;
    let guid = expect_some("the RDMA device", compare_device_guids(testbed)?[0])?;
    ensure(guid != NO_GUID, "the RDMA device has no GUID")
}
