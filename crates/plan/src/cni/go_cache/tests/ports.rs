//! Caches of the plugins that attach pods to software bridges.

use serde_json::{Value, json};

use super::{attachment, parse};
use crate::cni::facts::{BridgeVlan, OvsSocket};
use crate::cni::go_cache::{GoAttachment, GoCacheError, GoCache, go_cache_name};
use crate::cni::journal::{
    AcceleratedBridgeChanges, DeviceChanges, MirrorChanges, OvsChanges, OvsLink, Plugin,
};
use crate::cni::step::OvsVlans;
use crate::prelude::*;

fn changes(cache: &GoCache, attachment: &GoAttachment<'_>) -> DeviceChanges {
    cache.to_journal(attachment).unwrap().changes
}

fn ovs(network: &Value, rest: &Value) -> (GoCache, OvsChanges) {
    let mut netconf = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "ovs", "ipam": { "type": "host-local" }, "dns": {},
        "bridge": "br1", "vlan": null, "mtu": 0, "deviceID": "", "ofport_request": 0, "interface_type": "",
        "configuration_path": "", "socket_file": "", "link_state_check_retries": 5, "link_state_check_interval": 600
    });
    netconf.as_object_mut().unwrap().extend(network.as_object().unwrap().clone());
    let mut file = json!({ "Netconf": netconf, "OrigIfName": "", "UserspaceMode": false });
    file.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    let cache = parse(Plugin::Ovs, &file).unwrap();
    let DeviceChanges::Ovs(changes) = changes(&cache, &attachment()) else { panic!("{cache:?}") };
    (cache, changes)
}

fn ids(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_cache_of_a_veth_pair_has_no_port() {
    let (cache, changes) = ovs(&json!({ "vlan": 7 }), &json!({}));
    assert_eq!((cache.device, cache.network.as_deref()), (None, Some("net")));
    assert_eq!(cache.object["ipam"]["type"], "host-local");
    let expected = OvsChanges {
        socket: OvsSocket::default(),
        bridge: "br1".to_owned(),
        port: None,
        port_ids: ids(&[
            ("owner", "ovs-cni.network.kubevirt.io"),
            ("contNetns", "/var/run/netns/pod"),
            ("contIface", "net1"),
        ]),
        vlans: OvsVlans::Access(7),
        link: OvsLink::Veth { host_mac: None },
    };
    assert_eq!(changes, expected);
}

#[test]
fn the_cache_of_a_vf_has_the_name_of_its_interface() {
    let device = json!({ "deviceID": "0000:3b:02.1", "socket_file": "unix:/run/ovs.sock" });
    let (cache, changes) = ovs(&device, &json!({ "OrigIfName": "ens1f0v9" }));
    assert_eq!(cache.device, Some("0000:3b:02.1".parse().unwrap()));
    assert_eq!(changes.socket.to_string(), "unix:/run/ovs.sock");
    let OvsLink::Vf { vf, .. } = changes.link else { panic!("{changes:?}") };
    assert_eq!((vf.vf.index, vf.interface.unwrap().name.as_str()), (9, "ens1f0v9"));

    let (_, for_userspace) = ovs(&device, &json!({ "OrigIfName": "x", "UserspaceMode": true }));
    assert!(matches!(for_userspace.link, OvsLink::Vf { vf, .. } if vf.interface.is_none()));
}

#[test]
fn the_cache_of_a_vdpa_device_has_its_type() {
    let device = json!({ "deviceID": "0000:3b:02.1" });
    for (type_, is_vdpa) in [
        (json!("kernel-vhost"), true),
        (json!(1), true),
        (json!(0), false),
        (json!(""), false),
        (json!("None"), false),
        (json!(null), false),
    ] {
        let (_, changes) = ovs(&device, &json!({ "VdpaType": type_, "OrigIfName": "ens1f0v9" }));
        assert_eq!(matches!(changes.link, OvsLink::Vdpa { .. }), is_vdpa, "{type_}");
    }
}

#[test]
fn a_port_without_a_known_namespace_is_not_known_by_its_ids_alone() {
    let (cache, _) = ovs(&json!({}), &json!({}));
    let mut attachment = attachment();
    attachment.namespace.path.clear();
    let DeviceChanges::Ovs(changes) = changes(&cache, &attachment) else { panic!("{cache:?}") };
    assert_eq!(changes.port_ids, ids(&[("owner", "ovs-cni.network.kubevirt.io"), ("contIface", "net1")]));
}

#[test]
fn caches_that_are_not_of_ovs_are_refused() {
    for (file, key) in [
        (json!({}), "Netconf"),
        (json!({ "PrevResult": {} }), "Netconf"),
        (json!({ "Netconf": { "deviceID": "x" } }), "deviceID"),
        (json!({ "Netconf": { "socket_file": "ssl:a" } }), "Netconf.socket_file"),
    ] {
        let error = parse(Plugin::Ovs, &file).unwrap_err();
        assert!(matches!(&error, GoCacheError::Foreign { key: found, .. } if found == key), "{error}");
    }
    let (cache, _) = ovs(&json!({ "deviceID": "0000:3b:02.1" }), &json!({}));
    let without_vf = GoAttachment { vf: None, ..attachment() };
    let error = cache.to_journal(&without_vf).unwrap_err();
    assert_eq!(error.to_string(), "device 0000:3b:02.1 is not a VF");
}

/// Returns a file as the plugin `accelerated-bridge` writes it.
fn bridge(keys: &Value) -> Value {
    let mut file = json!({
        "cniVersion": "0.4.0", "name": "net", "type": "accelerated-bridge", "ipam": { "type": "static" },
        "bridge": "br1,br2", "vlan": 100, "trunk": [{ "minID": 5, "maxID": 6 }, { "id": 9 }],
        "deviceID": "0000:3b:02.1", "runtimeConfig": {}, "setUplinkVlan": true, "IsUserspaceDriver": false,
        "orig_vf_state": {
            "host_if_name": "ens1f0v9", "admin_mac": "00:00:00:00:00:00", "effective_mac": "02:00:00:00:00:09", "mtu": 1500
        },
        "orig_rep_state": { "mtu": 1400 }, "pf_name": "ens1f0", "actual_bridge": "br2",
        "mac": "02:00:00:00:aa:01", "mtu": 9000, "representor": "ens1f0_9", "vfid": 9, "cont_if_names": "net1"
    });
    file.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    file
}

fn bridge_changes(keys: &Value) -> AcceleratedBridgeChanges {
    let cache = parse(Plugin::AcceleratedBridge, &bridge(keys)).unwrap();
    let DeviceChanges::AcceleratedBridge(changes) = changes(&cache, &attachment()) else { panic!("{cache:?}") };
    changes
}

#[test]
fn the_cache_of_a_linux_bridge_has_everything_to_restore() {
    let changes = bridge_changes(&json!({}));
    assert_eq!((changes.bridge.as_str(), changes.vlans), ("br2", None::<Vec<BridgeVlan>>));
    let uplink = changes.uplink.unwrap();
    assert_eq!((uplink.index, uplink.name.as_str()), (0, "ens1f0"));
    assert_eq!((&uplink.needed, &uplink.added), (&[5, 6, 9, 100].into(), &[5, 6, 9, 100].into()));
    assert_eq!(changes.vf.changed.mac, Some("02:00:00:00:aa:01".parse().unwrap()));
    assert_eq!(changes.vf.original.mac, Some("00:00:00:00:00:00".parse().unwrap()));
    let interface = changes.vf.interface.unwrap();
    assert_eq!((interface.name.as_str(), interface.mtu), ("ens1f0v9", Some(1500)));
    assert_eq!(interface.mac, Some("02:00:00:00:00:09".parse().unwrap()));
    let representor = changes.representor;
    assert_eq!((representor.name.as_str(), representor.original_mtu), ("ens1f0_9", Some(1400)));
    assert!(!representor.was_up);
}

#[test]
fn what_the_plugin_did_not_set_is_not_restored() {
    let changes = bridge_changes(&json!({ "mac": "", "mtu": 0, "setUplinkVlan": false, "actual_bridge": "" }));
    assert_eq!((changes.bridge.as_str(), changes.uplink, changes.vf.changed.mac), ("br1,br2", None, None));
    assert_eq!((changes.vf.original.mac, changes.representor.original_mtu), (None, None));
    let interface = changes.vf.interface.unwrap();
    assert_eq!((interface.mac, interface.mtu), (None, None));
    let for_userspace = bridge_changes(&json!({ "IsUserspaceDriver": true }));
    assert_eq!(for_userspace.vf.interface, None);
}

#[test]
fn an_attachment_of_a_linux_bridge_is_a_peer_of_others() {
    let cache = parse(Plugin::AcceleratedBridge, &bridge(&json!({}))).unwrap();
    let peer = cache.to_peer("c1", "net1");
    assert_eq!(peer.uplink.unwrap().needed, [5, 6, 9, 100].into());
    let without = parse(Plugin::AcceleratedBridge, &bridge(&json!({ "setUplinkVlan": null }))).unwrap();
    assert_eq!(without.to_peer("c1", "net1").uplink, None);
}

#[test]
fn the_cache_of_a_mirror_has_its_interfaces() {
    let file = json!({ "PrevResult": { "cniVersion": "1.0.0", "interfaces": [{ "name": "veth1" }, { "name": "net1" }] } });
    for plugin in [Plugin::OvsMirrorProducer, Plugin::OvsMirrorConsumer] {
        let cache = parse(plugin, &file).unwrap();
        assert_eq!((cache.device, cache.network.clone()), (None, None));
        let socket = OvsSocket::Unix("/run/ovs.sock".to_owned());
        let expected = MirrorChanges {
            socket: socket.clone(),
            bridge: None,
            ports: vec!["veth1".to_owned(), "net1".to_owned()],
            mirrors: None,
        };
        let attachment = GoAttachment { socket, ..attachment() };
        assert_eq!(changes(&cache, &attachment), DeviceChanges::Mirror(expected));
        assert!(parse(plugin, &json!({ "Netconf": {} })).is_err());
    }
}

#[test]
fn caches_are_named_after_their_attachment() {
    for (plugin, name) in [
        (Plugin::Ovs, "c1-net1"),
        (Plugin::OvsMirrorProducer, "c1-net1_prod"),
        (Plugin::OvsMirrorConsumer, "c1-net1_cons"),
        (Plugin::AcceleratedBridge, "net-c1-net1"),
    ] {
        assert_eq!(go_cache_name(plugin, "net", "c1", "net1"), name);
    }
}
