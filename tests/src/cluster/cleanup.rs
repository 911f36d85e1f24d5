//! Cluster-scoped objects of a test, which are removed at its end because later tests share the control plane.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// Label of nodes with the namespace of the test that created them.
pub(super) const CREATED_FOR: &str = "test.vfleet.io/made-for";

/// Removes the nodes of a test and the admission policies of its installation.
pub(super) async fn remove_cluster_objects(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let created = ListParams::default().labels(&format!("{CREATED_FOR}={namespace}"));
    nodes.delete_collection(&DeleteParams::default(), &created).await?;
    remove_named_after::<ValidatingAdmissionPolicyBinding>(client, namespace).await?;
    remove_named_after::<ValidatingAdmissionPolicy>(client, namespace).await
}

async fn remove_named_after<K>(client: &Client, namespace: &str) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let suffix = format!(".{namespace}");
    for name in api.list_metadata(&ListParams::default()).await?.iter().map(ResourceExt::name_any) {
        if name.ends_with(&suffix) {
            api.delete(&name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}
