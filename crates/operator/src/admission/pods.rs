//! Requests about pods that name networks: looks up the networks and adds their resources.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use vfleet_api::network::NetworkAttachmentDefinition;
use vfleet_plan::admission::{
    Findings, NadAnnotations, NamedNetwork, NetworkRef, inject_resources, read_pod_networks,
};

use super::features::EnabledFeatures;
use super::handler::allow;
use super::index::{AdmissionIndex, nad_facts};
use super::review::{AdmissionResponse, ReviewRequest};
use crate::components::config_watch::{OperatorConfigReceiver, OperatorConfigState};

/// Time for a lookup. The API server waits three seconds for a response about a pod.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of lookups for one pod. Each is a request to the API server.
const MAX_LOOKUPS: usize = 16;

/// Number of parallel lookups for all pods: every client that reaches the webhook server can name networks that do not
/// exist, and must not overload the API server.
const MAX_PARALLEL_LOOKUPS: usize = 32;

/// Lookup results of the networks that a pod names.
type NetworkLookups = BTreeMap<NetworkRef, Result<NadAnnotations, LookupError>>;

/// Error of a lookup.
#[derive(Debug, Error)]
enum LookupError {
    #[error("NetworkAttachmentDefinition {0} does not exist: create the network first")]
    NotFound(NetworkRef),
    #[error("the cluster has no CRD NetworkAttachmentDefinition: no resource is requested for network {0}")]
    NoCrd(NetworkRef),
    #[error("lookup of network {0} timed out: no resource is requested for it")]
    TimedOut(NetworkRef),
    #[error("the pod names too many new networks: no resource is requested for network {0}")]
    TooMany(NetworkRef),
    #[error("lookup of network {network} failed ({source}): no resource is requested for it")]
    Failed { network: NetworkRef, source: kube::Error },
}

/// Handler of requests about pods.
pub(super) struct PodInjector {
    client: Client,
    index: Arc<AdmissionIndex>,
    settings: OperatorConfigReceiver,
    lookups: Semaphore,
}

impl PodInjector {
    pub(super) fn new(client: Client, index: Arc<AdmissionIndex>, settings: OperatorConfigReceiver) -> Self {
        Self { client, index, settings, lookups: Semaphore::new(MAX_PARALLEL_LOOKUPS) }
    }

    /// Handles a request. A pod is refused only if a network does not exist: resource requests of a pod cannot be
    /// changed later, and its controller retries.
    pub(super) async fn handle(&self, request: ReviewRequest<'_>) -> AdmissionResponse {
        if self.is_disabled() {
            return allow(Vec::new(), Vec::new());
        }
        let pod = request.object.and_then(|object| serde_json::from_str::<Value>(object.get()).ok());
        // The API server refuses invalid pods itself.
        let Some(pod) = pod else { return allow(Vec::new(), Vec::new()) };
        let mut findings = Findings::default();
        let networks = match read_pod_networks(&pod, request.namespace) {
            Ok(networks) => networks,
            Err(error) => {
                warn(&mut findings, error.to_string());
                return allow(findings.warnings(), Vec::new());
            }
        };
        let lookups = self.look_up(&networks).await;
        check_lookups(&networks, &lookups, &mut findings);
        if findings.error_message().is_some() {
            return AdmissionResponse::Deny { code: 404, reason: "NotFound", findings };
        }
        let with_nad = |named: NamedNetwork| {
            let nad = lookups.get(&named.network)?.as_ref().ok()?.clone();
            Some((named, nad))
        };
        let nads: Vec<_> = networks.into_iter().filter_map(with_nad).collect();
        let injection = inject_resources(&pod, &nads);
        for warning in injection.warnings {
            warn(&mut findings, warning);
        }
        allow(findings.warnings(), injection.patch)
    }

    /// Returns whether the injector is disabled. Then the API server sends no requests, but other clients may. An
    /// unknown config counts as enabled.
    fn is_disabled(&self) -> bool {
        let config = self.settings.borrow();
        *config != OperatorConfigState::Unknown && !EnabledFeatures::of(&config).injector
    }

    /// Finds each network in the index, or else at the API server: the NAD, or even its CRD, may be new.
    async fn look_up(&self, networks: &[NamedNetwork]) -> NetworkLookups {
        let mut lookups = NetworkLookups::new();
        let mut unknown = Vec::new();
        {
            let nads = self.index.nads();
            for NamedNetwork { network, .. } in networks {
                match nads.find(network) {
                    Some(nad) => drop(lookups.insert(network.clone(), Ok(nad))),
                    None => unknown.push(network),
                }
            }
        }
        unknown.sort_unstable();
        unknown.dedup();
        let (read, too_many) = unknown.split_at(unknown.len().min(MAX_LOOKUPS));
        lookups.extend(
            too_many
                .iter()
                .map(|network| ((*network).clone(), Err(LookupError::TooMany((*network).clone())))),
        );
        let mut results: FuturesUnordered<_> = read.iter().map(|network| self.read(network)).collect();
        while let Some((network, result)) = results.next().await {
            lookups.insert(network.clone(), result);
        }
        lookups
    }

    async fn read<'a>(
        &self,
        network: &'a NetworkRef,
    ) -> (&'a NetworkRef, Result<NadAnnotations, LookupError>) {
        let api: Api<PartialObjectMeta<NetworkAttachmentDefinition>> =
            Api::namespaced(self.client.clone(), &network.namespace);
        let request = async {
            // The semaphore is never closed.
            let _permit = self.lookups.acquire().await;
            api.get(&network.name).await
        };
        let result = match timeout(LOOKUP_TIMEOUT, request).await {
            Ok(Ok(nad)) => Ok(nad_facts(&nad)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                // Without a name in the details the resource type itself does not exist.
                let has_name = status.details.as_ref().is_some_and(|details| details.name == network.name);
                let error = if has_name { LookupError::NotFound } else { LookupError::NoCrd };
                Err(error(network.clone()))
            }
            Ok(Err(source)) => Err(LookupError::Failed { network: network.clone(), source }),
            Err(_) => Err(LookupError::TimedOut(network.clone())),
        };
        (network, result)
    }
}

/// Adds findings about networks that were not found.
fn check_lookups(networks: &[NamedNetwork], lookups: &NetworkLookups, findings: &mut Findings) {
    for (network, error) in
        lookups.iter().filter_map(|(network, result)| Some((network, result.as_ref().err()?)))
    {
        let mut uses = networks.iter().filter(|named| named.network == *network);
        match error {
            LookupError::NotFound(_) if uses.all(|named| named.may_be_elsewhere) => {
                let warning = format!(
                    "network {network} does not exist, and if Multus finds it in its own namespace, no resource is \
                     requested: name its namespace"
                );
                warn(findings, warning);
            }
            LookupError::NotFound(_) => findings.error("I01", "NoSuchNetwork", "", error.to_string()),
            _ => warn(findings, error.to_string()),
        }
    }
}

fn warn(findings: &mut Findings, warning: String) {
    findings.warning("I02", "NotInjected", "", warning);
}

#[cfg(test)]
mod tests;
