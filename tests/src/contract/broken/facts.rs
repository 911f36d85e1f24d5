//! Defects in facts about host use, files, the kernel, embedded switches, RDMA, vDPA and firmware.

use vfleet_api::Guid;
use vfleet_plan::{
    EswitchMode, Fact, FirmwareFacts, FirmwareSettings, HostFacts, HostUse, LinkFacts, PfFacts, RdmaFacts,
    VdpaKind, VfFacts,
};

use super::{DefectKind, defects};

defects! {
    "facts_omit_use_of_pfs", detected by "reports_a_default_route_on_a_pf",
        DefectKind::DistortsFacts(|facts, _| links(facts).for_each(|link| link.host_use = None));
    "facts_omit_use_of_vfs", detected by "reports_a_default_route_on_a_vf",
        DefectKind::DistortsFacts(|facts, _| vf_links(facts).for_each(|link| link.host_use = None));
    "facts_report_all_links_in_use", detected by "an_idle_card_is_not_used_by_the_node",
        DefectKind::DistortsFacts(|facts, _| links(facts).for_each(|link| link.host_use = Some(HostUse::NodeAddress)));
    "facts_omit_permanent_macs", detected by "reports_the_permanent_mac",
        DefectKind::DistortsFacts(|facts, _| links(facts).for_each(|link| link.permanent_mac = None));
    "facts_omit_files", detected by "writes_a_file", DefectKind::DistortsFacts(|facts, _| facts.files.clear());
    "facts_omit_units", detected by "enables_and_disables_a_unit",
        DefectKind::DistortsFacts(|facts, _| facts.enabled_units.clear());
    "facts_omit_the_guid_file", detected by "reports_the_guid_file",
        DefectKind::DistortsFacts(|facts, _| facts.guid_file = None);
    "facts_omit_modules", detected by "reports_a_loaded_module",
        DefectKind::DistortsFacts(|facts, _| facts.kernel.modules.clear());
    "facts_have_outdated_modules", detected by "loads_a_module",
        DefectKind::DistortsFacts(|facts, first| facts.kernel.modules.clone_from(&first.kernel.modules));
    "facts_omit_kernel_arguments", detected by "reports_the_kernel_command_line",
        DefectKind::DistortsFacts(|facts, _| facts.kernel.command_line.clear());
    "facts_have_another_boot_id", detected by "reports_the_boot_id",
        DefectKind::DistortsFacts(|facts, _| facts.kernel.boot_id.push('x'));
    "facts_invert_the_iommu", detected by "reports_the_iommu",
        DefectKind::DistortsFacts(|facts, _| facts.kernel.has_iommu = !facts.kernel.has_iommu);
    "facts_have_an_outdated_rdma_mode", detected by "reports_the_rdma_mode_set_by_others",
        DefectKind::DistortsFacts(|facts, first| facts.kernel.rdma_mode = first.kernel.rdma_mode);
    "facts_invent_a_numa_node", detected by "reports_no_numa_node_on_a_machine_with_a_single_one",
        DefectKind::DistortsFacts(|facts, _| pfs(facts).for_each(|pf| pf.numa_node = Some(0)));
    "facts_invent_a_network", detected by "reports_no_cloud_network_outside_a_cloud",
        DefectKind::DistortsFacts(|facts, _| pfs(facts).for_each(|pf| pf.net_filter = Fact::Value("openstack/x".to_owned())));
    "facts_invent_eswitches", detected by "reports_no_eswitch_on_a_card_without_one",
        DefectKind::DistortsFacts(|facts, _| pfs(facts).for_each(|pf| pf.eswitch = Fact::Value(EswitchMode::Legacy)));
    "facts_invent_tc_offload", detected by "reports_no_eswitch_on_a_card_without_one",
        DefectKind::DistortsFacts(|facts, _| pfs(facts).for_each(|pf| pf.tc_offload = Some(false)));
    "facts_invent_representors", detected by "reports_no_eswitch_on_a_card_without_one",
        DefectKind::DistortsFacts(|facts, _| vfs(facts).for_each(|vf| vf.representor = Some("eth0".to_owned())));
    "facts_omit_representors", detected by "representors_are_created_and_deleted_with_the_mode",
        DefectKind::DistortsFacts(|facts, _| vfs(facts).for_each(|vf| vf.representor = None));
    "facts_invent_rdma_devices", detected by "reports_no_rdma_device_on_a_card_without_rdma",
        DefectKind::DistortsFacts(|facts, _| vfs(facts).for_each(|vf| vf.rdma = Some(some_rdma())));
    "facts_omit_guids", detected by "sets_the_guid_of_the_right_vf",
        DefectKind::DistortsFacts(|facts, _| vfs(facts).for_each(|vf| vf.admin_guid = None));
    "facts_invent_vdpa_devices", detected by "reports_no_vdpa_devices_when_there_are_none",
        DefectKind::DistortsFacts(|facts, _| vfs(facts).for_each(|vf| vf.vdpa = Some(VdpaKind::Vhost)));
    "facts_invent_firmware_settings", detected by "reports_no_firmware_settings_without_a_firmware_tool",
        DefectKind::DistortsFacts(|facts, _| pfs(facts).for_each(|pf| pf.firmware = Some(some_firmware())));
    "facts_report_pfs_as_lone_vfs", detected by "a_pf_is_not_reported_as_a_lone_vf",
        DefectKind::DistortsFacts(|facts, _| pfs(facts).for_each(|pf| pf.is_lone_vf = true));
    "facts_report_lone_vfs_as_pfs", detected by "reports_a_lone_vf_as_its_own_vf",
        DefectKind::DistortsFacts(|facts, _| pfs(facts).for_each(|pf| pf.is_lone_vf = false));
}

fn pfs(facts: &mut HostFacts) -> impl Iterator<Item = &mut PfFacts> {
    facts.pfs.iter_mut()
}

fn vfs(facts: &mut HostFacts) -> impl Iterator<Item = &mut VfFacts> {
    pfs(facts).flat_map(|pf| pf.vfs.iter_mut())
}

fn links(facts: &mut HostFacts) -> impl Iterator<Item = &mut LinkFacts> {
    pfs(facts).filter_map(|pf| pf.link.as_mut())
}

fn vf_links(facts: &mut HostFacts) -> impl Iterator<Item = &mut LinkFacts> {
    vfs(facts).filter_map(|vf| vf.link.as_mut())
}

fn some_rdma() -> RdmaFacts {
    RdmaFacts { device: "rxe0".to_owned(), node_guid: Guid([2; 8]), port_guid: None }
}

fn some_firmware() -> FirmwareFacts {
    FirmwareFacts { current: FirmwareSettings::default(), next_boot: FirmwareSettings::default() }
}
