//! Round trips of Go operator objects through the types of this crate: the objects do not change.
//!
//! `fixtures/kube/go-operator/files/regenerate` writes the files in `go_objects/` with the Go types (v1.6.0): each kind
//! once empty and once with every field set. Do not write them by other means.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use kube::core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vfleet_api::{
    OVSNetwork, SriovIBNetwork, SriovNetwork, SriovNetworkNodePolicy, SriovNetworkNodeState,
    SriovNetworkPoolConfig, SriovOperatorConfig,
};

fn round_trip<K: Resource<DynamicType = ()> + Serialize + DeserializeOwned>(text: &str) {
    let written: Value = serde_json::from_str(text).unwrap();
    let read: K = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), written, "{}", K::kind(&()));
}

macro_rules! kinds {
    ($($test:ident: $kind:ident;)*) => {$(
        #[test]
        fn $test() {
            round_trip::<$kind>(include_str!(concat!("go_objects/", stringify!($kind), "-empty.json")));
            round_trip::<$kind>(include_str!(concat!("go_objects/", stringify!($kind), "-full.json")));
        }
    )*};
}

kinds! {
    sriov_network: SriovNetwork;
    sriov_ib_network: SriovIBNetwork;
    ovs_network: OVSNetwork;
    sriov_network_node_policy: SriovNetworkNodePolicy;
    sriov_network_node_state: SriovNetworkNodeState;
    sriov_network_pool_config: SriovNetworkPoolConfig;
    sriov_operator_config: SriovOperatorConfig;
}

/// Fields that are newer than v1.6.0.
#[test]
fn fields_of_later_versions() {
    round_trip::<SriovNetworkNodeState>(
        r#"{"apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState", "metadata": {"name": "n"},
            "spec": {"bridges": {"ovs": [{"name": "br", "bridge": {"failMode": "standalone"}}]}, "system": {}},
            "status": {"bridges": {}, "system": {},
                "interfaces": [{"pciAddress": "0000:3b:00.0", "altNames": ["a"], "Vfs": [{"pciAddress": "0000:3b:02.0", "vfID": 0}]}]}}"#,
    );
    round_trip::<SriovNetwork>(
        r#"{"apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetwork", "metadata": {"name": "n"},
            "spec": {"resourceName": "r", "logLevel": "", "vlan": 0, "minTxRate": 0},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "NetworkReady", "message": "",
                "lastTransitionTime": "2026-08-06T10:00:00Z", "observedGeneration": 1}]}}"#,
    );
}

#[test]
fn an_invalid_value_leaves_the_object_readable_and_is_written_back() {
    let text = r#"{"apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy", "metadata": {"name": "p"},
        "spec": {"resourceName": "r", "nodeSelector": {}, "numVfs": 9000000000,
            "nicSelector": {"rootDevices": ["0000:3B:00.0", "slot 3"], "pfNames": ["ens1f0#x-y"]}}}"#;
    round_trip::<SriovNetworkNodePolicy>(text);
    let policy: SriovNetworkNodePolicy = serde_json::from_str(text).unwrap();
    let devices = policy.spec.nic_selector.root_devices.unwrap();
    assert_eq!(devices[0].value().unwrap().to_string(), "0000:3b:00.0");
    assert!(devices[1].value().unwrap_err().to_string().contains("slot 3"));
}
