//! OpenShift: its machine config operator, where it is there. It brings configs to the nodes of machine config pools.

pub(crate) mod offload;

use std::pin::pin;

use futures::{Stream, StreamExt};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use vfleet_cluster::retry::Retries;
use vfleet_cluster::write::{WriteError, Writer};

use crate::replica::context::Context;

const GROUP: &str = "machineconfiguration.openshift.io";

/// The one Infrastructure object.
const INFRASTRUCTURE: &str = "cluster";

/// The control plane of such a cluster (HyperShift) is elsewhere, and with it the machine config operator.
const HOSTED: &str = "External";

pub(crate) fn machine_config_pools() -> ApiResource {
    resource(GROUP, "MachineConfigPool", "machineconfigpools")
}

pub(crate) fn machine_configs() -> ApiResource {
    resource(GROUP, "MachineConfig", "machineconfigs")
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
}

/// Whether this cluster has machine config pools. Asks until there is an answer.
pub(crate) async fn has_machine_config_pools(context: &Context) -> bool {
    let mut looks = pin!(looks(context));
    loop {
        if let Some(Ok(answer)) = looks.next().await {
            return answer;
        }
    }
}

/// Looks whether this cluster has machine config pools, again and again, each time a little later: what was in the way,
/// and at last the answer.
pub(crate) fn looks(context: &Context) -> impl Stream<Item = Result<bool, WriteError>> + Send + use<> {
    futures::stream::unfold(
        (context.clone(), Retries::default(), false),
        async |(context, mut retries, is_retry)| {
            if is_retry {
                retries.later(());
                retries.next().await;
            }
            let answer = look(&context).await.inspect_err(|error| {
                tracing::warn!(%error, "cannot see whether there are machine config pools, will ask again");
            });
            Some((answer, (context, retries, true)))
        },
    )
}

async fn look(context: &Context) -> Result<bool, WriteError> {
    let (writer, client) = (Writer::new(context.leadership.clone()), &context.client);
    let pools: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &machine_config_pools());
    match writer.list(&pools, &ListParams::default().limit(1)).await {
        Err(error) if error.is_not_found() => return Ok(false),
        listed => listed?,
    };
    let infrastructures = resource("config.openshift.io", "Infrastructure", "infrastructures");
    let infrastructures: Api<DynamicObject> = Api::all_with(client.clone(), &infrastructures);
    let infrastructure = writer.read(&infrastructures, INFRASTRUCTURE).await?;
    Ok(!infrastructure.is_some_and(|found| is_hosted(&found)))
}

fn is_hosted(infrastructure: &DynamicObject) -> bool {
    let topology = infrastructure.data.pointer("/status/controlPlaneTopology");
    topology.and_then(serde_json::Value::as_str) == Some(HOSTED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_control_plane_that_is_elsewhere_shows_in_the_infrastructure() {
        for (status, expected) in [
            (json!({}), false),
            (json!({ "controlPlaneTopology": "HighlyAvailable" }), false),
            (json!({ "controlPlaneTopology": "External" }), true),
        ] {
            let object: DynamicObject =
                serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap();
            assert_eq!(is_hosted(&object), expected);
        }
    }
}
