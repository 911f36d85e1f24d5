//! What is asked of the API server for pods: not too much at once, however many nodes are drained.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, ObjectMeta};
use kube::core::Status;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use vfleet_api::meta::LabelSelector;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::drain::{Budget, budgets_of, is_let_go};

use super::obstacle::Refusal;
use super::pod::PodId;
use crate::replica::context::Context;
use crate::replica::metrics::Metrics;

/// Requests at once, for all nodes together. Nobody has one of these places while it waits for something else.
const AT_ONCE: usize = 64;
/// How the API server says that it was a budget.
const BUDGET_CAUSE: &str = "DisruptionBudget";

/// What came of an eviction.
pub(super) enum Answer {
    /// The pod was told to end, or is gone.
    Accepted,
    /// It is not the pod that we have seen: look again.
    Changed,
    /// It was not told to end.
    Refused(Refusal),
}

/// The way to the API server.
pub(super) struct Requests {
    client: Client,
    writer: Writer,
    metrics: Arc<Metrics>,
    places: Semaphore,
    /// What stands before the names of our resources.
    pub(super) resource_prefix: String,
}

impl Requests {
    pub(super) fn new(context: &Context) -> Self {
        Self {
            client: context.client.clone(),
            writer: Writer::new(context.leadership.clone()),
            metrics: Arc::clone(&context.metrics),
            places: Semaphore::new(AT_ONCE),
            resource_prefix: context.config.resource_prefix.clone(),
        }
    }

    /// The pods on the node, as they are now.
    pub(super) async fn pods_on(&self, node: &str) -> Result<Vec<Pod>, WriteError> {
        let _place = self.places.acquire().await;
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        self.writer.list_at_once(&Api::all(self.client.clone()), &on_node).await
    }

    /// Evicts the pod. `known` is why it was refused last time: what is known of it is not looked up again.
    pub(super) async fn evict(&self, pod: &PodId, known: Option<Refusal>) -> Answer {
        let answer = {
            let _place = self.places.acquire().await;
            self.writer.evict(&self.pods_beside(pod), &pod.name, &pod.uid).await
        };
        let error = match answer {
            Ok(()) => {
                self.metrics.evicted("evicted");
                return Answer::Accepted;
            }
            Err(error) if error.is_not_found() || error.is_conflict() => return Answer::Changed,
            Err(error) => error,
        };
        let refusal = refusal(&error);
        match known {
            Some(known) if known.words == refusal.words => {
                self.metrics.evicted(if known.is_by_budget { "refused" } else { "failed" });
                Answer::Refused(known)
            }
            _ => self.look_up(pod, refusal).await,
        }
    }

    /// Finds out what a new refusal is about.
    async fn look_up(&self, pod: &PodId, refusal: Refusal) -> Answer {
        let listed = self.budgets_beside(pod).await;
        let budgets: Vec<_> = listed.iter().map(|budget| as_budget(budget, pod)).collect();
        // The API server was cut off before it told the pod, perhaps because one of us crashed: that much is left to do.
        if refusal.is_by_budget && is_let_go(&budgets, &pod.labels, pod.made) {
            match self.delete(pod).await {
                Ok(()) => {
                    tracing::info!(%pod, "its budget had let it go, but it was not told; it is now");
                    self.metrics.evicted("evicted");
                    return Answer::Accepted;
                }
                Err(error) => tracing::warn!(%pod, %error, "its budget has let it go, but it cannot be told"),
            }
        }
        self.metrics.evicted(if refusal.is_by_budget { "refused" } else { "failed" });
        let names = budgets_of(budgets, &pod.labels);
        let budgets = names.into_iter().map(|name| format!("{}/{name}", pod.namespace)).collect();
        Answer::Refused(Refusal { budgets, ..refusal })
    }

    /// Deletes the pod. That it is gone already is fine.
    pub(super) async fn delete(&self, pod: &PodId) -> Result<(), WriteError> {
        let _place = self.places.acquire().await;
        let metadata =
            ObjectMeta { name: Some(pod.name.clone()), uid: Some(pod.uid.clone()), ..Default::default() };
        let this_very_one = Pod { metadata, ..Default::default() };
        match self.writer.delete(&self.pods_beside(pod), &this_very_one).await {
            Err(error) if error.is_conflict() => Ok(()),
            result => result,
        }
    }

    /// The budgets of its namespace. Without them the API server's words must do.
    async fn budgets_beside(&self, pod: &PodId) -> Vec<PodDisruptionBudget> {
        let _place = self.places.acquire().await;
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &pod.namespace);
        let listed = self.writer.list(&api, &ListParams::default()).await;
        listed.unwrap_or_else(|error| {
            tracing::warn!(%pod, %error, "the budgets that the pod counts for cannot be looked up");
            Vec::new()
        })
    }

    fn pods_beside(&self, pod: &PodId) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }
}

/// What counts of it for the pod.
fn as_budget<'a>(budget: &'a PodDisruptionBudget, pod: &PodId) -> Budget<'a> {
    let disrupted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    Budget {
        name: budget.metadata.name.as_deref().unwrap_or_default(),
        selector: budget.spec.as_ref().and_then(|spec| spec.selector.clone()).map(LabelSelector::from),
        let_go: disrupted.and_then(|pods| pods.get(&pod.name)).map(|time| time.0.into()),
    }
}

/// What the API server said, without the budgets that it means.
fn refusal(error: &WriteError) -> Refusal {
    match error {
        WriteError::Api(kube::Error::Api(status)) => {
            Refusal { is_by_budget: is_by_budget(status), words: words(status), budgets: Vec::new() }
        }
        error => Refusal { is_by_budget: false, words: error.to_string(), budgets: Vec::new() },
    }
}

fn is_by_budget(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 429 && causes.into_iter().any(|cause| cause.reason == BUDGET_CAUSE)
}

/// What it says in detail, or else its message.
fn words(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let details: Vec<_> =
        causes.map(|cause| cause.message.as_str()).filter(|text| !text.is_empty()).collect();
    match (details.as_slice(), status.message.as_str()) {
        ([], "") => format!("{} ({})", status.reason, status.code),
        ([], message) => message.trim_end_matches('.').to_owned(),
        (details, _) => details.join("; ").trim_end_matches('.').to_owned(),
    }
}
