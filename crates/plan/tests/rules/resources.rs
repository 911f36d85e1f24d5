//! Device plugin configurations in which the Go operator would select the wrong VFs.

use std::collections::BTreeMap;

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};
use vfleet_plan::resources::{Resource, Selectors};
use vfleet_plan::{NamedPolicy, NicIds, build_device_plugin_config};

fn resources_on(cards: &str, nic_selector: &str) -> Option<Vec<Resource>> {
    let spec: SriovNetworkNodePolicySpec = serde_saphyr::from_str(&format!(
        "{{resourceName: r, nodeSelector: {{}}, numVfs: 8, nicSelector: {nic_selector}}}"
    ))
    .unwrap();
    let cards: Vec<InterfaceExt> = serde_saphyr::from_str(cards).unwrap();
    let (ids, bad) = NicIds::parse(&BTreeMap::from([("i40e".to_owned(), "8086 158B 154c".to_owned())]));
    assert!(bad.is_empty(), "{bad:?}");
    let policies = [NamedPolicy { name: "p", spec: &spec }];
    build_device_plugin_config(
        &policies,
        &BTreeMap::new(),
        &cards,
        &SriovNetworkNodeStateSpec::default(),
        &ids,
    )
    .resources
}

fn selectors_on(cards: &str, nic_selector: &str) -> Selectors {
    resources_on(cards, nic_selector).unwrap().remove(0).selectors
}

fn selectors(nic_selector: &str) -> Selectors {
    selectors_on("[{name: ens1f0, altNames: [storage0], pciAddress: '0000:3b:00.0'}]", nic_selector)
}

#[test]
fn an_alternative_name_becomes_the_interface_name() {
    assert_eq!(selectors("{pfNames: ['storage0#0-3']}").pf_names, ["ens1f0#0-3"]);
    assert_eq!(selectors("{pfNames: [storage0]}").pf_names, ["ens1f0"]);
    assert_eq!(selectors("{pfNames: [elsewhere0]}").pf_names, ["elsewhere0"]);
}

#[test]
fn several_ranges_of_one_pf_are_one_entry() {
    assert_eq!(
        selectors("{pfNames: ['ens1f0#0-1', 'storage0#4-5', ens2f0]}").pf_names,
        ["ens1f0#0-1,4-5", "ens2f0"]
    );
    assert_eq!(selectors("{pfNames: ['ens1f0#0-1', ens1f0, 'ens1f0#4-5']}").pf_names, ["ens1f0"]);
}

#[test]
fn an_invalid_range_does_not_select_all_pfs() {
    assert_eq!(selectors("{pfNames: ['ens1f0#3']}").pf_names, ["ens1f0#3"]);
}

#[test]
fn ids_and_addresses_are_written_as_the_kernel_does() {
    let found = selectors("{vendor: '15B3', deviceID: 158B, rootDevices: ['0000:3B:00.0']}");
    assert_eq!((found.vendors, found.devices), (vec!["15b3".to_owned()], vec!["154c".to_owned()]));
    assert_eq!(found.root_devices, ["0000:3b:00.0"]);
}

const E810: &str = "vendor: '8086', deviceID: '1592', pciAddress: '0000:5e:00.0'";

/// The Go operator omits the device ID, so that all devices of the vendor match.
#[test]
fn vfs_of_an_unlisted_card_are_selected_by_their_observed_device_id() {
    let vfs = "Vfs: [{vfID: 0, pciAddress: '0000:5e:01.0', deviceID: '1889'}]";
    let other = "{vendor: '15b3', deviceID: '1592', pciAddress: '0000:86:00.0',
                  Vfs: [{vfID: 0, pciAddress: '0000:86:00.1', deviceID: '101e'}]}";
    let cards = format!("[{{{E810}, {vfs}}}, {other}]");
    let found = selectors_on(&cards, "{vendor: '8086', deviceID: '1592'}");
    assert_eq!((found.vendors, found.devices), (vec!["8086".to_owned()], vec!["1889".to_owned()]));
    assert_eq!(selectors_on(&cards, "{deviceID: '1592'}").devices, ["1889", "101e"]);
}

#[test]
fn an_unlisted_card_without_vfs_provides_no_device() {
    for cards in ["[]".to_owned(), format!("[{{{E810}}}]")] {
        assert_eq!(selectors_on(&cards, "{vendor: '8086', deviceID: '1592'}").devices, ["ffff"], "{cards}");
    }
}

/// The plugin crashes if both are set.
#[test]
fn a_vdpa_device_has_no_rdma_device() {
    let found = selectors("{pfNames: [ens1f0]}, eSwitchMode: switchdev, vdpaType: virtio, isRdma: true");
    assert_eq!((found.vdpa_type, found.is_rdma), (Some("virtio"), false));
    assert!(selectors("{pfNames: [ens1f0]}, isRdma: true").is_rdma);
}

/// The Go operator writes a resource without selectors, so that every device matches.
#[test]
fn a_network_without_cards_is_no_resource() {
    let network = "{netFilter: 'openstack/NetworkID:aaaa'}";
    let on = |network: &str| format!("[{{pciAddress: '0000:00:05.0', netFilter: '{network}'}}]");
    assert_eq!(resources_on("[]", network), None);
    assert_eq!(resources_on(&on("openstack/NetworkID:bbbb"), network), None);
    assert_eq!(selectors_on(&on("openstack/NetworkID:aaaa"), network).pci_addresses, ["0000:00:05.0"]);
}

#[test]
fn invalid_ids_are_reported_and_the_others_count() {
    let data = [("a", "8086 158b"), ("b", "8086 158b 154c extra"), ("c", "8086 xyz 154c"), ("d", "8086 1 2")];
    let data = data.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let (ids, bad) = NicIds::parse(&data);
    assert_eq!(ids, NicIds::default());
    assert_eq!(bad.iter().map(|bad| bad.key.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert!(bad[0].to_string().contains("8086 158b 154c"), "{}", bad[0]);
}

/// While the metadata service of the cloud does not answer, a card keeps the resource of its network.
#[test]
fn a_card_whose_network_is_unknown_keeps_its_resource() {
    let spec = "{resourceName: r, nodeSelector: {}, numVfs: 1, nicSelector: {netFilter: 'aws/NetworkID:a'}}";
    let spec: SriovNetworkNodePolicySpec = serde_saphyr::from_str(spec).unwrap();
    let policies = [NamedPolicy { name: "p", spec: &spec }];
    let card = |rest: &str| -> Vec<InterfaceExt> {
        serde_saphyr::from_str(&format!("[{{pciAddress: '0000:00:05.0', {rest}}}]")).unwrap()
    };
    let text = "interfaces: [{pciAddress: '0000:00:05.0', vfGroups: [{policyName: p}]}]";
    let current_spec: SriovNetworkNodeStateSpec = serde_saphyr::from_str(text).unwrap();
    let addresses = |cards: &[InterfaceExt], current: &SriovNetworkNodeStateSpec| {
        let list =
            build_device_plugin_config(&policies, &BTreeMap::new(), cards, current, &NicIds::default());
        list.resources.map(|resources| resources[0].selectors.pci_addresses.clone())
    };
    let unknown = card("unknownFacts: [netFilter]");
    assert_eq!(addresses(&unknown, &current_spec), Some(vec!["0000:00:05.0".to_owned()]));
    assert_eq!(addresses(&unknown, &SriovNetworkNodeStateSpec::default()), None);
    assert_eq!(addresses(&card("netFilter: 'aws/NetworkID:b'"), &current_spec), None);
}
