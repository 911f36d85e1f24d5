//! Watches that two controllers share, so that each object is sent and parsed once.

use std::fmt::Debug;
use std::pin::pin;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::Resource;
use kube::runtime::watcher::{self, Event};
use serde::de::DeserializeOwned;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::watch;

use crate::OperatorError;
use crate::replica::context::Context;

type Events<K> = BoxStream<'static, Event<Guarded<K>>>;

/// Watch events for one controller.
pub(crate) struct SharedWatches {
    pub(crate) nodes: Events<Node>,
    pub(crate) states: Events<SriovNetworkNodeState>,
    pub(crate) pools: Events<SriovNetworkPoolConfig>,
}

/// Watches nodes, node states and pools for two controllers. The returned future forwards the events and must be
/// polled.
pub(crate) fn watch_shared(
    context: &Context,
) -> ([SharedWatches; 2], impl Future<Output = Result<(), OperatorError>> + Send + use<>) {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let ([nodes, more_nodes], forward_nodes) = watch_twice(Api::all(client.clone()));
    let ([states, more_states], forward_states) = watch_twice(Api::namespaced(client.clone(), namespace));
    let ([pools, more_pools], forward_pools) = watch_twice(Api::namespaced(client.clone(), namespace));
    let both = [
        SharedWatches { nodes, states, pools },
        SharedWatches { nodes: more_nodes, states: more_states, pools: more_pools },
    ];
    let forward_all = async {
        // Ends only if all watches end.
        tokio::join!(forward_nodes, forward_states, forward_pools);
        Err(OperatorError::WatchEnded)
    };
    (both, forward_all)
}

/// Watches the objects of `api` for two receivers. The returned future forwards the events and must be polled.
fn watch_twice<K>(api: Api<Guarded<K>>) -> ([Events<K>; 2], impl Future<Output = ()> + Send + use<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let ((first, first_events), (second, second_events)) = (watch::stream_channel(), watch::stream_channel());
    let forward = async move {
        let mut events = pin!(watch::watch_objects(api, watcher::Config::default()));
        while let Some(event) = events.next().await {
            // A receiver is dropped only when all controllers are about to stop.
            let _ = second.send(event.clone());
            let _ = first.send(event);
        }
    };
    ([first_events.boxed(), second_events.boxed()], forward)
}
