//! `vfleet wait-for-config`: init container of the external Go device plugin.

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::json;
use vfleet_api::keys::DEVICE_PLUGIN_WAITS;

use crate::{client, log, stop};

/// Wait until the agent has configured the VFs of this node (init container of the device plugin)
///
/// Sets an annotation on the pod, and waits until the agent removes it.
#[derive(clap::Args)]
pub(crate) struct WaitForConfigArguments {
    /// Name of the pod that this command runs in
    #[arg(long, value_name = "NAME")]
    pod_name: String,
    /// Namespace of the pod
    #[arg(long, value_name = "NAMESPACE")]
    pod_namespace: String,
}

pub(crate) fn run(arguments: &WaitForConfigArguments) -> anyhow::Result<()> {
    log::start(log::LogFormat::Text);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop::on_signal()?;
        let client = client::connect().await?;
        let pods: Api<Pod> = Api::namespaced(client, &arguments.pod_namespace);
        let name = arguments.pod_name.as_str();
        let waits = json!({ "metadata": { "annotations": { DEVICE_PLUGIN_WAITS: "true" } } });
        pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(waits))
            .await
            .with_context(|| format!("cannot annotate pod {name}"))?;
        tracing::info!(pod = name, "waiting for the agent of this node to configure its VFs");
        let is_released =
            |pod: Option<&Pod>| pod.is_none_or(|pod| !pod.annotations().contains_key(DEVICE_PLUGIN_WAITS));
        tokio::select! {
            () = stop.cancelled() => anyhow::bail!("stopped by a signal before the agent released the pod"),
            result = await_condition(pods, name, is_released) => result.context("cannot watch the pod")?,
        };
        tracing::info!(pod = name, "released by the agent");
        Ok(())
    })
}
