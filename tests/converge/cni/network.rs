//! Random networks.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use vfleet_plan::cni::facts::LinkState;

use super::scenario::{Card, IPAM, device};

/// Returns random networks for VFs of a card: a plugin, or two in a chain.
pub(super) fn chain(
    card: Card,
    is_for_userspace: bool,
    is_exclusive: bool,
) -> impl Strategy<Value = Vec<Value>> + use<> {
    let can_move_rdma = is_exclusive && !is_for_userspace;
    let ipam = prop::bool::weighted(0.7);
    let version = prop::sample::select(vec!["0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
    let has_rdma = prop::bool::weighted(if can_move_rdma && card == Card::Mellanox { 0.4 } else { 0.0 });
    let keys = if card == Card::Infiniband {
        infiniband_keys(can_move_rdma).boxed()
    } else {
        sriov_keys(card).boxed()
    };
    (version, has_rdma, keys, ipam).prop_map(move |(version, has_rdma, keys, has_ipam)| {
        let mut config = json!({"cniVersion": version, "name": "net-a", "deviceID": device().to_string()});
        let mut rdma = config.clone();
        config["type"] = json!(if card == Card::Infiniband { "ib-sriov" } else { "sriov" });
        if has_ipam {
            config["ipam"] = json!({"type": IPAM});
        }
        for (key, value) in keys {
            config[key] = value;
        }
        rdma["type"] = json!("rdma");
        if has_rdma { vec![config, rdma] } else { vec![config] }
    })
}

type Keys = Map<String, Value>;

fn sriov_keys(card: Card) -> impl Strategy<Value = Keys> {
    let all = [
        ("vlan", json!(100)),
        ("mac", json!("02:00:00:aa:00:01")),
        ("spoofchk", json!("off")),
        ("trust", json!("on")),
        ("max_tx_rate", json!(500)),
        ("mtu", json!(1300)),
    ];
    let more = [("min_tx_rate", json!(100)), ("link_state", json!(LinkState::Enable.to_string()))];
    let is_igb = card == Card::Igb;
    let unsupported = prop::bool::weighted(if is_igb { 0.1 } else { 1.0 });
    let count = all.len();
    (
        prop::sample::subsequence(all.to_vec(), 0..=count),
        prop::sample::subsequence(more.to_vec(), 0..=2),
        unsupported,
    )
        .prop_map(|(keys, more, has_more)| {
            let more = more.into_iter().filter(|_| has_more);
            keys.into_iter().chain(more).map(|(key, value)| (key.to_owned(), value)).collect()
        })
}

fn infiniband_keys(can_move_rdma: bool) -> impl Strategy<Value = Keys> {
    let guid = json!({"infinibandGUID": "02:00:00:00:00:aa:00:02"});
    let all =
        [("runtimeConfig", guid), ("link_state", json!("enable")), ("rdmaIsolation", json!(can_move_rdma))];
    prop::sample::subsequence(all.to_vec(), 0..=3)
        .prop_map(|keys| keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}
