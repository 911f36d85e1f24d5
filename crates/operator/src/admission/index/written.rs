//! What the API server says is written, beside what is known here.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::future::try_join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use vfleet_api::keys::{OPERATOR_CONFIG, SUPPORTED_NIC_IDS};
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState, SriovOperatorConfig};
use vfleet_plan::NicIds;

use super::{Cluster, Index, is_in_progress};
use crate::replica::context::Context;

/// All that objects are refused for, as it was written at one moment or later. What agents report of cards is not here:
/// there may be thousands, and no user's write depends on having just changed it.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Where the list of policies stands among all versions of all objects.
    policies_at: Option<u64>,
    policies: BTreeMap<String, Edition>,
    config: SriovOperatorConfigSpec,
    nic_ids: NicIds,
    /// Whether nodes that were being configured still are.
    is_busy: BTreeMap<String, bool>,
}

/// What an object says is the same when this is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edition {
    uid: Option<String>,
    generation: Option<i64>,
}

impl Edition {
    fn of(metadata: &ObjectMeta) -> Self {
        Self { uid: metadata.uid.clone(), generation: metadata.generation }
    }
}

impl Written {
    /// Reads it. No list names a version to begin with, so that none is older than this moment.
    pub(crate) async fn read(context: &Context, busy: Vec<String>) -> kube::Result<Self> {
        let policies = at_home::<SriovNetworkNodePolicy>(context);
        let state = async |node: String| {
            let state = only::<SriovNetworkNodeState>(context, &node).await?;
            let is_busy = state.and_then(|state| state.status).is_some_and(|status| is_in_progress(&status));
            kube::Result::Ok((node, is_busy))
        };
        let everything = ListParams::default();
        let (policies, config, map, is_busy) = tokio::try_join!(
            policies.list_metadata(&everything),
            only::<SriovOperatorConfig>(context, OPERATOR_CONFIG),
            only::<ConfigMap>(context, SUPPORTED_NIC_IDS),
            try_join_all(busy.into_iter().map(state)),
        )?;
        let named = |metadata: ObjectMeta| Some((metadata.name.clone()?, Edition::of(&metadata)));
        Ok(Self {
            policies_at: policies.metadata.resource_version.as_deref().and_then(place),
            policies: policies.items.into_iter().filter_map(|policy| named(policy.metadata)).collect(),
            config: config.map(|config| config.spec).unwrap_or_default(),
            nic_ids: map.map(|map| NicIds::parse(&map.data.unwrap_or_default()).0).unwrap_or_default(),
            is_busy: is_busy.into_iter().collect(),
        })
    }
}

fn at_home<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(context: &Context) -> Api<K> {
    Api::namespaced(context.client.clone(), &context.config.namespace)
}

/// The object of this name. It is listed: that is what the operator may do.
async fn only<K>(context: &Context, name: &str) -> kube::Result<Option<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(at_home::<K>(context).list(&named).await?.items.pop())
}

impl Index {
    /// Waits until all that was `written` is known; `None` if nobody follows the cluster any more. An index that is not
    /// complete is not waited for: nothing is refused for what it says.
    pub(crate) async fn wait_for(&self, written: &Written) -> Option<()> {
        let mut changes = self.changes();
        let has_seen = |cluster: Option<&Cluster>| cluster.is_none_or(|cluster| cluster.has_seen(written));
        while !self.ask(has_seen) {
            changes.changed().await.ok()?;
        }
        Some(())
    }
}

impl Cluster {
    /// Whether all that was `written` is known.
    fn has_seen(&self, written: &Written) -> bool {
        // A watch tells changes in their order.
        let has_seen_policies = written.policies_at.is_some_and(|at| self.policies_seen_to >= at)
            || self.policy_editions() == written.policies;
        let is_busy = |node: &str| self.states.get(node).is_some_and(|state| state.is_in_progress);
        has_seen_policies
            && self.config.as_ref() == Some(&written.config)
            && self.nic_ids.as_ref() == Some(&written.nic_ids)
            && written.is_busy.iter().all(|(node, busy)| is_busy(node) == *busy)
    }

    /// Some nodes that are being configured.
    pub(crate) fn busy(&self, most: usize) -> Vec<String> {
        let busy = self.states.iter().filter(|(_, state)| state.is_in_progress);
        busy.map(|(node, _)| node.clone()).take(most).collect()
    }

    fn policy_editions(&self) -> BTreeMap<String, Edition> {
        let readable = self.policies.iter().map(|(name, policy)| (name.clone(), Edition::of(policy.meta())));
        // One that cannot be read as it is now counts as it was.
        let unreadable = self.policies.unreadable_ones();
        let unreadable = unreadable.map(|(name, policy)| (name.clone(), Edition::of(&policy.metadata)));
        readable.chain(unreadable).collect()
    }
}

/// Where a version stands among all versions of all objects.
pub(super) fn place(version: &str) -> Option<u64> {
    version.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::super::tests::{config, empty};
    use super::*;
    use vfleet_cluster::guarded::Guarded;

    fn policy(name: &str, uid: &str, generation: i64, version: u64) -> Guarded<SriovNetworkNodePolicy> {
        let policy: Value = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy",
            "metadata": {
                "name": name, "uid": uid, "generation": generation, "resourceVersion": version.to_string(),
            },
            "spec": { "resourceName": "r", "numVfs": 1, "nicSelector": {}, "nodeSelector": {} },
        });
        serde_json::from_value(policy).unwrap()
    }

    /// What a list at version `at` says when these policies are there.
    fn written(at: u64, policies: &[(&str, &str, i64)]) -> Written {
        let edition = |(name, uid, generation): &(&str, &str, i64)| {
            ((*name).to_owned(), Edition { uid: Some((*uid).to_owned()), generation: Some(*generation) })
        };
        let policies = policies.iter().map(edition).collect();
        Written { policies_at: Some(at), policies, ..Default::default() }
    }

    #[test]
    fn it_is_behind_until_each_change_of_a_policy_is_known() {
        let mut cluster = empty();
        assert!(cluster.has_seen(&written(10, &[])));
        let created = written(20, &[("a", "1", 1)]);
        assert!(!cluster.has_seen(&created));
        cluster.see_policy(Event::Apply(policy("a", "1", 1, 20)));
        assert!(cluster.has_seen(&created));
        for behind in [written(30, &[("a", "1", 2)]), written(30, &[("a", "2", 1)]), written(30, &[])] {
            assert!(!cluster.has_seen(&behind), "{behind:?}");
        }
        // Its status was written: that changes nothing that rules look at.
        assert!(cluster.has_seen(&written(30, &[("a", "1", 1)])));
        cluster.see_policy(Event::Delete(policy("a", "1", 1, 31)));
        assert!(cluster.has_seen(&written(31, &[])));
    }

    #[test]
    fn what_changed_after_it_was_read_is_not_waited_for() {
        let mut cluster = empty();
        cluster.see_policy(Event::Apply(policy("a", "1", 1, 20)));
        let read = written(25, &[("a", "1", 1), ("b", "2", 1)]);
        assert!(!cluster.has_seen(&read));
        cluster.see_policy(Event::Apply(policy("b", "2", 1, 25)));
        cluster.see_policy(Event::Delete(policy("b", "2", 1, 26)));
        assert!(cluster.has_seen(&read));
    }

    #[test]
    fn what_is_listed_again_does_not_say_what_is_gone_before_its_end() {
        let mut cluster = empty();
        cluster.see_policy(Event::Apply(policy("a", "1", 1, 20)));
        let read = written(30, &[("b", "2", 1)]);
        cluster.see_policy(Event::Init);
        cluster.see_policy(Event::InitApply(policy("b", "2", 1, 30)));
        assert!(!cluster.has_seen(&read));
        cluster.see_policy(Event::InitDone);
        assert!(cluster.has_seen(&read));
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_known_all_the_same() {
        let mut cluster = empty();
        let mut odd = policy("a", "1", 1, 20);
        let metadata = odd.0.as_ref().unwrap().metadata.clone();
        odd.0 = Err(Box::new(vfleet_cluster::guarded::Unreadable { metadata, error: "odd".to_owned() }));
        cluster.see_policy(Event::InitApply(odd));
        assert!(cluster.has_seen(&written(30, &[("a", "1", 1)])));
    }

    #[test]
    fn the_config_and_the_kinds_of_cards_count() {
        let mut cluster = empty();
        let gate = json!({ "featureGates": { "manageSoftwareBridges": true } });
        let mut read = written(10, &[]);
        read.config = serde_json::from_value(gate).unwrap();
        assert!(!cluster.has_seen(&read));
        cluster.see_config(&config(read.config.clone()));
        assert!(cluster.has_seen(&read));
        read.nic_ids = NicIds::parse(&[("a".to_owned(), "8086 158b 154c".to_owned())].into()).0;
        assert!(!cluster.has_seen(&read));
        cluster.see_nic_ids(Some(read.nic_ids.clone()));
        assert!(cluster.has_seen(&read));
        read.is_busy = [("n1".to_owned(), false)].into();
        assert!(cluster.has_seen(&read));
        read.is_busy = [("n1".to_owned(), true)].into();
        assert!(!cluster.has_seen(&read));
    }

    #[tokio::test]
    async fn who_waits_is_told() {
        let index = Arc::new(Index::default());
        let read = written(20, &[("a", "1", 1)]);
        assert_eq!(index.wait_for(&read).await, Some(()), "what is not complete is not waited for");
        *index.change_cluster() = empty();
        let waits = tokio::spawn({
            let index = Arc::clone(&index);
            async move { index.wait_for(&read).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        index.change_cluster().see_policy(Event::Apply(policy("a", "1", 1, 20)));
        assert_eq!(waits.await.unwrap(), Some(()));
    }
}
