//! Pods that name networks: what these networks are is looked up, and the pod is given their resources.

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
use vfleet_plan::admission::{Findings, NadSight, NamedNetwork, NetworkRef, inject, networks_of_pod};

use super::answer::admit;
use super::index::{Index, sight};
use super::review::{Answer, ReviewRequest};
use super::wanted::Wanted;
use crate::components::settings::{Seen, Settings};

/// The API server waits for an answer about a pod for three seconds.
const LOOK_UP_DEADLINE: Duration = Duration::from_secs(1);

/// A pod that names more networks that nobody has seen is not looked into: each takes a question of its own.
const MOST_LOOK_UPS: usize = 16;

/// For all pods together: whoever reaches this server can name networks that are nowhere, and must not have the API
/// server asked more than it can bear.
const MOST_LOOK_UPS_AT_ONCE: usize = 32;

/// What is known of each network that a pod names.
type Looked = BTreeMap<NetworkRef, Result<NadSight, NotFound>>;

/// Why nothing is known of a network.
#[derive(Debug, Error)]
enum NotFound {
    #[error("there is no NetworkAttachmentDefinition {0}: create the network first")]
    Nowhere(NetworkRef),
    #[error("the cluster knows no NetworkAttachmentDefinitions, so nothing is requested for network {0}")]
    NoSuchKind(NetworkRef),
    #[error("network {0} could not be looked up in time, so nothing is requested for it")]
    TooSlow(NetworkRef),
    #[error("network {0} is one of too many that are new, so nothing is requested for it")]
    TooMany(NetworkRef),
    #[error("network {network} could not be looked up ({source}), so nothing is requested for it")]
    Failed { network: NetworkRef, source: kube::Error },
}

/// Answers about pods.
pub(super) struct Pods {
    client: Client,
    index: Arc<Index>,
    settings: Settings,
    look_ups: Semaphore,
}

impl Pods {
    pub(super) fn new(client: Client, index: Arc<Index>, settings: Settings) -> Self {
        Self { client, index, settings, look_ups: Semaphore::new(MOST_LOOK_UPS_AT_ONCE) }
    }

    /// What is added to a pod. Only a network that is known not to exist keeps it from being made: what a pod asks for
    /// cannot be changed later, and whoever makes it tries again.
    pub(super) async fn answer(&self, request: ReviewRequest<'_>) -> Answer {
        if self.is_unwanted() {
            return admit(Vec::new(), Vec::new());
        }
        let pod = request.object.and_then(|object| serde_json::from_str::<Value>(object.get()).ok());
        // The API server itself refuses what is no pod.
        let Some(pod) = pod else { return admit(Vec::new(), Vec::new()) };
        let mut findings = Findings::default();
        let networks = match networks_of_pod(&pod, request.namespace) {
            Ok(networks) => networks,
            Err(bad) => {
                warn(&mut findings, bad.to_string());
                return admit(findings.warnings(), Vec::new());
            }
        };
        let looked = self.look_up(&networks).await;
        judge(&networks, &looked, &mut findings);
        if findings.refusal().is_some() {
            return Answer::Refuse { code: 404, reason: "NotFound", findings };
        }
        let known = |named: NamedNetwork| {
            let nad = looked.get(&named.network)?.as_ref().ok()?.clone();
            Some((named, nad))
        };
        let known: Vec<_> = networks.into_iter().filter_map(known).collect();
        let injection = inject(&pod, &known);
        for warning in injection.warnings {
            warn(&mut findings, warning);
        }
        admit(findings.warnings(), injection.patch)
    }

    /// The API server asks only when it is wanted; others may ask at any time. What is not known yet may be wanted.
    fn is_unwanted(&self) -> bool {
        let seen = self.settings.borrow();
        *seen != Seen::Unknown && !Wanted::of(&seen).injector
    }

    /// Each network as it is known, or else as the API server says: it, or even its kind, may have been made a moment ago.
    async fn look_up(&self, networks: &[NamedNetwork]) -> Looked {
        let mut looked = Looked::new();
        let mut unseen = Vec::new();
        {
            let nads = self.index.nads();
            for NamedNetwork { network, .. } in networks {
                match nads.find(network) {
                    Some(nad) => drop(looked.insert(network.clone(), Ok(nad))),
                    None => unseen.push(network),
                }
            }
        }
        unseen.sort_unstable();
        unseen.dedup();
        let (asked, too_many) = unseen.split_at(unseen.len().min(MOST_LOOK_UPS));
        looked.extend(
            too_many.iter().map(|network| ((*network).clone(), Err(NotFound::TooMany((*network).clone())))),
        );
        let mut answers: FuturesUnordered<_> = asked.iter().map(|network| self.ask(network)).collect();
        while let Some((network, answer)) = answers.next().await {
            looked.insert(network.clone(), answer);
        }
        looked
    }

    async fn ask<'a>(&self, network: &'a NetworkRef) -> (&'a NetworkRef, Result<NadSight, NotFound>) {
        let api: Api<PartialObjectMeta<NetworkAttachmentDefinition>> =
            Api::namespaced(self.client.clone(), &network.namespace);
        let asking = async {
            // The semaphore is never closed.
            let _turn = self.look_ups.acquire().await;
            api.get(&network.name).await
        };
        let answer = match timeout(LOOK_UP_DEADLINE, asking).await {
            Ok(Ok(nad)) => Ok(sight(&nad)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                // One that says no name says that there is nothing at all of this kind.
                let is_it = status.details.as_ref().is_some_and(|details| details.name == network.name);
                let why = if is_it { NotFound::Nowhere } else { NotFound::NoSuchKind };
                Err(why(network.clone()))
            }
            Ok(Err(source)) => Err(NotFound::Failed { network: network.clone(), source }),
            Err(_) => Err(NotFound::TooSlow(network.clone())),
        };
        (network, answer)
    }
}

/// What is said of networks that were not found.
fn judge(networks: &[NamedNetwork], looked: &Looked, findings: &mut Findings) {
    for (network, fault) in
        looked.iter().filter_map(|(network, found)| Some((network, found.as_ref().err()?)))
    {
        let mut uses = networks.iter().filter(|named| named.network == *network);
        match fault {
            NotFound::Nowhere(_) if uses.all(|named| named.may_be_elsewhere) => {
                let warning = format!(
                    "network {network} is not there; should Multus find it in a namespace of its own, nothing is \
                     requested for it: name its namespace"
                );
                warn(findings, warning);
            }
            NotFound::Nowhere(_) => findings.error("I01", "NoSuchNetwork", "", fault.to_string()),
            _ => warn(findings, fault.to_string()),
        }
    }
}

fn warn(findings: &mut Findings, warning: String) {
    findings.warning("I02", "NotAsNamed", "", warning);
}

#[cfg(test)]
mod tests;
