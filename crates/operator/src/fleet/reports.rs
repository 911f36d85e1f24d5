//! What policies and pools say about themselves in their status.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::api::Patch;
use kube::core::{PartialObjectMeta, PartialObjectMetaExt};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use vfleet_api::conditions::Verdict;
use vfleet_api::keys::{GO_POOL_FINALIZER, IGNORED_POLICY};
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::Unreadable;
use vfleet_cluster::status::Subject;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::admission::{self, Installation, valid};
use vfleet_plan::offload::{offload_verdict, offload_wanted};
use vfleet_plan::{
    PolicyStanding, ignored_policy_verdicts, policy_verdicts, pool_verdicts, unreadable_policy_verdicts,
};

use crate::fleet::index::tally::Tally;
use crate::fleet::index::{Fleet, PoolStanding};
use crate::openshift::offload::Offload;
use crate::replica::context::Context;

/// Something to report on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum About {
    Policy(String),
    Pool(String),
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(name) => write!(f, "policy {name}"),
            Self::Pool(name) => write!(f, "pool {name}"),
        }
    }
}

/// Who counts, and what was said about what cannot be read.
pub(crate) struct Reports {
    context: Context,
    policies: Api<SriovNetworkNodePolicy>,
    pools: Api<SriovNetworkPoolConfig>,
    /// Where each node stands for each policy that selects it.
    pub(crate) policy_tally: Tally<PolicyStanding>,
    /// Where each node stands in its pool.
    pub(crate) pool_tally: Tally<PoolStanding>,
    /// How far Open vSwitch hardware offload is.
    pub(crate) offload: Offload,
    /// What rules say of each policy.
    judged: HashMap<String, Judged>,
    /// The state of the fleet's rules when they were asked.
    judged_at: Option<u64>,
    /// The status of such a policy cannot be read either, so that we have to remember what we wrote.
    said_unreadable: Arc<Mutex<HashMap<String, Unreadable>>>,
}

/// What rules say of a version of a policy.
#[derive(Debug, PartialEq)]
struct Judged {
    generation: Option<i64>,
    verdict: Verdict,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever a report that panicked has left there is still true.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Writing = futures::future::BoxFuture<'static, Result<(), WriteError>>;

impl Reports {
    pub(crate) fn new(context: &Context) -> Self {
        let (client, namespace) = (&context.client, context.config.namespace.as_str());
        Self {
            policies: Api::namespaced(client.clone(), namespace),
            pools: Api::namespaced(client.clone(), namespace),
            context: context.clone(),
            policy_tally: Tally::default(),
            pool_tally: Tally::default(),
            offload: Offload::default(),
            judged: HashMap::new(),
            judged_at: None,
            said_unreadable: Arc::default(),
        }
    }

    /// What is to be written; `None` when there is nothing to say.
    pub(crate) fn about(&mut self, about: &About, fleet: &Fleet) -> Option<Writing> {
        match about {
            About::Policy(name) => match fleet.find_unreadable_policy(name) {
                Some(unreadable) => self.unreadable_policy(name, unreadable),
                None => self.policy(name, fleet),
            },
            About::Pool(name) => self.pool(name, fleet),
        }
    }

    fn policy(&mut self, name: &str, fleet: &Fleet) -> Option<Writing> {
        lock(&self.said_unreadable).remove(name);
        let policy = fleet.find_policy(name)?.clone();
        // Who is not judged yet is told all at once, as soon as that is done.
        let judged = self.judged.get(name);
        let valid = judged.filter(|judged| judged.generation == policy.metadata.generation)?.verdict.clone();
        let count = fleet.count_policy(name, self.policy_tally.of(name));
        let course = if name == IGNORED_POLICY { ignored_policy_verdicts() } else { policy_verdicts(&count) };
        let verdicts: Vec<_> = course.into_iter().chain([valid]).collect();
        let new = count.status();
        let old = policy.status.clone().unwrap_or_default();
        let rest_is_same =
            vfleet_api::node_policy::SriovNetworkNodePolicyStatus { conditions: None, ..old.clone() } == new;
        let (context, api) = (self.context.clone(), self.policies.clone());
        Some(Box::pin(async move {
            let conditions = old.conditions.unwrap_or_default();
            let subject = Subject { api: &api, object: &policy, conditions: &conditions, rest_is_same };
            context.report(&subject, &verdicts, json!(new)).await
        }))
    }

    /// Whether rules may say something else of policies than when they were last asked.
    pub(crate) fn is_to_judge(&self, fleet: &Fleet) -> bool {
        self.judged_at != Some(fleet.policy_rules())
    }

    /// Asks the rules about all policies. Gives those that there is something new to say about.
    pub(crate) fn judge(&mut self, fleet: &Fleet) -> BTreeSet<String> {
        let findings = fleet.judge_policies(&self.home());
        let judged: HashMap<_, _> = findings
            .into_iter()
            .map(|(policy, findings)| {
                let judged = Judged { generation: policy.metadata.generation, verdict: valid(&findings) };
                (policy.name_any(), judged)
            })
            .collect();
        let is_news = |(name, judged): &(&String, &Judged)| self.judged.get(*name) != Some(*judged);
        let news = judged.iter().filter(is_news).map(|(name, _)| name.clone()).collect();
        (self.judged, self.judged_at) = (judged, Some(fleet.policy_rules()));
        news
    }

    fn home(&self) -> Installation<'_> {
        let config = &self.context.config;
        Installation { namespace: &config.namespace, dev_mode: config.deploy.dev_mode }
    }

    fn unreadable_policy(&mut self, name: &str, unreadable: &Unreadable) -> Option<Writing> {
        let generation = |unreadable: &Unreadable| unreadable.metadata.generation;
        let said = lock(&self.said_unreadable).get(name).map(generation);
        if said == Some(generation(unreadable)) {
            return None;
        }
        let context = self.context.clone();
        let api: Api<PartialObjectMeta<SriovNetworkNodePolicy>> =
            Api::namespaced(context.client.clone(), &context.config.namespace);
        let course = unreadable_policy_verdicts(&unreadable.error);
        let said_valid = valid(&admission::unreadable(&unreadable.error));
        let verdicts: Vec<_> = course.into_iter().chain([said_valid]).collect();
        let object = unreadable.metadata.clone().into_response_partial();
        let (said, name, unreadable) =
            (Arc::clone(&self.said_unreadable), name.to_owned(), unreadable.clone());
        Some(Box::pin(async move {
            let subject = Subject { api: &api, object: &object, conditions: &[], rest_is_same: false };
            context.report(&subject, &verdicts, Value::Object(serde_json::Map::new())).await?;
            lock(&said).insert(name, unreadable);
            Ok(())
        }))
    }

    /// The Go operator puts a finalizer on pools, which nobody else would take off.
    fn let_go(&self, pool: &SriovNetworkPoolConfig) -> Option<Writing> {
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

    fn offload_verdict(&self, pool: &SriovNetworkPoolConfig) -> Option<Verdict> {
        let mcp = offload_wanted(&pool.spec)?;
        Some(offload_verdict(mcp, self.offload.standing(mcp)?))
    }

    fn pool(&self, name: &str, fleet: &Fleet) -> Option<Writing> {
        let Some(pool) = fleet.find_pool(name).cloned() else {
            self.context.metrics.forget_pool(name);
            return None;
        };
        if pool.metadata.deletion_timestamp.is_some() {
            return self.let_go(&pool);
        }
        let sight = fleet.see_pool(name, &pool, self.pool_tally.of(name));
        let mut verdicts = pool_verdicts(&sight);
        verdicts.extend(self.offload_verdict(&pool));
        verdicts.push(valid(&fleet.judge_pool(name, &pool, &self.home())));
        let nodes = sight.nodes;
        self.context.metrics.pool_nodes(name, &nodes);
        let old = pool.status.clone().unwrap_or_default();
        let rest_is_same = old.nodes.as_ref() == Some(&nodes);
        let (context, api) = (self.context.clone(), self.pools.clone());
        Some(Box::pin(async move {
            let conditions = old.conditions.unwrap_or_default();
            let subject = Subject { api: &api, object: &pool, conditions: &conditions, rest_is_same };
            context.report(&subject, &verdicts, json!({ "nodes": nodes })).await
        }))
    }
}
