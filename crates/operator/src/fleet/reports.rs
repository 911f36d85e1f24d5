//! Status of policies and pools.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::api::Patch;
use kube::core::{PartialObjectMeta, PartialObjectMetaExt};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use vfleet_api::conditions::ConditionUpdate;
use vfleet_api::keys::{GO_POOL_FINALIZER, IGNORED_POLICY};
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::UnreadableObject;
use vfleet_cluster::status::StatusSubject;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::admission::{self, Installation, valid_condition};
use vfleet_plan::offload::{offload_condition, requested_offload_pool};
use vfleet_plan::{
    PolicyNodeStatus, ignored_policy_conditions, policy_conditions, pool_conditions,
    unreadable_policy_conditions,
};

use crate::fleet::index::tally::NodeTally;
use crate::fleet::index::{FleetIndex, PoolNodeStatus};
use crate::openshift::offload::OffloadStatus;
use crate::replica::context::Context;

/// Object whose status is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ReportTarget {
    Policy(String),
    Pool(String),
}

impl fmt::Display for ReportTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(name) => write!(f, "policy {name}"),
            Self::Pool(name) => write!(f, "pool {name}"),
        }
    }
}

/// Writer of the status of policies and pools.
pub(crate) struct StatusReporter {
    context: Context,
    policies: Api<SriovNetworkNodePolicy>,
    pools: Api<SriovNetworkPoolConfig>,
    /// Status of each node for each policy that selects it.
    pub(crate) policy_tally: NodeTally<PolicyNodeStatus>,
    /// Status of each node in its pool.
    pub(crate) pool_tally: NodeTally<PoolNodeStatus>,
    /// Status of Open vSwitch hardware offload.
    pub(crate) offload: OffloadStatus,
    /// Result of the admission rules for each policy.
    checked: HashMap<String, CheckedPolicy>,
    /// [`FleetIndex::rules_revision`] of `checked`.
    checked_revision: Option<u64>,
    /// Unreadable policies that were reported. Their status cannot be read either, so that it is remembered here.
    reported_unreadable: Arc<Mutex<HashMap<String, UnreadableObject>>>,
}

/// Result of the admission rules for a version of a policy.
#[derive(Debug, PartialEq)]
struct CheckedPolicy {
    generation: Option<i64>,
    condition: ConditionUpdate,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The content is valid even if a report panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type WriteFuture = futures::future::BoxFuture<'static, Result<(), WriteError>>;

impl StatusReporter {
    pub(crate) fn new(context: &Context) -> Self {
        let (client, namespace) = (&context.client, context.config.namespace.as_str());
        Self {
            policies: Api::namespaced(client.clone(), namespace),
            pools: Api::namespaced(client.clone(), namespace),
            context: context.clone(),
            policy_tally: NodeTally::default(),
            pool_tally: NodeTally::default(),
            offload: OffloadStatus::default(),
            checked: HashMap::new(),
            checked_revision: None,
            reported_unreadable: Arc::default(),
        }
    }

    /// Prepares the write of a status; `None` if nothing has to be written.
    pub(crate) fn prepare(&mut self, target: &ReportTarget, fleet: &FleetIndex) -> Option<WriteFuture> {
        match target {
            ReportTarget::Policy(name) => match fleet.find_unreadable_policy(name) {
                Some(unreadable) => self.prepare_unreadable_policy(name, unreadable),
                None => self.prepare_policy(name, fleet),
            },
            ReportTarget::Pool(name) => self.prepare_pool(name, fleet),
        }
    }

    fn prepare_policy(&mut self, name: &str, fleet: &FleetIndex) -> Option<WriteFuture> {
        lock(&self.reported_unreadable).remove(name);
        let policy = fleet.find_policy(name)?.clone();
        // A policy that is not checked yet is reported after the check, in one write.
        let checked = self.checked.get(name);
        let valid =
            checked.filter(|checked| checked.generation == policy.metadata.generation)?.condition.clone();
        let count = fleet.count_policy_nodes(name, self.policy_tally.get(name));
        let progress =
            if name == IGNORED_POLICY { ignored_policy_conditions() } else { policy_conditions(&count) };
        let conditions: Vec<_> = progress.into_iter().chain([valid]).collect();
        let new = count.status();
        let old = policy.status.clone().unwrap_or_default();
        let rest_is_same =
            vfleet_api::node_policy::SriovNetworkNodePolicyStatus { conditions: None, ..old.clone() } == new;
        let (context, api) = (self.context.clone(), self.policies.clone());
        Some(Box::pin(async move {
            let current = old.conditions.unwrap_or_default();
            let subject = StatusSubject { api: &api, object: &policy, conditions: &current, rest_is_same };
            context.report(&subject, &conditions, json!(new)).await
        }))
    }

    /// Returns whether the admission rules may have another result for policies than at the last check.
    pub(crate) fn needs_check(&self, fleet: &FleetIndex) -> bool {
        self.checked_revision != Some(fleet.rules_revision())
    }

    /// Checks all policies by the admission rules. Returns those whose result changed.
    pub(crate) fn check_policies(&mut self, fleet: &FleetIndex) -> BTreeSet<String> {
        let findings = fleet.check_policies(&self.installation());
        let checked: HashMap<_, _> = findings
            .into_iter()
            .map(|(policy, findings)| {
                let checked = CheckedPolicy {
                    generation: policy.metadata.generation,
                    condition: valid_condition(&findings),
                };
                (policy.name_any(), checked)
            })
            .collect();
        let is_changed =
            |(name, checked): &(&String, &CheckedPolicy)| self.checked.get(*name) != Some(*checked);
        let changed = checked.iter().filter(is_changed).map(|(name, _)| name.clone()).collect();
        (self.checked, self.checked_revision) = (checked, Some(fleet.rules_revision()));
        changed
    }

    fn installation(&self) -> Installation<'_> {
        let config = &self.context.config;
        Installation { namespace: &config.namespace, dev_mode: config.deploy.dev_mode }
    }

    fn prepare_unreadable_policy(
        &mut self,
        name: &str,
        unreadable: &UnreadableObject,
    ) -> Option<WriteFuture> {
        let generation = |unreadable: &UnreadableObject| unreadable.metadata.generation;
        let reported = lock(&self.reported_unreadable).get(name).map(generation);
        if reported == Some(generation(unreadable)) {
            return None;
        }
        let context = self.context.clone();
        let api: Api<PartialObjectMeta<SriovNetworkNodePolicy>> =
            Api::namespaced(context.client.clone(), &context.config.namespace);
        let progress = unreadable_policy_conditions(&unreadable.error);
        let valid = valid_condition(&admission::unreadable_finding(&unreadable.error));
        let conditions: Vec<_> = progress.into_iter().chain([valid]).collect();
        let object = unreadable.metadata.clone().into_response_partial();
        let (reported, name, unreadable) =
            (Arc::clone(&self.reported_unreadable), name.to_owned(), unreadable.clone());
        Some(Box::pin(async move {
            let subject = StatusSubject { api: &api, object: &object, conditions: &[], rest_is_same: false };
            context.report(&subject, &conditions, Value::Object(serde_json::Map::new())).await?;
            lock(&reported).insert(name, unreadable);
            Ok(())
        }))
    }

    /// Removes the finalizer that the Go operator adds to pools.
    fn remove_go_finalizer(&self, pool: &SriovNetworkPoolConfig) -> Option<WriteFuture> {
        let others: Vec<_> =
            pool.finalizers().iter().filter(|name| *name != GO_POOL_FINALIZER).cloned().collect();
        if others.len() == pool.finalizers().len() {
            return None;
        }
        let (writer, api) = (Writer::new(self.context.leadership.clone()), self.pools.clone());
        let (name, version) = (pool.name_any(), pool.resource_version());
        Some(Box::pin(async move {
            let patch = json!({ "metadata": { "finalizers": others, "resourceVersion": version } });
            match writer.patch(&api, &name, &Patch::Merge(patch)).await {
                Err(error) if error.is_not_found() => Ok(()),
                result => result.map(drop),
            }
        }))
    }

    fn offload_condition(&self, pool: &SriovNetworkPoolConfig) -> Option<ConditionUpdate> {
        let mcp = requested_offload_pool(&pool.spec)?;
        Some(offload_condition(mcp, self.offload.state_of(mcp)?))
    }

    fn prepare_pool(&self, name: &str, fleet: &FleetIndex) -> Option<WriteFuture> {
        let Some(pool) = fleet.find_pool(name).cloned() else {
            self.context.metrics.remove_pool(name);
            return None;
        };
        if pool.metadata.deletion_timestamp.is_some() {
            return self.remove_go_finalizer(&pool);
        }
        let summary = fleet.summarize_pool(name, &pool, self.pool_tally.get(name));
        let mut conditions = pool_conditions(&summary);
        conditions.extend(self.offload_condition(&pool));
        conditions.push(valid_condition(&fleet.check_pool_config(name, &pool, &self.installation())));
        let nodes = summary.nodes;
        self.context.metrics.set_pool_nodes(name, &nodes);
        let old = pool.status.clone().unwrap_or_default();
        let rest_is_same = old.nodes.as_ref() == Some(&nodes);
        let (context, api) = (self.context.clone(), self.pools.clone());
        Some(Box::pin(async move {
            let current = old.conditions.unwrap_or_default();
            let subject = StatusSubject { api: &api, object: &pool, conditions: &current, rest_is_same };
            context.report(&subject, &conditions, json!({ "nodes": nodes })).await
        }))
    }
}
