//! The pool `default`, for nodes that no other pool selects: made when it is missing, and otherwise left as it is.

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
use vfleet_cluster::queue::Work;
use vfleet_cluster::watch::{Sight, Single, changes, only};
use vfleet_cluster::write::{WriteError, Writer};

use crate::OperatorError;
use crate::replica::context::Context;

/// Runs the controller until `stop`.
pub(crate) async fn run(context: Context, stop: CancellationToken) -> Result<(), OperatorError> {
    let api: Api<Guarded<SriovNetworkPoolConfig>> =
        Api::namespaced(context.client.clone(), &context.config.namespace);
    let mut changes = pin!(changes(api, only(DEFAULT_POOL)));
    let mut presence = Presence::default();
    let mut work = Work::new("default-pool", 1, Arc::clone(&context.metrics));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => {
                if presence.take(change.ok_or(OperatorError::WatchEnded)?) {
                    work.touch([DEFAULT_POOL]);
                }
            }
            () = work.progress() => {}
        }
        if let Some(key) = work.next_touched() {
            if presence.is_missing {
                work.start(key, create(context.clone()));
            } else {
                work.nothing_to_do(&key);
            }
        }
    }
    work.finish().await;
    Ok(())
}

/// Whether the pool is there.
#[derive(Default)]
struct Presence {
    pool: Single<SriovNetworkPoolConfig>,
    is_missing: bool,
}

impl Presence {
    /// Takes in a change; says whether the pool is to be made. One that cannot be read is there.
    fn take(&mut self, event: Event<Guarded<SriovNetworkPoolConfig>>) -> bool {
        match self.pool.take(event) {
            Sight::Nothing => return false,
            Sight::Gone => self.is_missing = true,
            Sight::There(_) => self.is_missing = false,
        }
        self.is_missing
    }
}

async fn create(context: Context) -> Result<(), WriteError> {
    let api: Api<SriovNetworkPoolConfig> = Api::namespaced(context.client.clone(), &context.config.namespace);
    Writer::new(context.leadership.clone()).create(&api, &pool()).await?;
    tracing::info!("the pool {DEFAULT_POOL} was missing and is there now");
    Ok(())
}

fn pool() -> SriovNetworkPoolConfig {
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

    fn found() -> Guarded<SriovNetworkPoolConfig> {
        Guarded(Ok(pool()))
    }

    #[test]
    fn it_is_made_once_it_is_known_to_be_missing() {
        let mut presence = Presence::default();
        assert!(!presence.take(Event::Init));
        assert!(presence.take(Event::InitDone), "the list did not have it");
        assert!(!presence.take(Event::Apply(found())));
        assert!(presence.take(Event::Delete(found())), "deleted: again at once");
    }

    #[test]
    fn one_that_is_there_is_left_alone() {
        let mut presence = Presence::default();
        assert!(!presence.take(Event::Init));
        assert!(!presence.take(Event::InitApply(found())));
        assert!(!presence.take(Event::InitDone));
        assert!(!presence.take(Event::Apply(found())));
    }
}
