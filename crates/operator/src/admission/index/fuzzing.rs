//! A cluster made of objects in JSON, for `tests/fuzz/main.rs`.

use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use vfleet_api::SriovOperatorConfig;
use vfleet_cluster::guarded::Guarded;
use vfleet_plan::NicIds;

use super::Cluster;
use crate::components::settings::Seen;

#[derive(Deserialize)]
struct OnlyKind {
    kind: String,
}

/// Returns the cluster that has these objects, as watches would tell of them.
pub(in super::super) fn cluster(objects: &[u8]) -> Result<Cluster, serde_json::Error> {
    let objects: Vec<Box<RawValue>> = serde_json::from_slice(objects)?;
    let mut cluster = Cluster::default();
    cluster.see_nic_ids(Some(NicIds::default()));
    cluster.see_config(&Seen::Missing);
    list(&objects, "Node", |event| cluster.see_node(event))?;
    list(&objects, "SriovNetworkNodeState", |event| cluster.see_state(event))?;
    list(&objects, "SriovNetworkNodePolicy", |event| cluster.see_policy(event))?;
    list(&objects, "SriovNetworkPoolConfig", |event| cluster.see_pool(event))?;
    for Guarded::<SriovOperatorConfig>(config) in of_kind(&objects, "SriovOperatorConfig")? {
        if let Ok(config) = config {
            cluster.see_config(&Seen::Config(Box::new(config)));
        }
    }
    Ok(cluster)
}

fn list<K: DeserializeOwned>(
    objects: &[Box<RawValue>],
    kind: &str,
    mut see: impl FnMut(Event<K>),
) -> Result<(), serde_json::Error> {
    see(Event::Init);
    of_kind(objects, kind)?.into_iter().for_each(|object| see(Event::InitApply(object)));
    see(Event::InitDone);
    Ok(())
}

fn of_kind<K: DeserializeOwned>(objects: &[Box<RawValue>], kind: &str) -> Result<Vec<K>, serde_json::Error> {
    let texts = objects.iter().map(|object| object.get());
    let is_it = |text: &&str| serde_json::from_str::<OnlyKind>(text).is_ok_and(|found| found.kind == kind);
    texts.filter(is_it).map(serde_json::from_str).collect()
}
