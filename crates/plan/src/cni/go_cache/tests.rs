mod infiniband;
mod ports;

use infiniband::infiniband;
use proptest::prelude::*;
use serde_json::json;
use vfleet_api::MacAddr;

use super::*;
use crate::cni::facts::{LinkState, NamespaceId, VfSettings, VfVlan, VlanProtocol};
use crate::cni::step::OriginalInterface;

fn attachment() -> GoAttachment<'static> {
    GoAttachment {
        container_id: "c1",
        interface: "net1",
        network: "of the runtime",
        namespace: Namespace {
            path: "/var/run/netns/pod".to_owned(),
            id: NamespaceId { device: 4, inode: 4_026_532_000, cookie: None },
        },
        boot_id: "boot",
        vf: Some(VfRef { pf: "0000:3b:00.0".parse().unwrap(), index: 9 }),
        socket: OvsSocket::default(),
        config: None,
        cni_path: "/opt/cni/bin",
    }
}

/// Returns a file as the plugin `sriov` writes it, with changed keys.
fn sriov(changes: &Value, state: &Value) -> Value {
    let mut cache = json!({
        "cniVersion": "0.3.1", "name": "fast", "type": "sriov", "ipam": { "type": "host-local" },
        "OrigVfState": {
            "HostIFName": "ens1f0v9", "SpoofChk": true, "Trust": false, "AdminMAC": "00:00:00:00:00:00",
            "EffectiveMAC": "02:00:00:00:00:09", "Vlan": 0, "VlanQoS": 0, "VlanProto": 33024, "MinTxRate": 0,
            "MaxTxRate": 0, "LinkState": 0, "MTU": 1500
        },
        "Master": "ens1f0", "MAC": "", "MTU": 1500, "vlan": null, "vlanQoS": null, "vlanProto": null,
        "deviceID": "0000:3b:02.1", "VFID": 9, "min_tx_rate": null, "max_tx_rate": null, "runtimeConfig": {}
    });
    cache.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    if let (Some(original), Some(state)) = (cache["OrigVfState"].as_object_mut(), state.as_object()) {
        original.extend(state.clone());
    }
    cache
}

fn parse(plugin: Plugin, cache: &Value) -> Result<GoCache, GoCacheError> {
    parse_go_cache(plugin, cache.to_string().as_bytes())
}

fn sriov_changes(changes: &Value, state: &Value) -> VfChanges {
    let cache = parse(Plugin::Sriov, &sriov(changes, state)).unwrap();
    match cache.to_journal(&attachment()).unwrap().changes {
        DeviceChanges::Sriov(changes) => changes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cache_of_sriov_becomes_a_journal() {
    let value = sriov(&json!({}), &json!({}));
    let cache = parse(Plugin::Sriov, &value).unwrap();
    assert_eq!((cache.pf.as_deref(), cache.vf_index), (Some("ens1f0"), Some(9)));
    let journal = cache.to_journal(&attachment()).unwrap();
    let device = Some("0000:3b:02.1".parse().unwrap());
    assert_eq!(
        journal.key,
        AttachmentKey {
            plugin: Plugin::Sriov,
            container_id: "c1".to_owned(),
            interface: "net1".to_owned(),
            device
        }
    );
    assert_eq!((journal.phase, journal.network.as_str()), (Phase::Attached, "fast"));
    assert_eq!((journal.boot_id.as_str(), journal.cni_path.as_str()), ("boot", "/opt/cni/bin"));
    assert_eq!((&journal.namespace, &journal.config), (&attachment().namespace, &value));
    let zero = Some(MacAddr::ZERO);
    let original = VfSettings {
        mac: zero,
        vlan: Some(VfVlan::default()),
        spoof_check: Some(true),
        trust: Some(false),
        min_tx_rate: Some(0),
        max_tx_rate: Some(0),
        link_state: Some(LinkState::Auto),
        ..VfSettings::default()
    };
    let interface = OriginalInterface {
        name: "ens1f0v9".to_owned(),
        mac: "02:00:00:00:00:09".parse().ok(),
        mtu: Some(1500),
        ..OriginalInterface::default()
    };
    let expected = VfChanges {
        vf: attachment().vf.unwrap(),
        changed: VfSettings { mac: zero, ..VfSettings::default() },
        original,
        interface: Some(interface),
    };
    assert_eq!(journal.changes, DeviceChanges::Sriov(expected));
    let written = serde_json::to_vec(&journal).unwrap();
    assert_eq!(serde_json::from_slice::<Journal>(&written).unwrap(), journal);
}

#[test]
fn only_settings_with_a_key_were_changed() {
    let changes = json!({
        "vlan": 100, "vlanQoS": 3, "vlanProto": "802.1ad", "MAC": "02:00:00:00:00:AA", "spoofchk": "true",
        "trust": "on", "link_state": "enable", "max_tx_rate": 100
    });
    let state = json!({ "AdminMAC": "02:00:00:00:00:01", "Vlan": 7, "VlanQoS": 1, "VlanProto": 34984, "LinkState": 2 });
    let VfChanges { changed, original, .. } = sriov_changes(&changes, &state);
    let expected = VfSettings {
        mac: "02:00:00:00:00:aa".parse().ok(),
        vlan: Some(VfVlan { id: 100, qos: 3, protocol: VlanProtocol::Ieee8021ad }),
        spoof_check: Some(false),
        trust: Some(true),
        min_tx_rate: Some(0),
        max_tx_rate: Some(100),
        link_state: Some(LinkState::Enable),
        ..VfSettings::default()
    };
    assert_eq!(changed, expected);
    assert_eq!(original.vlan, Some(VfVlan { id: 7, qos: 1, protocol: VlanProtocol::Ieee8021ad }));
    assert_eq!(
        (original.mac, original.link_state),
        ("02:00:00:00:00:01".parse().ok(), Some(LinkState::Disable))
    );
}

#[test]
fn a_vlan_without_protocol_is_802_1q() {
    for protocol in [json!(0), json!(null), json!(33024), json!(0x81)] {
        let VfChanges { original, .. } = sriov_changes(&json!({}), &json!({ "VlanProto": protocol }));
        assert_eq!(original.vlan.unwrap().protocol, VlanProtocol::Ieee8021q);
    }
}

#[test]
fn a_vf_with_a_userspace_driver_has_no_interface() {
    for (changes, state) in [
        (json!({}), json!({ "HostIFName": "", "EffectiveMAC": "", "MTU": 0 })),
        (json!({ "DPDKMode": true }), json!({})),
    ] {
        assert_eq!(sriov_changes(&changes, &state).interface, None);
    }
}

#[test]
fn files_of_old_versions_lack_keys() {
    let state = json!({ "HostIFName": "ens1f0v9", "SpoofChk": true, "AdminMAC": "", "EffectiveMAC": "", "LinkState": 1 });
    let changes = json!({ "OrigVfState": state, "DPDKMode": false, "ContIFNames": "net1" });
    let VfChanges { changed, original, interface, .. } = sriov_changes(&changes, &json!({}));
    assert_eq!((changed, original.mac), (VfSettings::default(), None));
    let name_only = OriginalInterface { name: "ens1f0v9".to_owned(), ..OriginalInterface::default() };
    assert_eq!(interface, Some(name_only));
}

#[test]
fn the_configuration_of_the_runtime_counts() {
    let config = json!({ "name": "fast", "ipam": { "type": "host-local", "subnet": "192.0.2.0/24" } });
    let cache = parse(Plugin::Sriov, &sriov(&json!({}), &json!({}))).unwrap();
    let journal = cache.to_journal(&GoAttachment { config: Some(&config), ..attachment() }).unwrap();
    assert_eq!(journal.config, config);
}

#[test]
fn a_cache_of_rdma_becomes_a_journal() {
    let value = json!({
        "version": "1.0", "deviceID": "0000:3b:02.1", "sandboxRdmaDevName": "mlx5_9", "containerRdmaDevName": "mlx5_9"
    });
    let journal = parse(Plugin::Rdma, &value).unwrap().to_journal(&attachment()).unwrap();
    assert_eq!(journal.network, "of the runtime");
    assert_eq!(journal.changes, DeviceChanges::Rdma(RdmaChanges { rdma: "mlx5_9".to_owned() }));
}

#[test]
fn torn_files_are_typed_errors() {
    let whole = sriov(&json!({}), &json!({})).to_string();
    for length in 0..whole.len() {
        let error = parse_go_cache(Plugin::Sriov, &whole.as_bytes()[..length]).unwrap_err();
        assert!(matches!(error, GoCacheError::Torn { .. }), "{length}: {error}");
    }
}

#[test]
fn files_of_others_are_typed_errors() {
    let rdma = json!({ "version": "2.0", "deviceID": "0000:3b:02.1", "containerRdmaDevName": "mlx5_9" });
    let state = |state: Value| sriov(&json!({}), &state);
    for (plugin, value, expected) in [
        (Plugin::Sriov, json!([]), "cache"),
        (Plugin::Sriov, json!({}), "deviceID"),
        (Plugin::Sriov, json!({ "deviceID": "x" }), "deviceID"),
        (Plugin::Sriov, infiniband(&json!({})), "OrigVfState"),
        (Plugin::Sriov, state(json!({ "AdminMAC": "x" })), "OrigVfState.AdminMAC"),
        (Plugin::Sriov, state(json!({ "VlanProto": 5 })), "OrigVfState.VlanProto"),
        (Plugin::Sriov, state(json!({ "LinkState": 3 })), "OrigVfState.LinkState"),
        (Plugin::Sriov, state(json!({ "Vlan": "x" })), "OrigVfState.Vlan"),
        (Plugin::Sriov, sriov(&json!({ "vlan": 5000 }), &json!({})), "vlan"),
        (Plugin::Infiniband, infiniband(&json!({ "HostIFGUID": "x" })), "HostIFGUID"),
        (Plugin::Infiniband, sriov(&json!({}), &json!({})), "HostIFNames"),
        (Plugin::Rdma, infiniband(&json!({})), "version"),
        (Plugin::Rdma, json!({ "deviceID": "0000:3b:02.1" }), "version"),
        (Plugin::Rdma, rdma, "version"),
        (Plugin::Rdma, json!({ "deviceID": "0000:3b:02.1", "version": "1.0" }), "containerRdmaDevName"),
    ] {
        match parse(plugin, &value).unwrap_err() {
            GoCacheError::Foreign { key, .. } => assert_eq!(key, expected),
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_device_that_is_no_vf_any_more_is_a_typed_error() {
    let cache = parse(Plugin::Sriov, &sriov(&json!({}), &json!({}))).unwrap();
    let error = cache.to_journal(&GoAttachment { vf: None, ..attachment() }).unwrap_err();
    assert_eq!(error, GoCacheError::NoVf { device: "0000:3b:02.1".to_owned() });
}

proptest! {
    #[test]
    fn any_bytes_are_accepted_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for plugin in [Plugin::Sriov, Plugin::Infiniband, Plugin::Rdma] {
            let _ = parse_go_cache(plugin, &bytes);
        }
    }

    #[test]
    fn a_damaged_file_is_accepted_or_refused(at in 0..600usize, byte in any::<u8>()) {
        let mut text = sriov(&json!({}), &json!({})).to_string().into_bytes();
        let at = at % text.len();
        text[at] = byte;
        if let Ok(cache) = parse_go_cache(Plugin::Sriov, &text) {
            prop_assert!(cache.to_journal(&attachment()).is_ok());
        }
    }
}
