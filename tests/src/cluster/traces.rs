//! Objects of a test that have no namespace, and would be there for all later tests of the same control plane.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// The label of nodes with the namespace of the test that has made them.
pub(super) const MADE_FOR: &str = "test.vfleet.io/made-for";

/// Removes the nodes of a test and the admission policies of its installation.
pub(super) async fn remove_traces(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let made = ListParams::default().labels(&format!("{MADE_FOR}={namespace}"));
    nodes.delete_collection(&DeleteParams::default(), &made).await?;
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
