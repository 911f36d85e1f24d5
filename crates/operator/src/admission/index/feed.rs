//! Watches that feed the index, in every replica.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch as channel;
use tokio::time::{Instant, sleep_until};
use vfleet_api::network::NetworkAttachmentDefinition;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::watch;
use vfleet_plan::NicIds;

use super::nads::NadIndex;
use super::{AdmissionIndex, ClusterIndex};
use crate::OperatorError;
use crate::admission::READ_TIMEOUT;
use crate::admission::features::EnabledFeatures;
use crate::components::config_watch::{OperatorConfigReceiver, OperatorConfigState};
use crate::components::go_device_plugin::watch_nic_ids;
use crate::replica::context::Context;

/// Change of an object in the cluster index.
enum ClusterChange {
    Config(OperatorConfigState),
    NicIds(Option<NicIds>),
    Policy(Box<Event<Guarded<SriovNetworkNodePolicy>>>),
    Pool(Event<Guarded<SriovNetworkPoolConfig>>),
    State(Event<Guarded<SriovNetworkNodeState>>),
    Node(Event<PartialObjectMeta<Node>>),
}

/// Features that can be served: all objects have been listed, or the time limit has passed. Most rules need no cluster
/// facts, so a response without them is better than none. Disabled features are never ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// Requests about objects of this operator.
    pub(crate) webhook: bool,
    /// Requests about pods.
    pub(crate) injector: bool,
}

impl Readiness {
    pub(crate) const ALL: Self = Self { webhook: true, injector: true };

    /// Returns whether all enabled features can be served.
    pub(crate) fn covers(self, enabled: EnabledFeatures) -> bool {
        (self.webhook || !enabled.webhook) && (self.injector || !enabled.injector)
    }
}

/// Keeps the index up to date for the enabled features, and publishes which are `ready`.
pub(crate) async fn follow(
    context: Context,
    settings: OperatorConfigReceiver,
    index: Arc<AdmissionIndex>,
    ready: channel::Sender<Readiness>,
) -> Result<(), OperatorError> {
    let feed = IndexFeed { context, settings, index, ready, is_overdue: Mutex::default() };
    let cluster = feed.run_while_enabled(
        |enabled| enabled.webhook,
        |ready| &mut ready.webhook,
        || feed.follow_cluster().boxed(),
        || *feed.index.cluster_mut() = ClusterIndex::default(),
    );
    let nads = feed.run_while_enabled(
        |enabled| enabled.injector,
        |ready| &mut ready.injector,
        || feed.follow_nads().boxed(),
        || *feed.index.nads_mut() = NadIndex::default(),
    );
    tokio::try_join!(cluster, nads).map(drop)
}

/// Watches that feed the admission index.
struct IndexFeed {
    context: Context,
    settings: OperatorConfigReceiver,
    index: Arc<AdmissionIndex>,
    ready: channel::Sender<Readiness>,
    /// Features whose time limit for reading has passed.
    is_overdue: Mutex<Readiness>,
}

impl IndexFeed {
    /// Runs `work` while a feature is enabled, and clears its index when the feature is disabled.
    async fn run_while_enabled<'a>(
        &self,
        is_enabled: fn(EnabledFeatures) -> bool,
        part: fn(&mut Readiness) -> &mut bool,
        work: impl Fn() -> BoxFuture<'a, Result<(), OperatorError>>,
        clear: impl Fn(),
    ) -> Result<(), OperatorError> {
        let mut settings = self.settings.clone();
        let ended = |_| OperatorError::WatchEnded;
        loop {
            settings.wait_for(|config| is_enabled(EnabledFeatures::of(config))).await.map_err(ended)?;
            tokio::select! {
                ended = work() => return ended,
                never = self.wait_for_time_limit(part) => match never {},
                disabled = settings.wait_for(|config| !is_enabled(EnabledFeatures::of(config))) => drop(disabled.map_err(ended)?),
            }
            clear();
            self.set_overdue(part, false);
        }
    }

    /// Marks a feature as overdue after the time limit.
    async fn wait_for_time_limit(&self, part: fn(&mut Readiness) -> &mut bool) -> Infallible {
        sleep_until(Instant::now() + READ_TIMEOUT).await;
        self.set_overdue(part, true);
        std::future::pending().await
    }

    fn set_overdue(&self, part: fn(&mut Readiness) -> &mut bool, is_overdue: bool) {
        *part(&mut self.is_overdue.lock().unwrap_or_else(PoisonError::into_inner)) = is_overdue;
        self.publish_ready();
    }

    fn publish_ready(&self) {
        let is_overdue = *self.is_overdue.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = Readiness {
            webhook: is_overdue.webhook || self.index.cluster().is_complete(),
            injector: is_overdue.injector || self.index.nads().is_complete(),
        };
        watch::publish_if_changed(&self.ready, ready);
    }

    async fn follow_cluster(&self) -> Result<(), OperatorError> {
        let (client, namespace) = (&self.context.client, self.context.config.namespace.as_str());
        let config = watcher::Config::default;
        let (publish, nic_ids) = channel::channel(None);
        let policies = watch::watch_objects(Api::namespaced(client.clone(), namespace), config());
        let pools = watch::watch_objects(Api::namespaced(client.clone(), namespace), config());
        let states = watch::watch_objects(Api::namespaced(client.clone(), namespace), config());
        let nodes = watch::watch_metadata(Api::all(client.clone()));
        let mut changes = futures::stream::select_all([
            watch::stream_values(self.settings.clone()).map(ClusterChange::Config).boxed(),
            watch::stream_values(nic_ids).map(ClusterChange::NicIds).boxed(),
            policies.map(Box::new).map(ClusterChange::Policy).boxed(),
            pools.map(ClusterChange::Pool).boxed(),
            states.map(ClusterChange::State).boxed(),
            nodes.map(ClusterChange::Node).boxed(),
        ]);
        let apply = async {
            while let Some(change) = changes.next().await {
                self.index.cluster_mut().apply(change);
                self.publish_ready();
            }
            Err(OperatorError::WatchEnded)
        };
        tokio::try_join!(apply, watch_nic_ids(self.context.clone(), publish)).map(|((), ())| ())
    }

    async fn follow_nads(&self) -> Result<(), OperatorError> {
        let api: Api<PartialObjectMeta<NetworkAttachmentDefinition>> = Api::all(self.context.client.clone());
        let mut changes = pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(change) = changes.next().await {
            match change {
                Ok(event) => self.index.nads_mut().update(event),
                Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => {
                    self.index.nads_mut().set_crd_missing();
                }
                Err(error) => {
                    tracing::warn!(%error, "watch of NetworkAttachmentDefinitions failed: retrying");
                }
            }
            self.publish_ready();
        }
        Err(OperatorError::WatchEnded)
    }
}

impl ClusterIndex {
    fn apply(&mut self, change: ClusterChange) {
        match change {
            ClusterChange::Config(config) => self.update_config(&config),
            ClusterChange::NicIds(nic_ids) => self.update_nic_ids(nic_ids),
            ClusterChange::Policy(event) => self.update_policy(*event),
            ClusterChange::Pool(event) => self.update_pool(event),
            ClusterChange::State(event) => self.update_state(event),
            ClusterChange::Node(event) => self.update_node(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::features::testing::config;

    /// Returns the context of a cluster that never answers.
    fn context() -> Context {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        crate::replica::context::testing::context(kube::Client::try_from(nowhere).unwrap(), "ns", "test")
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_limit_of_each_feature_starts_when_it_is_enabled() {
        let (settings, config_receiver) = channel::channel(config(false, false));
        let (ready_sender, mut ready) = channel::channel(Readiness::default());
        let _following = tokio::spawn(follow(context(), config_receiver, Arc::default(), ready_sender));
        let steps = [
            (config(true, false), Readiness { webhook: true, injector: false }, true),
            (config(true, true), Readiness { webhook: true, injector: true }, true),
            (config(false, true), Readiness { webhook: false, injector: true }, false),
            (config(true, true), Readiness { webhook: true, injector: true }, true),
        ];
        assert_eq!(*ready.borrow_and_update(), Readiness::default(), "nothing is enabled or ready");
        for (config, expected, takes_time_limit) in steps {
            // Long after the previous change.
            tokio::time::advance(READ_TIMEOUT * 3).await;
            assert!(!ready.has_changed().unwrap());
            let start = Instant::now();
            settings.send_replace(config);
            ready.changed().await.unwrap();
            assert_eq!(*ready.borrow_and_update(), expected);
            assert_eq!(
                start.elapsed() >= READ_TIMEOUT,
                takes_time_limit,
                "{expected:?} after {:?}",
                start.elapsed()
            );
        }
    }
}
