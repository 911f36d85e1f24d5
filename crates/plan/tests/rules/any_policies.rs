//! Random policies and cards: mostly valid, sometimes invalid.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::node_state::InterfaceExt;

fn selector() -> impl Strategy<Value = Value> {
    let names = vec![
        "ens0#0-1", "ens0#2-3", "ens0#1-2", "alt0#3-5", "ens0", "ens1", "ens1#0-3", "alt1#2-5", "ens1#6-7",
        "ens2#0-9",
    ];
    let wrong = option::weighted(0.05, select(vec!["ens0#x", "#0-1"]));
    let names = (subsequence(names, 1..5), wrong)
        .prop_map(|(names, wrong)| names.into_iter().chain(wrong).collect::<Vec<_>>());
    let addresses = ["0000:3b:00.0", "0000:3B:00.1", "0000:af:00.0", "3b:00.0"];
    (
        option::weighted(0.4, select(vec!["8086", "8086", "15b3", "15B3", "0x8086", ""])),
        option::weighted(0.1, select(vec!["159b", "101b"])),
        option::weighted(0.8, names),
        option::weighted(0.1, subsequence(addresses.to_vec(), 1..3)),
        option::weighted(0.1, select(vec!["aws/NetworkID:a", "openstack/NetworkID : b", "c"])),
    )
        .prop_map(|(vendor, device, names, addresses, network)| {
            json!({ "vendor": vendor, "deviceID": device, "pfNames": names, "rootDevices": addresses,
                    "netFilter": network })
        })
}

pub(crate) fn policy() -> impl Strategy<Value = SriovNetworkNodePolicySpec> {
    let settings = (
        option::weighted(0.1, select(vec!["netdevice", "vfio-pci"])),
        option::weighted(0.1, any::<bool>()),
        option::weighted(0.1, select(vec!["eth", "IB"])),
        option::weighted(0.3, select(vec!["legacy", "switchdev"])),
        option::weighted(0.05, select(vec!["virtio", "vhost"])),
        option::weighted(0.1, any::<bool>()),
        option::weighted(0.1, select(vec![json!({}), json!({ "ovs": {} }), json!({ "linux": {} })])),
    );
    (
        select(vec!["red", "green", "blue"]),
        option::weighted(0.2, select(vec!["a", "b"])),
        option::of(select(vec![0, 10, 20, 99])),
        option::of(select(vec![1500, 9000])),
        select(vec![0, 1, 4, 8, 8, 8, 8, 8, 8, 10, 65_535, 65_536, -1]),
        selector(),
        settings,
    )
        .prop_map(|(resource, rack, priority, mtu, num_vfs, nic, settings)| {
            let (device_type, rdma, link, mode, vdpa, external, bridge) = settings;
            let nodes = rack.map(|rack| json!({ "rack": rack })).unwrap_or(json!({}));
            serde_json::from_value(json!({
                "resourceName": resource, "nodeSelector": nodes, "priority": priority, "mtu": mtu,
                "numVfs": num_vfs, "nicSelector": nic, "deviceType": device_type, "isRdma": rdma,
                "linkType": link, "eSwitchMode": mode, "vdpaType": vdpa, "externallyManaged": external,
                "bridge": bridge,
            }))
            .unwrap()
        })
}

pub(crate) fn cards() -> impl Strategy<Value = Vec<InterfaceExt>> {
    let card = (
        option::weighted(0.9, select(vec!["8086", "8086", "15b3"])),
        option::weighted(0.9, select(vec!["159b", "101b"])),
        option::weighted(0.3, select(vec!["aws/NetworkID:a", "openstack/NetworkID:b"])),
        option::weighted(0.9, Just(())),
    );
    prop::collection::vec(card, 0..4).prop_map(|cards| {
        let card = |(at, (vendor, device, network, named)): (usize, (_, _, _, Option<()>))| {
            serde_json::from_value(json!({
                "pciAddress": format!("0000:3b:00.{at}"), "vendor": vendor, "deviceID": device, "netFilter": network,
                "name": named.map(|()| format!("ens{at}")), "altNames": [format!("alt{at}")], "totalvfs": 8,
            }))
            .unwrap()
        };
        cards.into_iter().enumerate().map(card).collect()
    })
}
