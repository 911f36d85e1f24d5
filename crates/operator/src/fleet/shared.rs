//! What more than one controller follows: the API server tells it once, and it is read once.

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

type Changes<K> = BoxStream<'static, Event<Guarded<K>>>;

/// The changes of all these, for one controller.
pub(crate) struct Shared {
    pub(crate) nodes: Changes<Node>,
    pub(crate) states: Changes<SriovNetworkNodeState>,
    pub(crate) pools: Changes<SriovNetworkPoolConfig>,
}

/// Follows them, for two controllers, for as long as the future runs.
pub(crate) fn follow(
    context: &Context,
) -> ([Shared; 2], impl Future<Output = Result<(), OperatorError>> + Send + use<>) {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let ([nodes, more_nodes], tell_nodes) = twice(Api::all(client.clone()));
    let ([states, more_states], tell_states) = twice(Api::namespaced(client.clone(), namespace));
    let ([pools, more_pools], tell_pools) = twice(Api::namespaced(client.clone(), namespace));
    let both = [
        Shared { nodes, states, pools },
        Shared { nodes: more_nodes, states: more_states, pools: more_pools },
    ];
    let telling = async {
        // None of them ever ends, unless its watch does.
        tokio::join!(tell_nodes, tell_states, tell_pools);
        Err(OperatorError::WatchEnded)
    };
    (both, telling)
}

/// The changes of all objects behind `api`, for two, for as long as the future runs.
fn twice<K>(api: Api<Guarded<K>>) -> ([Changes<K>; 2], impl Future<Output = ()> + Send + use<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let ((tell, follow), (tell_other, follow_other)) = (watch::channel(), watch::channel());
    let telling = async move {
        let mut changes = pin!(watch::changes(api, watcher::Config::default()));
        while let Some(event) = changes.next().await {
            // One that does not listen any more is about to stop, and all others with it.
            let _ = tell_other.send(event.clone());
            let _ = tell.send(event);
        }
    };
    ([follow.boxed(), follow_other.boxed()], telling)
}
