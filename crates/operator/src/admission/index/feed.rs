//! The watches that admission learns of the cluster by, in every replica.

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

use super::nads::Nads;
use super::{Cluster, Index};
use crate::OperatorError;
use crate::admission::PATIENCE;
use crate::admission::wanted::Wanted;
use crate::components::go_device_plugin::follow_nic_ids;
use crate::components::settings::{Seen, Settings};
use crate::replica::context::Context;

/// Something changed.
enum Change {
    Config(Seen),
    NicIds(Option<NicIds>),
    Policy(Box<Event<Guarded<SriovNetworkNodePolicy>>>),
    Pool(Event<Guarded<SriovNetworkPoolConfig>>),
    State(Event<Guarded<SriovNetworkNodeState>>),
    Node(Event<PartialObjectMeta<Node>>),
}

/// What can be answered: all is known that it takes, or was not for too long. Most rules need nothing of the cluster, so
/// that an answer without it is better than none. What nobody wants is not followed, and so never ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    /// Questions about our objects.
    pub(crate) webhook: bool,
    /// Questions about pods.
    pub(crate) injector: bool,
}

impl Ready {
    pub(crate) const ALL: Self = Self { webhook: true, injector: true };

    /// Whether all that is wanted can be answered.
    pub(crate) fn is_for(self, wanted: Wanted) -> bool {
        (self.webhook || !wanted.webhook) && (self.injector || !wanted.injector)
    }
}

/// Keeps the index as the cluster is, as far as that is wanted, and says what is `ready`.
pub(crate) async fn follow(
    context: Context,
    settings: Settings,
    index: Arc<Index>,
    ready: channel::Sender<Ready>,
) -> Result<(), OperatorError> {
    let feed = Feed { context, settings, index, ready, is_overdue: Mutex::default() };
    let cluster = feed.while_wanted(
        |wanted| wanted.webhook,
        |ready| &mut ready.webhook,
        || feed.follow_cluster().boxed(),
        || *feed.index.change_cluster() = Cluster::default(),
    );
    let nads = feed.while_wanted(
        |wanted| wanted.injector,
        |ready| &mut ready.injector,
        || feed.follow_nads().boxed(),
        || *feed.index.change_nads() = Nads::default(),
    );
    tokio::try_join!(cluster, nads).map(drop)
}

struct Feed {
    context: Context,
    settings: Settings,
    index: Arc<Index>,
    ready: channel::Sender<Ready>,
    /// What is answered with whatever is known.
    is_overdue: Mutex<Ready>,
}

impl Feed {
    /// Works whenever it is wanted, and forgets what it has learned when it is not any more.
    async fn while_wanted<'a>(
        &self,
        is_wanted: fn(Wanted) -> bool,
        part: fn(&mut Ready) -> &mut bool,
        work: impl Fn() -> BoxFuture<'a, Result<(), OperatorError>>,
        forget: impl Fn(),
    ) -> Result<(), OperatorError> {
        let mut settings = self.settings.clone();
        let ended = |_| OperatorError::WatchEnded;
        loop {
            settings.wait_for(|seen| is_wanted(Wanted::of(seen))).await.map_err(ended)?;
            tokio::select! {
                ended = work() => return ended,
                never = self.lose_patience(part) => match never {},
                unwanted = settings.wait_for(|seen| !is_wanted(Wanted::of(seen))) => drop(unwanted.map_err(ended)?),
            }
            forget();
            self.set_overdue(part, false);
        }
    }

    /// So long what is wanted now may be read before it is answered without.
    async fn lose_patience(&self, part: fn(&mut Ready) -> &mut bool) -> Infallible {
        sleep_until(Instant::now() + PATIENCE).await;
        self.set_overdue(part, true);
        std::future::pending().await
    }

    fn set_overdue(&self, part: fn(&mut Ready) -> &mut bool, is_overdue: bool) {
        *part(&mut self.is_overdue.lock().unwrap_or_else(PoisonError::into_inner)) = is_overdue;
        self.tell_ready();
    }

    fn tell_ready(&self) {
        let is_overdue = *self.is_overdue.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = Ready {
            webhook: is_overdue.webhook || self.index.cluster().is_complete(),
            injector: is_overdue.injector || self.index.nads().is_complete(),
        };
        watch::publish(&self.ready, ready);
    }

    async fn follow_cluster(&self) -> Result<(), OperatorError> {
        let (client, namespace) = (&self.context.client, self.context.config.namespace.as_str());
        let usual = watcher::Config::default;
        let (publish, nic_ids) = channel::channel(None);
        let policies = watch::changes(Api::namespaced(client.clone(), namespace), usual());
        let pools = watch::changes(Api::namespaced(client.clone(), namespace), usual());
        let states = watch::changes(Api::namespaced(client.clone(), namespace), usual());
        let nodes = watch::metadata_changes(Api::all(client.clone()));
        let mut changes = futures::stream::select_all([
            watch::values(self.settings.clone()).map(Change::Config).boxed(),
            watch::values(nic_ids).map(Change::NicIds).boxed(),
            policies.map(Box::new).map(Change::Policy).boxed(),
            pools.map(Change::Pool).boxed(),
            states.map(Change::State).boxed(),
            nodes.map(Change::Node).boxed(),
        ]);
        let take_in = async {
            while let Some(change) = changes.next().await {
                self.index.change_cluster().take_in(change);
                self.tell_ready();
            }
            Err(OperatorError::WatchEnded)
        };
        tokio::try_join!(take_in, follow_nic_ids(self.context.clone(), publish)).map(|((), ())| ())
    }

    async fn follow_nads(&self) -> Result<(), OperatorError> {
        let api: Api<PartialObjectMeta<NetworkAttachmentDefinition>> = Api::all(self.context.client.clone());
        let mut changes = pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(change) = changes.next().await {
            match change {
                Ok(event) => self.index.change_nads().see(event),
                Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => {
                    self.index.change_nads().see_no_kind();
                }
                Err(error) => {
                    tracing::warn!(%error, "watching NetworkAttachmentDefinitions is interrupted, will go on");
                }
            }
            self.tell_ready();
        }
        Err(OperatorError::WatchEnded)
    }
}

impl Cluster {
    fn take_in(&mut self, change: Change) {
        match change {
            Change::Config(seen) => self.see_config(&seen),
            Change::NicIds(seen) => self.see_nic_ids(seen),
            Change::Policy(event) => self.see_policy(*event),
            Change::Pool(event) => self.see_pool(event),
            Change::State(event) => self.see_state(event),
            Change::Node(event) => self.see_node(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::wanted::testing::config;

    /// Of a cluster that never answers.
    fn context() -> Context {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        crate::replica::context::testing::context(kube::Client::try_from(nowhere).unwrap(), "ns", "test")
    }

    #[tokio::test(start_paused = true)]
    async fn patience_begins_for_each_feature_when_it_is_wanted() {
        let (settings, seen) = channel::channel(config(false, false));
        let (tell, mut ready) = channel::channel(Ready::default());
        let _following = tokio::spawn(follow(context(), seen, Arc::default(), tell));
        let steps = [
            (config(true, false), Ready { webhook: true, injector: false }, true),
            (config(true, true), Ready { webhook: true, injector: true }, true),
            (config(false, true), Ready { webhook: false, injector: true }, false),
            (config(true, true), Ready { webhook: true, injector: true }, true),
        ];
        assert_eq!(*ready.borrow_and_update(), Ready::default(), "nothing is wanted, and nothing ready");
        for (config, expected, takes_patience) in steps {
            // Long after anything else was wanted.
            tokio::time::advance(PATIENCE * 3).await;
            assert!(!ready.has_changed().unwrap());
            let start = Instant::now();
            settings.send_replace(config);
            ready.changed().await.unwrap();
            assert_eq!(*ready.borrow_and_update(), expected);
            assert_eq!(
                start.elapsed() >= PATIENCE,
                takes_patience,
                "{expected:?} after {:?}",
                start.elapsed()
            );
        }
    }
}
