//! Cluster index built from JSON, for `tests/fuzz/main.rs`.

use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use vfleet_api::SriovOperatorConfig;
use vfleet_cluster::guarded::Guarded;
use vfleet_plan::NicIds;

use super::ClusterIndex;
use crate::components::config_watch::OperatorConfigState;

#[derive(Deserialize)]
struct OnlyKind {
    kind: String,
}

/// Returns the index of a cluster with these objects.
pub(in super::super) fn cluster(objects: &[u8]) -> Result<ClusterIndex, serde_json::Error> {
    let objects: Vec<Box<RawValue>> = serde_json::from_slice(objects)?;
    let mut cluster = ClusterIndex::default();
    cluster.update_nic_ids(Some(NicIds::default()));
    cluster.update_config(&OperatorConfigState::Missing);
    list(&objects, "Node", |event| cluster.update_node(event))?;
    list(&objects, "SriovNetworkNodeState", |event| cluster.update_state(event))?;
    list(&objects, "SriovNetworkNodePolicy", |event| cluster.update_policy(event))?;
    list(&objects, "SriovNetworkPoolConfig", |event| cluster.update_pool(event))?;
    for Guarded::<SriovOperatorConfig>(config) in of_kind(&objects, "SriovOperatorConfig")? {
        if let Ok(config) = config {
            cluster.update_config(&OperatorConfigState::Config(Box::new(config)));
        }
    }
    Ok(cluster)
}

fn list<K: DeserializeOwned>(
    objects: &[Box<RawValue>],
    kind: &str,
    mut update: impl FnMut(Event<K>),
) -> Result<(), serde_json::Error> {
    update(Event::Init);
    of_kind(objects, kind)?.into_iter().for_each(|object| update(Event::InitApply(object)));
    update(Event::InitDone);
    Ok(())
}

fn of_kind<K: DeserializeOwned>(objects: &[Box<RawValue>], kind: &str) -> Result<Vec<K>, serde_json::Error> {
    let texts = objects.iter().map(|object| object.get());
    let has_kind = |text: &&str| serde_json::from_str::<OnlyKind>(text).is_ok_and(|found| found.kind == kind);
    texts.filter(has_kind).map(serde_json::from_str).collect()
}
