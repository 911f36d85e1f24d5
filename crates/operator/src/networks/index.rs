//! Index of networks, NADs, namespaces and policies. It has no client, so that every decision can be unit-tested.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;
use vfleet_api::SriovNetworkNodePolicy;
use vfleet_api::conditions::{ConditionUpdate, update_conditions};
use vfleet_api::keys::NETWORK_FINALIZER;
use vfleet_api::meta::Condition;
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::store::ObjectStore;
use vfleet_plan::NamedPolicy;
use vfleet_plan::admission::{Installation, ResourceFacts, check_network, valid_condition};
use vfleet_plan::network::{
    NadFacts, NetworkDecision, NetworkEnvironment, NetworkFacts, NetworkId, NetworkKind, TargetNamespace,
    decide, last_nad_namespace, plan_nad, target_namespace,
};

use crate::networks::changes::{NadKey, NetworkChange, StoredNad, StoredNamespace, StoredNetwork};
use crate::networks::execute::NetworkWrite;
use crate::networks::versioned_store::{ObjectVersion, VersionedStore};

/// Stored networks and the objects that they depend on.
pub(super) struct NetworkIndex {
    operator_namespace: String,
    resource_prefix: String,
    networks: HashMap<NetworkKind, VersionedStore<StoredNetwork>>,
    /// Keys of the current and the previous NAD of each network.
    nad_keys: HashMap<NetworkId, Vec<NadKey>>,
    networks_by_nad: HashMap<NadKey, BTreeSet<NetworkId>>,
    nads: VersionedStore<StoredNad>,
    /// The CustomResourceDefinition of NADs is not installed.
    nads_unavailable: bool,
    namespaces: VersionedStore<StoredNamespace>,
    /// Policies, which define the resources of networks.
    policies: ObjectStore<SriovNetworkNodePolicy>,
    /// Conditions that were last written to networks outside the operator's namespace. An operator of another
    /// installation may write other conditions to the same network; each writes them once, or both would write forever.
    written: HashMap<NetworkId, WrittenConditions>,
}

/// Conditions that this operator last wrote to a network. They are not written again if another installation overwrites them.
struct WrittenConditions {
    uid: String,
    conditions: Vec<Condition>,
}

/// Actions for a network, and the state that they were decided on.
pub(super) struct NetworkPlan {
    pub(super) network: StoredNetwork,
    /// Versions of the NADs of the network, by namespace.
    pub(super) nads: HashMap<String, ObjectVersion>,
    pub(super) decision: NetworkDecision,
    /// Condition Valid; `None` if the network cannot be parsed.
    pub(super) valid: Option<ConditionUpdate>,
}

impl NetworkPlan {
    /// Returns `condition` and the condition Valid. Server-side apply would remove a condition that is not written.
    pub(super) fn with_valid(&self, condition: &ConditionUpdate) -> Vec<ConditionUpdate> {
        [condition].into_iter().chain(&self.valid).cloned().collect()
    }
}

impl NetworkIndex {
    pub(super) fn new(operator_namespace: &str, resource_prefix: &str) -> Self {
        Self {
            operator_namespace: operator_namespace.to_owned(),
            resource_prefix: resource_prefix.to_owned(),
            networks: HashMap::new(),
            nad_keys: HashMap::new(),
            networks_by_nad: HashMap::new(),
            nads: VersionedStore::default(),
            nads_unavailable: false,
            namespaces: VersionedStore::default(),
            policies: ObjectStore::default(),
            written: HashMap::new(),
        }
    }

    /// Applies a change; returns the networks that it affects.
    pub(super) fn apply(&mut self, change: NetworkChange) -> BTreeSet<NetworkId> {
        match change {
            NetworkChange::Network(kind, event) => self.apply_network(kind, *event),
            NetworkChange::Nad(event) => self.apply_nad(*event),
            NetworkChange::NadsUnavailable => self.set_nads_unavailable(),
            NetworkChange::Namespace(event) => self.apply_namespace(event),
            NetworkChange::Policy(event) => self.apply_policy(*event),
        }
    }

    fn apply_network(&mut self, kind: NetworkKind, event: Event<StoredNetwork>) -> BTreeSet<NetworkId> {
        let changed: BTreeSet<_> = self.networks.entry(kind).or_default().update(event).into_iter().collect();
        for id in &changed {
            self.index_nad_keys(id);
            if self.get(id).is_none() {
                self.written.remove(id);
            }
        }
        changed
    }

    fn apply_nad(&mut self, event: Event<StoredNad>) -> BTreeSet<NetworkId> {
        let is_available_again = self.nads_unavailable && matches!(event, Event::InitDone);
        let changed = self.nads.update(event);
        if is_available_again {
            tracing::info!("the CustomResourceDefinition of NetworkAttachmentDefinitions is installed now");
            self.nads_unavailable = false;
            return self.all_networks();
        }
        changed.iter().filter_map(|key| self.networks_by_nad.get(key)).flatten().cloned().collect()
    }

    fn set_nads_unavailable(&mut self) -> BTreeSet<NetworkId> {
        if self.nads_unavailable {
            return BTreeSet::new();
        }
        tracing::warn!(
            "the CustomResourceDefinition of NetworkAttachmentDefinitions is not installed: networks have no effect \
             until Multus or this CustomResourceDefinition is installed"
        );
        self.nads_unavailable = true;
        self.nads = VersionedStore::default();
        self.all_networks()
    }

    fn apply_namespace(&mut self, event: Event<StoredNamespace>) -> BTreeSet<NetworkId> {
        let changed: BTreeSet<_> = self.namespaces.update(event).into_iter().collect();
        if changed.is_empty() || !self.is_complete() {
            return BTreeSet::new();
        }
        let affected = self.networks_by_nad.iter().filter(|(key, _)| changed.contains(&key.namespace));
        affected.flat_map(|(_, networks)| networks).cloned().collect()
    }

    /// Applies a change of a policy. It affects the networks that use a resource of the policy, or of its old version.
    fn apply_policy(&mut self, event: Event<Guarded<SriovNetworkNodePolicy>>) -> BTreeSet<NetworkId> {
        let changed = self.policies.update(event, |mut policy| {
            policy.metadata.managed_fields = None;
            policy
        });
        let versions =
            changed.iter().flat_map(|change| change.old.iter().chain(self.policies.get(&change.name)));
        let resources: BTreeSet<_> = versions.map(|policy| policy.spec.resource_name.as_str()).collect();
        let uses_resource = |id: &&NetworkId| {
            let spec = self.get(id).and_then(|network| network.spec.as_ref().ok());
            spec.is_some_and(|spec| resources.contains(spec.resource_name()))
        };
        self.networks.values().flat_map(VersionedStore::keys).filter(uses_resource).cloned().collect()
    }

    fn all_networks(&self) -> BTreeSet<NetworkId> {
        self.networks.values().flat_map(VersionedStore::keys).cloned().collect()
    }

    /// Returns whether the first lists of all kinds are complete. Before that, nothing can be decided, because a
    /// missing NAD or namespace may still be received.
    pub(super) fn is_complete(&self) -> bool {
        self.namespaces.is_listed()
            && (self.nads_unavailable || self.nads.is_listed())
            && self.policies.is_listed()
    }

    /// Applies the result of a write.
    pub(super) fn apply_write(&mut self, write: NetworkWrite) {
        match write {
            NetworkWrite::Nad(nad) => {
                self.nads.insert(*nad);
            }
            NetworkWrite::Metadata { id, version, finalizers, last_namespace } => {
                if let Some(network) = self.find_version(&id, &version.uid) {
                    network.version = version;
                    network.finalizers = finalizers;
                    network.last_namespace = last_namespace;
                    self.index_nad_keys(&id);
                }
            }
            NetworkWrite::Conditions { id, uid, conditions } => {
                if let Some(network) = self.find_version(&id, &uid) {
                    network.conditions = Some(conditions.clone());
                    if id.namespace != self.operator_namespace {
                        self.written.insert(id, WrittenConditions { uid, conditions });
                    }
                }
            }
        }
    }

    /// Forgets deleted objects. Allowed when no result of a write is outstanding.
    pub(super) fn forget_deleted(&mut self) {
        self.networks.values_mut().for_each(VersionedStore::forget_deleted);
        self.nads.forget_deleted();
        self.namespaces.forget_deleted();
    }

    fn find_version(&mut self, id: &NetworkId, uid: &str) -> Option<&mut StoredNetwork> {
        self.networks.get_mut(&id.kind)?.get_mut(id).filter(|network| network.version.uid == uid)
    }

    fn get(&self, id: &NetworkId) -> Option<&StoredNetwork> {
        self.networks.get(&id.kind)?.get(id)
    }

    fn index_nad_keys(&mut self, id: &NetworkId) {
        for key in self.nad_keys.remove(id).unwrap_or_default() {
            if let Some(networks) = self.networks_by_nad.get_mut(&key) {
                networks.remove(id);
                if networks.is_empty() {
                    self.networks_by_nad.remove(&key);
                }
            }
        }
        let Some(network) = self.get(id) else { return };
        let mut namespaces = BTreeSet::from([self.target_namespace(network)]);
        namespaces.extend(self.last_namespace(network));
        let key = |namespace: &str| NadKey { namespace: namespace.to_owned(), name: id.name.clone() };
        let keys: Vec<_> = namespaces.into_iter().map(key).collect();
        for key in &keys {
            self.networks_by_nad.entry(key.clone()).or_default().insert(id.clone());
        }
        self.nad_keys.insert(id.clone(), keys);
    }

    fn target_namespace<'a>(&self, network: &'a StoredNetwork) -> &'a str {
        target_namespace(&network.id, network.spec.as_ref().ok(), &self.operator_namespace)
    }

    fn last_namespace<'a>(&self, network: &'a StoredNetwork) -> Option<&'a str> {
        last_nad_namespace(&network.id, network.last_namespace.as_deref(), &self.operator_namespace)
    }

    /// Returns the actions for a network; `None` if it is up to date.
    pub(super) fn decide(&self, id: &NetworkId) -> Option<NetworkPlan> {
        let network = self.get(id)?;
        let keys = self.nad_keys.get(id).map(Vec::as_slice).unwrap_or_default();
        let nads: Vec<_> = keys.iter().filter_map(|key| self.nads.get(key)).collect();
        let decision = self.decide_steps(network, &nads);
        let nads = nads.iter().map(|nad| (nad.key.namespace.clone(), nad.version.clone())).collect();
        let valid = self.check_network(network);
        let mut plan = NetworkPlan { network: network.clone(), nads, decision, valid };
        let condition = plan.decision.condition.take();
        plan.decision.condition =
            condition.filter(|condition| !self.is_written(network, &plan.with_valid(condition)));
        let is_up_to_date = plan.decision.steps.is_empty() && plan.decision.condition.is_none();
        (!is_up_to_date).then_some(plan)
    }

    /// Checks the network by the rules of admission; returns the condition Valid.
    fn check_network(&self, network: &StoredNetwork) -> Option<ConditionUpdate> {
        let spec = network.spec.as_ref().ok()?;
        let mut offered_by: Vec<_> = self
            .policies
            .iter()
            .filter(|(_, policy)| policy.spec.resource_name == spec.resource_name())
            .map(|(name, policy)| NamedPolicy { name, spec: &policy.spec })
            .collect();
        offered_by.sort_unstable_by_key(|policy| policy.name);
        // Networks do not depend on `dev_mode`.
        let installation = Installation { namespace: &self.operator_namespace, dev_mode: false };
        Some(valid_condition(&check_network(
            &network.id,
            spec,
            &installation,
            Some(&ResourceFacts { offered_by }),
        )))
    }

    fn decide_steps(&self, network: &StoredNetwork, nads: &[&StoredNad]) -> NetworkDecision {
        let desired = match &network.spec {
            Ok(spec) => plan_nad(&network.id, spec, &self.resource_prefix, &self.operator_namespace),
            Err(fault) => Err(vec![fault.clone()]),
        };
        let facts: Vec<&NadFacts> = nads.iter().map(|nad| &nad.facts).collect();
        let environment = NetworkEnvironment {
            operator_namespace: &self.operator_namespace,
            target: self.namespace_facts(self.target_namespace(network)),
            nads: (!self.nads_unavailable).then_some(&facts),
        };
        let network = NetworkFacts {
            id: &network.id,
            uid: &network.version.uid,
            deleting: network.deleting,
            has_finalizer: network.finalizers.iter().any(|finalizer| finalizer == NETWORK_FINALIZER),
            last_namespace: self.last_namespace(network),
        };
        decide(&network, &desired, &environment)
    }

    /// Returns whether the network has these conditions, or had them when they were last written. Also true if its
    /// conditions cannot be parsed, because they would be written forever.
    fn is_written(&self, network: &StoredNetwork, conditions: &[ConditionUpdate]) -> bool {
        let Some(current) = &network.conditions else { return true };
        let written = self.written.get(&network.id).filter(|written| written.uid == network.version.uid);
        let has_conditions = |current: &[Condition]| {
            update_conditions(current, conditions, network.generation, Timestamp::now()) == *current
        };
        has_conditions(current) || written.is_some_and(|written| has_conditions(&written.conditions))
    }

    fn namespace_facts(&self, name: &str) -> TargetNamespace {
        match self.namespaces.get(&name.to_owned()) {
            None => TargetNamespace::Missing,
            Some(namespace) if namespace.is_terminating => TargetNamespace::Terminating,
            Some(_) => TargetNamespace::Active,
        }
    }
}

#[cfg(test)]
mod tests;
