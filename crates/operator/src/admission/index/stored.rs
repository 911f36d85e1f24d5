//! Objects read from the API server, compared with the index.

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

use super::{AdmissionIndex, ClusterIndex, is_in_progress};
use crate::replica::context::Context;

/// Stored objects that can cause a refusal, read at one moment. Cards are not included: there may be thousands, and
/// users do not change them.
#[derive(Debug, Default)]
pub(crate) struct StoredObjects {
    /// Resource version of the list of policies.
    policies_version: Option<u64>,
    policies: BTreeMap<String, PolicyVersion>,
    config: SriovOperatorConfigSpec,
    nic_ids: NicIds,
    /// Nodes that were being configured, and whether they still are.
    is_busy: BTreeMap<String, bool>,
}

/// Identity of a policy's spec: equal versions have equal specs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PolicyVersion {
    uid: Option<String>,
    generation: Option<i64>,
}

impl PolicyVersion {
    fn of(metadata: &ObjectMeta) -> Self {
        Self { uid: metadata.uid.clone(), generation: metadata.generation }
    }
}

impl StoredObjects {
    /// Reads the objects. No list sets a resource version, so none is older than this moment.
    pub(crate) async fn read(context: &Context, busy: Vec<String>) -> kube::Result<Self> {
        let policies = own_api::<SriovNetworkNodePolicy>(context);
        let state = async |node: String| {
            let state = find::<SriovNetworkNodeState>(context, &node).await?;
            let is_busy = state.and_then(|state| state.status).is_some_and(|status| is_in_progress(&status));
            kube::Result::Ok((node, is_busy))
        };
        let all = ListParams::default();
        let (policies, config, map, is_busy) = tokio::try_join!(
            policies.list_metadata(&all),
            find::<SriovOperatorConfig>(context, OPERATOR_CONFIG),
            find::<ConfigMap>(context, SUPPORTED_NIC_IDS),
            try_join_all(busy.into_iter().map(state)),
        )?;
        let named = |metadata: ObjectMeta| Some((metadata.name.clone()?, PolicyVersion::of(&metadata)));
        Ok(Self {
            policies_version: policies.metadata.resource_version.as_deref().and_then(parse_version),
            policies: policies.items.into_iter().filter_map(|policy| named(policy.metadata)).collect(),
            config: config.map(|config| config.spec).unwrap_or_default(),
            nic_ids: map.map(|map| NicIds::parse(&map.data.unwrap_or_default()).0).unwrap_or_default(),
            is_busy: is_busy.into_iter().collect(),
        })
    }
}

fn own_api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(context: &Context) -> Api<K> {
    Api::namespaced(context.client.clone(), &context.config.namespace)
}

/// Returns the object with this name. It is listed, because the operator's role has no get.
async fn find<K>(context: &Context, name: &str) -> kube::Result<Option<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(own_api::<K>(context).list(&named).await?.items.pop())
}

impl AdmissionIndex {
    /// Waits until the index has the `stored` objects. Returns `None` if the watches have ended. An incomplete index is
    /// not waited for, because it causes no refusal.
    pub(crate) async fn wait_for(&self, stored: &StoredObjects) -> Option<()> {
        let mut changes = self.changes();
        let is_current = |cluster: Option<&ClusterIndex>| cluster.is_none_or(|cluster| cluster.has(stored));
        while !self.read(is_current) {
            changes.changed().await.ok()?;
        }
        Some(())
    }
}

impl ClusterIndex {
    /// Returns whether the index has the `stored` objects.
    fn has(&self, stored: &StoredObjects) -> bool {
        // Watch events come in the order of the changes.
        let has_policies = stored.policies_version.is_some_and(|version| self.policies_version >= version)
            || self.policy_versions() == stored.policies;
        let is_busy = |node: &str| self.states.get(node).is_some_and(|state| state.is_in_progress);
        has_policies
            && self.config.as_ref() == Some(&stored.config)
            && self.nic_ids.as_ref() == Some(&stored.nic_ids)
            && stored.is_busy.iter().all(|(node, busy)| is_busy(node) == *busy)
    }

    /// Returns at most `max` nodes that are being configured.
    pub(crate) fn busy_nodes(&self, max: usize) -> Vec<String> {
        let busy = self.states.iter().filter(|(_, state)| state.is_in_progress);
        busy.map(|(node, _)| node.clone()).take(max).collect()
    }

    fn policy_versions(&self) -> BTreeMap<String, PolicyVersion> {
        let readable =
            self.policies.iter().map(|(name, policy)| (name.clone(), PolicyVersion::of(policy.meta())));
        // Unreadable policies count as well.
        let unreadable = self.policies.all_unreadable();
        let unreadable = unreadable.map(|(name, policy)| (name.clone(), PolicyVersion::of(&policy.metadata)));
        readable.chain(unreadable).collect()
    }
}

/// Parses a resource version. Later changes have larger ones.
pub(super) fn parse_version(version: &str) -> Option<u64> {
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

    /// Returns a list at version `at` with these policies.
    fn stored(at: u64, policies: &[(&str, &str, i64)]) -> StoredObjects {
        let version = |(name, uid, generation): &(&str, &str, i64)| {
            (
                (*name).to_owned(),
                PolicyVersion { uid: Some((*uid).to_owned()), generation: Some(*generation) },
            )
        };
        let policies = policies.iter().map(version).collect();
        StoredObjects { policies_version: Some(at), policies, ..Default::default() }
    }

    #[test]
    fn the_index_is_current_after_each_change_of_a_policy() {
        let mut cluster = empty();
        assert!(cluster.has(&stored(10, &[])));
        let created = stored(20, &[("a", "1", 1)]);
        assert!(!cluster.has(&created));
        cluster.update_policy(Event::Apply(policy("a", "1", 1, 20)));
        assert!(cluster.has(&created));
        for behind in [stored(30, &[("a", "1", 2)]), stored(30, &[("a", "2", 1)]), stored(30, &[])] {
            assert!(!cluster.has(&behind), "{behind:?}");
        }
        // Only the status changed, which rules do not use.
        assert!(cluster.has(&stored(30, &[("a", "1", 1)])));
        cluster.update_policy(Event::Delete(policy("a", "1", 1, 31)));
        assert!(cluster.has(&stored(31, &[])));
    }

    #[test]
    fn later_changes_are_not_waited_for() {
        let mut cluster = empty();
        cluster.update_policy(Event::Apply(policy("a", "1", 1, 20)));
        let read = stored(25, &[("a", "1", 1), ("b", "2", 1)]);
        assert!(!cluster.has(&read));
        cluster.update_policy(Event::Apply(policy("b", "2", 1, 25)));
        cluster.update_policy(Event::Delete(policy("b", "2", 1, 26)));
        assert!(cluster.has(&read));
    }

    #[test]
    fn a_new_list_shows_deletions_only_at_its_end() {
        let mut cluster = empty();
        cluster.update_policy(Event::Apply(policy("a", "1", 1, 20)));
        let read = stored(30, &[("b", "2", 1)]);
        cluster.update_policy(Event::Init);
        cluster.update_policy(Event::InitApply(policy("b", "2", 1, 30)));
        assert!(!cluster.has(&read));
        cluster.update_policy(Event::InitDone);
        assert!(cluster.has(&read));
    }

    #[test]
    fn an_unreadable_policy_counts_as_well() {
        let mut cluster = empty();
        let mut odd = policy("a", "1", 1, 20);
        let metadata = odd.0.as_ref().unwrap().metadata.clone();
        odd.0 =
            Err(Box::new(vfleet_cluster::guarded::UnreadableObject { metadata, error: "odd".to_owned() }));
        cluster.update_policy(Event::InitApply(odd));
        assert!(cluster.has(&stored(30, &[("a", "1", 1)])));
    }

    #[test]
    fn the_config_and_the_card_ids_count() {
        let mut cluster = empty();
        let gate = json!({ "featureGates": { "manageSoftwareBridges": true } });
        let mut read = stored(10, &[]);
        read.config = serde_json::from_value(gate).unwrap();
        assert!(!cluster.has(&read));
        cluster.update_config(&config(read.config.clone()));
        assert!(cluster.has(&read));
        read.nic_ids = NicIds::parse(&[("a".to_owned(), "8086 158b 154c".to_owned())].into()).0;
        assert!(!cluster.has(&read));
        cluster.update_nic_ids(Some(read.nic_ids.clone()));
        assert!(cluster.has(&read));
        read.is_busy = [("n1".to_owned(), false)].into();
        assert!(cluster.has(&read));
        read.is_busy = [("n1".to_owned(), true)].into();
        assert!(!cluster.has(&read));
    }

    #[tokio::test]
    async fn waiting_requests_are_notified() {
        let index = Arc::new(AdmissionIndex::default());
        let read = stored(20, &[("a", "1", 1)]);
        assert_eq!(index.wait_for(&read).await, Some(()), "an incomplete index is not waited for");
        *index.cluster_mut() = empty();
        let waiting = tokio::spawn({
            let index = Arc::clone(&index);
            async move { index.wait_for(&read).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        index.cluster_mut().update_policy(Event::Apply(policy("a", "1", 1, 20)));
        assert_eq!(waiting.await.unwrap(), Some(()));
    }
}
