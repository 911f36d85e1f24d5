//! Pool `default`, for nodes that no other pool selects. It is created if it does not exist, and never changed.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher::Event;
use tokio_util::sync::CancellationToken;
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_api::keys::DEFAULT_POOL;
use vfleet_api::pool_config::{DrainConfig, SriovNetworkPoolConfigSpec};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::queue::WorkQueue;
use vfleet_cluster::watch::{SingleObject, SingleObjectState, select_name, watch_objects};
use vfleet_cluster::write::{WriteError, Writer};

use crate::OperatorError;
use crate::replica::context::Context;

/// Runs the controller until `stop`.
pub(crate) async fn run(context: Context, stop: CancellationToken) -> Result<(), OperatorError> {
    let api: Api<Guarded<SriovNetworkPoolConfig>> =
        Api::namespaced(context.client.clone(), &context.config.namespace);
    let mut events = pin!(watch_objects(api, select_name(DEFAULT_POOL)));
    let mut presence = DefaultPoolPresence::default();
    let mut work = WorkQueue::new("default-pool", 1, Arc::clone(&context.metrics));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            event = events.next() => {
                if presence.update(event.ok_or(OperatorError::WatchEnded)?) {
                    work.add([DEFAULT_POOL]);
                }
            }
            () = work.wait_for_progress() => {}
        }
        if let Some(key) = work.take_next() {
            if presence.is_missing {
                work.start(key, create(context.clone()));
            } else {
                work.mark_done(&key);
            }
        }
    }
    work.finish().await;
    Ok(())
}

/// Presence of the pool `default`.
#[derive(Default)]
struct DefaultPoolPresence {
    pool: SingleObject<SriovNetworkPoolConfig>,
    is_missing: bool,
}

impl DefaultPoolPresence {
    /// Applies a watch event; returns whether the pool has to be created. An unreadable pool exists.
    fn update(&mut self, event: Event<Guarded<SriovNetworkPoolConfig>>) -> bool {
        match self.pool.update(event) {
            SingleObjectState::Listing => return false,
            SingleObjectState::Absent => self.is_missing = true,
            SingleObjectState::Present(_) => self.is_missing = false,
        }
        self.is_missing
    }
}

async fn create(context: Context) -> Result<(), WriteError> {
    let api: Api<SriovNetworkPoolConfig> = Api::namespaced(context.client.clone(), &context.config.namespace);
    Writer::new(context.leadership.clone()).create(&api, &default_pool()).await?;
    tracing::info!(pool = DEFAULT_POOL, "created the default pool");
    Ok(())
}

fn default_pool() -> SriovNetworkPoolConfig {
    let drain_config = DrainConfig { max_parallel_node_configuration: Some(1), ..Default::default() };
    SriovNetworkPoolConfig::new(
        DEFAULT_POOL,
        SriovNetworkPoolConfigSpec {
            priority: Some(0),
            drain_config: Some(drain_config),
            ..Default::default()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored_pool() -> Guarded<SriovNetworkPoolConfig> {
        Guarded(Ok(default_pool()))
    }

    #[test]
    fn the_pool_is_created_when_it_is_known_to_be_missing() {
        let mut presence = DefaultPoolPresence::default();
        assert!(!presence.update(Event::Init));
        assert!(presence.update(Event::InitDone), "the list does not contain it");
        assert!(!presence.update(Event::Apply(stored_pool())));
        assert!(presence.update(Event::Delete(stored_pool())), "it was deleted");
    }

    #[test]
    fn an_existing_pool_is_left_alone() {
        let mut presence = DefaultPoolPresence::default();
        assert!(!presence.update(Event::Init));
        assert!(!presence.update(Event::InitApply(stored_pool())));
        assert!(!presence.update(Event::InitDone));
        assert!(!presence.update(Event::Apply(stored_pool())));
    }
}
