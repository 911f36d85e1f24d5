//! Where the Go operator's device plugin config would not give the VFs that the user meant.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::collections::BTreeMap;

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::node_state::InterfaceExt;
use vfleet_plan::resources::Selectors;
use vfleet_plan::{NamedPolicy, NicIds, device_plugin_config};

fn selectors_on(cards: &str, nic_selector: &str) -> Selectors {
    let spec: SriovNetworkNodePolicySpec = serde_saphyr::from_str(&format!(
        "{{resourceName: r, nodeSelector: {{}}, numVfs: 8, nicSelector: {nic_selector}}}"
    ))
    .unwrap();
    let cards: Vec<InterfaceExt> = serde_saphyr::from_str(cards).unwrap();
    let (ids, bad) = NicIds::parse(&BTreeMap::from([("i40e".to_owned(), "8086 158B 154c".to_owned())]));
    assert!(bad.is_empty(), "{bad:?}");
    let policies = [NamedPolicy { name: "p", spec: &spec }];
    let list = device_plugin_config(&policies, &BTreeMap::new(), &cards, &ids);
    list.resources.unwrap().remove(0).selectors
}

fn selectors(nic_selector: &str) -> Selectors {
    selectors_on("[{name: ens1f0, altNames: [storage0], pciAddress: '0000:3b:00.0'}]", nic_selector)
}

#[test]
fn an_alternative_name_becomes_the_name_that_the_plugin_knows() {
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
fn a_range_that_cannot_be_read_does_not_become_all_pfs() {
    assert_eq!(selectors("{pfNames: ['ens1f0#3']}").pf_names, ["ens1f0#3"]);
}

#[test]
fn ids_and_addresses_are_written_as_the_kernel_does() {
    let found = selectors("{vendor: '15B3', deviceID: 158B, rootDevices: ['0000:3B:00.0']}");
    assert_eq!((found.vendors, found.devices), (vec!["15b3".to_owned()], vec!["154c".to_owned()]));
    assert_eq!(found.root_devices, ["0000:3b:00.0"]);
}

#[test]
fn a_network_on_a_node_without_cards_is_no_error() {
    assert!(selectors_on("[]", "{netFilter: 'aws/NetworkID:subnet-1'}").pci_addresses.is_empty());
}

#[test]
fn ids_that_cannot_be_read_are_named_and_the_others_count() {
    let data = [("a", "8086 158b"), ("b", "8086 158b 154c extra"), ("c", "8086 xyz 154c"), ("d", "8086 1 2")];
    let data = data.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let (ids, bad) = NicIds::parse(&data);
    assert_eq!(ids, NicIds::default());
    assert_eq!(bad.iter().map(|bad| bad.key.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert!(bad[0].to_string().contains("8086 158b 154c"), "{}", bad[0]);
}
