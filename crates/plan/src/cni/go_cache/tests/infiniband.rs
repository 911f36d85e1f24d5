//! Caches of the plugin `ib-sriov`.

use serde_json::json;
use vfleet_api::Guid;

use super::*;

/// Returns a file as the plugin `ib-sriov` writes it, with changed keys.
pub(super) fn infiniband(changes: &Value) -> Value {
    let mut cache = json!({
        "cniVersion": "1.0.0", "name": "ib", "type": "ib-sriov", "ipam": {}, "Master": "ib0",
        "deviceID": "0000:3b:02.1", "VFID": 9, "HostIFNames": "ib0v9", "HostIFGUID": "", "ContIFNames": "net1",
        "pkey": "", "RdmaNetState": {
            "version": "", "deviceID": "", "sandboxRdmaDevName": "", "containerRdmaDevName": ""
        },
        "runtimeConfig": { "infinibandGUID": "" }, "args": { "cni": null }
    });
    cache.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    cache
}

fn infiniband_changes(changes: &Value) -> InfinibandChanges {
    let cache = parse(Plugin::Infiniband, &infiniband(changes)).unwrap();
    match cache.to_journal(&attachment()).unwrap().changes {
        DeviceChanges::Infiniband(changes) => changes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cache_of_ib_sriov_becomes_a_journal() {
    let interface = OriginalInterface { name: "ib0v9".to_owned(), ..OriginalInterface::default() };
    let expected = InfinibandChanges {
        vf: attachment().vf,
        guid: None,
        original_guid: None,
        original: VfSettings::default(),
        link_state: None,
        interface: Some(interface),
        rdma: None,
    };
    assert_eq!(infiniband_changes(&json!({})), expected);
}

#[test]
fn the_guid_the_link_state_and_the_rdma_device_are_restored() {
    let [first, second]: [Guid; 2] =
        ["02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:02"].map(|text| text.parse().unwrap());
    let changes = infiniband_changes(&json!({
        "HostIFGUID": first.to_string(), "args": { "cni": { "guid": second.to_string() } }, "link_state": "enable",
        "rdmaIsolation": true, "RdmaNetState": { "version": "1.0", "containerRdmaDevName": "mlx5_9" }
    }));
    assert_eq!(changes.guid, Some(second));
    assert_eq!(changes.original_guid, Some(first));
    assert_eq!(
        (changes.link_state, changes.original.link_state),
        (Some(LinkState::Enable), Some(LinkState::Auto))
    );
    assert_eq!(changes.rdma.as_deref(), Some("mlx5_9"));
}

#[test]
fn a_guid_of_zero_is_restored_as_none() {
    let changes = infiniband_changes(&json!({ "HostIFGUID": "00:00:00:00:00:00:00:00" }));
    assert_eq!(changes.original_guid, Some(Guid([0xff; 8])));
    assert!(changes.guid.is_some(), "a GUID was set, though the file does not say which");
}

#[test]
fn a_pf_for_userspace_has_no_vf() {
    let cache =
        parse(Plugin::Infiniband, &infiniband(&json!({ "HostIFNames": "", "vfioPciMode": true }))).unwrap();
    let journal = cache.to_journal(&GoAttachment { vf: None, ..attachment() }).unwrap();
    let DeviceChanges::Infiniband(changes) = journal.changes else { panic!("{journal:?}") };
    assert_eq!((changes.vf, changes.interface), (None, None));
}
