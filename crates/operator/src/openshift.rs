//! Machine config operator of OpenShift, which applies machine configs to the nodes of machine config pools.

pub(crate) mod offload;

use std::pin::pin;

use futures::{Stream, StreamExt};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use vfleet_cluster::retry::RetryQueue;
use vfleet_cluster::write::{WriteError, Writer};

use crate::replica::context::Context;

const GROUP: &str = "machineconfiguration.openshift.io";

/// Name of the only Infrastructure object.
const INFRASTRUCTURE: &str = "cluster";

/// Topology of a hosted control plane (HyperShift), whose machine config operator runs in another cluster.
const HOSTED_TOPOLOGY: &str = "External";

pub(crate) fn machine_config_pools() -> ApiResource {
    resource(GROUP, "MachineConfigPool", "machineconfigpools")
}

pub(crate) fn machine_configs() -> ApiResource {
    resource(GROUP, "MachineConfig", "machineconfigs")
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
}

/// Returns whether this cluster has machine config pools. Retries until the API server answers.
pub(crate) async fn has_machine_config_pools(context: &Context) -> bool {
    let mut answers = pin!(detect_machine_config_pools(context));
    loop {
        if let Some(Ok(answer)) = answers.next().await {
            return answer;
        }
    }
}

/// Detects whether this cluster has machine config pools. The stream returns the error of each failed attempt, and
/// retries with backoff.
pub(crate) fn detect_machine_config_pools(
    context: &Context,
) -> impl Stream<Item = Result<bool, WriteError>> + Send + use<> {
    futures::stream::unfold(
        (context.clone(), RetryQueue::default(), false),
        async |(context, mut retries, is_retry)| {
            if is_retry {
                retries.schedule(());
                retries.next().await;
            }
            let answer = query_machine_config_pools(&context).await.inspect_err(|error| {
                tracing::warn!(%error, "cannot detect machine config pools: retrying");
            });
            Some((answer, (context, retries, true)))
        },
    )
}

async fn query_machine_config_pools(context: &Context) -> Result<bool, WriteError> {
    let (writer, client) = (Writer::new(context.leadership.clone()), &context.client);
    let pools: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &machine_config_pools());
    match writer.list(&pools, &ListParams::default().limit(1)).await {
        Err(error) if error.is_not_found() => return Ok(false),
        listed => listed?,
    };
    let infrastructures = resource("config.openshift.io", "Infrastructure", "infrastructures");
    let infrastructures: Api<DynamicObject> = Api::all_with(client.clone(), &infrastructures);
    let infrastructure = writer.read(&infrastructures, INFRASTRUCTURE).await?;
    Ok(!infrastructure.is_some_and(|object| has_hosted_control_plane(&object)))
}

fn has_hosted_control_plane(infrastructure: &DynamicObject) -> bool {
    let topology = infrastructure.data.pointer("/status/controlPlaneTopology");
    topology.and_then(serde_json::Value::as_str) == Some(HOSTED_TOPOLOGY)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hosted_control_plane_is_detected() {
        for (status, expected) in [
            (json!({}), false),
            (json!({ "controlPlaneTopology": "HighlyAvailable" }), false),
            (json!({ "controlPlaneTopology": "External" }), true),
        ] {
            let object: DynamicObject =
                serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap();
            assert_eq!(has_hosted_control_plane(&object), expected);
        }
    }
}
