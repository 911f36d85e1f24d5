//! Facts beyond links, VFs and records that are not so.

use vfleet_api::Guid;
use vfleet_plan::{
    EswitchMode, Fact, FirmwareFacts, FirmwareSettings, HostFacts, HostUse, LinkFacts, PfFacts, RdmaFacts,
    VdpaKind, VfFacts,
};

use super::{Wrong, defects};

defects! {
    "facts_without_use_by_the_node", caught by "tells_a_default_route_on_a_pf",
        Wrong::Facts(|facts, _| links(facts).for_each(|link| link.host_use = None));
    "facts_without_use_of_vfs", caught by "tells_a_default_route_on_a_vf",
        Wrong::Facts(|facts, _| vf_links(facts).for_each(|link| link.host_use = None));
    "facts_with_all_in_use", caught by "an_idle_card_is_of_no_use_to_the_node",
        Wrong::Facts(|facts, _| links(facts).for_each(|link| link.host_use = Some(HostUse::NodeAddress)));
    "facts_without_made_addresses", caught by "tells_the_address_that_a_card_was_made_with",
        Wrong::Facts(|facts, _| links(facts).for_each(|link| link.permanent_mac = None));
    "facts_without_files", caught by "writes_a_file", Wrong::Facts(|facts, _| facts.files.clear());
    "facts_without_units", caught by "enables_and_disables_a_unit",
        Wrong::Facts(|facts, _| facts.enabled_units.clear());
    "facts_without_the_file_of_guids", caught by "tells_the_file_of_guids",
        Wrong::Facts(|facts, _| facts.guid_file = None);
    "facts_without_modules", caught by "tells_a_module_that_is_loaded",
        Wrong::Facts(|facts, _| facts.kernel.modules.clear());
    "facts_with_old_modules", caught by "loads_a_module",
        Wrong::Facts(|facts, first| facts.kernel.modules.clone_from(&first.kernel.modules));
    "facts_without_arguments", caught by "tells_the_command_line",
        Wrong::Facts(|facts, _| facts.kernel.command_line.clear());
    "facts_of_another_boot", caught by "tells_the_boot",
        Wrong::Facts(|facts, _| facts.kernel.boot_id.push('x'));
    "facts_with_another_iommu", caught by "tells_the_iommu",
        Wrong::Facts(|facts, _| facts.kernel.has_iommu = !facts.kernel.has_iommu);
    "facts_with_an_old_rdma_mode", caught by "tells_the_rdma_mode_that_others_set",
        Wrong::Facts(|facts, first| facts.kernel.rdma_mode = first.kernel.rdma_mode);
    "facts_with_a_numa_node", caught by "tells_no_numa_node_of_a_machine_with_one",
        Wrong::Facts(|facts, _| pfs(facts).for_each(|pf| pf.numa_node = Some(0)));
    "facts_with_a_network", caught by "tells_no_network_of_a_cloud_outside_one",
        Wrong::Facts(|facts, _| pfs(facts).for_each(|pf| pf.net_filter = Fact::Value("openstack/x".to_owned())));
    "facts_with_embedded_switches", caught by "tells_no_eswitch_of_a_card_without_one",
        Wrong::Facts(|facts, _| pfs(facts).for_each(|pf| pf.eswitch = Fact::Value(EswitchMode::Legacy)));
    "facts_with_offloading", caught by "tells_no_eswitch_of_a_card_without_one",
        Wrong::Facts(|facts, _| pfs(facts).for_each(|pf| pf.tc_offload = Some(false)));
    "facts_with_representors", caught by "tells_no_eswitch_of_a_card_without_one",
        Wrong::Facts(|facts, _| vfs(facts).for_each(|vf| vf.representor = Some("eth0".to_owned())));
    "facts_without_representors", caught by "representors_come_and_go_with_the_mode",
        Wrong::Facts(|facts, _| vfs(facts).for_each(|vf| vf.representor = None));
    "facts_with_rdma", caught by "tells_no_rdma_of_a_card_without",
        Wrong::Facts(|facts, _| vfs(facts).for_each(|vf| vf.rdma = Some(some_rdma())));
    "facts_without_guids", caught by "sets_the_guid_of_the_right_vf",
        Wrong::Facts(|facts, _| vfs(facts).for_each(|vf| vf.admin_guid = None));
    "facts_with_vdpa", caught by "tells_no_vdpa_where_there_is_none",
        Wrong::Facts(|facts, _| vfs(facts).for_each(|vf| vf.vdpa = Some(VdpaKind::Vhost)));
    "facts_with_firmware", caught by "tells_no_firmware_where_no_tool_can",
        Wrong::Facts(|facts, _| pfs(facts).for_each(|pf| pf.firmware = Some(some_firmware())));
    "facts_with_lone_vfs", caught by "no_pf_is_a_lone_vf",
        Wrong::Facts(|facts, _| pfs(facts).for_each(|pf| pf.is_lone_vf = true));
    "facts_without_lone_vfs", caught by "tells_a_lone_vf_as_its_own_vf",
        Wrong::Facts(|facts, _| pfs(facts).for_each(|pf| pf.is_lone_vf = false));
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
