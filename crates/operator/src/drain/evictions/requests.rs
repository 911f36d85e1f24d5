//! Requests about pods to the API server, limited in number for all nodes together.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, ObjectMeta};
use kube::core::Status;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use vfleet_api::meta::LabelSelector;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::drain::{DisruptionBudget, is_eviction_granted, matching_budgets};

use super::pod::PodId;
use super::problems::EvictionRefusal;
use crate::replica::context::Context;
use crate::replica::metrics::Metrics;

/// Parallel requests for all nodes together. A permit is never held while waiting for anything but its request.
const REQUESTS_AT_ONCE: usize = 64;
/// Cause in the API server's answer when a budget does not allow an eviction.
const BUDGET_CAUSE: &str = "DisruptionBudget";

/// Result of an eviction request.
pub(super) enum EvictionAnswer {
    /// The pod is being deleted.
    Accepted,
    /// The pod was deleted or replaced: list again.
    Changed,
    /// The eviction was refused.
    Refused(EvictionRefusal),
}

/// Client for requests about pods.
pub(super) struct PodRequests {
    client: Client,
    writer: Writer,
    metrics: Arc<Metrics>,
    permits: Semaphore,
    /// Prefix of SR-IOV resource names.
    pub(super) resource_prefix: String,
}

impl PodRequests {
    pub(super) fn new(context: &Context) -> Self {
        Self {
            client: context.client.clone(),
            writer: Writer::new(context.leadership.clone()),
            metrics: Arc::clone(&context.metrics),
            permits: Semaphore::new(REQUESTS_AT_ONCE),
            resource_prefix: context.config.resource_prefix.clone(),
        }
    }

    /// Lists the pods on the node.
    pub(super) async fn list_pods(&self, node: &str) -> Result<Vec<Pod>, WriteError> {
        let _permit = self.permits.acquire().await;
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        self.writer.list_at_once(&Api::all(self.client.clone()), &on_node).await
    }

    /// Evicts the pod. The budgets of `last_refusal` are reused if the answer is the same.
    pub(super) async fn evict(&self, pod: &PodId, last_refusal: Option<EvictionRefusal>) -> EvictionAnswer {
        let answer = {
            let _permit = self.permits.acquire().await;
            self.writer.evict(&self.pods_of_namespace(pod), &pod.name, &pod.uid).await
        };
        let error = match answer {
            Ok(()) => {
                self.metrics.count_eviction("evicted");
                return EvictionAnswer::Accepted;
            }
            Err(error) if error.is_not_found() || error.is_conflict() => return EvictionAnswer::Changed,
            Err(error) => error,
        };
        let refusal = read_refusal(&error);
        match last_refusal {
            Some(last) if last.message == refusal.message => {
                self.metrics.count_eviction(if last.is_by_budget { "refused" } else { "failed" });
                EvictionAnswer::Refused(last)
            }
            _ => self.find_budgets(pod, refusal).await,
        }
    }

    /// Adds the budgets of the pod to a new refusal.
    async fn find_budgets(&self, pod: &PodId, refusal: EvictionRefusal) -> EvictionAnswer {
        let listed = self.list_budgets(pod).await;
        let budgets: Vec<_> = listed.iter().map(|budget| read_budget(budget, pod)).collect();
        // The API server was interrupted before it deleted the pod: delete it now.
        if refusal.is_by_budget && is_eviction_granted(&budgets, &pod.labels, pod.created) {
            match self.delete(pod).await {
                Ok(()) => {
                    tracing::debug!(%pod, "pod with an interrupted eviction deleted");
                    self.metrics.count_eviction("evicted");
                    return EvictionAnswer::Accepted;
                }
                Err(error) => {
                    tracing::warn!(%error, "pod {pod}: cannot delete the pod after an interrupted eviction");
                }
            }
        }
        self.metrics.count_eviction(if refusal.is_by_budget { "refused" } else { "failed" });
        let names = matching_budgets(budgets, &pod.labels);
        let budgets = names.into_iter().map(|name| format!("{}/{name}", pod.namespace)).collect();
        EvictionAnswer::Refused(EvictionRefusal { budgets, ..refusal })
    }

    /// Deletes the pod. Succeeds if it is gone already.
    pub(super) async fn delete(&self, pod: &PodId) -> Result<(), WriteError> {
        let _permit = self.permits.acquire().await;
        let metadata =
            ObjectMeta { name: Some(pod.name.clone()), uid: Some(pod.uid.clone()), ..Default::default() };
        let target = Pod { metadata, ..Default::default() };
        match self.writer.delete(&self.pods_of_namespace(pod), &target).await {
            Err(error) if error.is_conflict() => Ok(()),
            result => result,
        }
    }

    /// Lists the budgets in the namespace of the pod; none if the request fails.
    async fn list_budgets(&self, pod: &PodId) -> Vec<PodDisruptionBudget> {
        let _permit = self.permits.acquire().await;
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &pod.namespace);
        let listed = self.writer.list(&api, &ListParams::default()).await;
        listed.unwrap_or_else(|error| {
            tracing::warn!(%error, "pod {pod}: cannot list the PodDisruptionBudgets of its namespace");
            Vec::new()
        })
    }

    fn pods_of_namespace(&self, pod: &PodId) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }
}

/// Reads a budget for the pod.
fn read_budget<'a>(budget: &'a PodDisruptionBudget, pod: &PodId) -> DisruptionBudget<'a> {
    let disrupted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    DisruptionBudget {
        name: budget.metadata.name.as_deref().unwrap_or_default(),
        selector: budget.spec.as_ref().and_then(|spec| spec.selector.clone()).map(LabelSelector::from),
        disrupted_at: disrupted.and_then(|pods| pods.get(&pod.name)).map(|time| time.0.into()),
    }
}

/// Reads a refusal from the API server's answer, without the budgets.
fn read_refusal(error: &WriteError) -> EvictionRefusal {
    match error {
        WriteError::Api(kube::Error::Api(status)) => EvictionRefusal {
            is_by_budget: is_by_budget(status),
            message: refusal_message(status),
            budgets: Vec::new(),
        },
        error => EvictionRefusal { is_by_budget: false, message: error.to_string(), budgets: Vec::new() },
    }
}

fn is_by_budget(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 429 && causes.into_iter().any(|cause| cause.reason == BUDGET_CAUSE)
}

/// Returns the details of the answer, or its message if there are none.
fn refusal_message(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let details: Vec<_> =
        causes.map(|cause| cause.message.as_str()).filter(|text| !text.is_empty()).collect();
    match (details.as_slice(), status.message.as_str()) {
        ([], "") => format!("{} ({})", status.reason, status.code),
        ([], message) => message.trim_end_matches('.').to_owned(),
        (details, _) => details.join("; ").trim_end_matches('.').to_owned(),
    }
}
