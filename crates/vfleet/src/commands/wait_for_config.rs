//! `vfleet wait-for-config`: the init container of the separate device plugin.

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::json;
use vfleet_api::keys::DEVICE_PLUGIN_WAITS;

use crate::{client, log, stop};

/// Wait until the agent of this node says that its VFs are there: an annotation on the pod that goes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The pod that this runs in.
    #[arg(long)]
    pod_name: String,
    /// Its namespace.
    #[arg(long)]
    pod_namespace: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log::start(log::Format::Text);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop::on_signal()?;
        let client = client::connect().await?;
        let pods: Api<Pod> = Api::namespaced(client, &arguments.pod_namespace);
        let name = arguments.pod_name.as_str();
        let waits = json!({ "metadata": { "annotations": { DEVICE_PLUGIN_WAITS: "true" } } });
        pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(waits))
            .await
            .with_context(|| format!("cannot say on the pod {name} that it waits"))?;
        tracing::info!(pod = name, "waiting for the agent of this node");
        let may_go =
            |pod: Option<&Pod>| pod.is_none_or(|pod| !pod.annotations().contains_key(DEVICE_PLUGIN_WAITS));
        tokio::select! {
            () = stop.cancelled() => anyhow::bail!("told to end before the agent gave its sign"),
            went = await_condition(pods, name, may_go) => went.context("cannot follow the pod")?,
        };
        tracing::info!(pod = name, "the VFs are there");
        Ok(())
    })
}
