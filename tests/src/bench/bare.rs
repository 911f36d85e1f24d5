//! Bare loop: the writes that the operator must do, and nothing else.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::fleet::{self, CONCURRENT_WRITES, Cards, names, states};
use super::spec_watch::{ChangeTimes, SpecWatch};

/// Service account and field manager of the bare loop.
pub(crate) const ACCOUNT: &str = "bare-loop";

const LIMIT: Duration = Duration::from_mins(10);

/// Bare loop on a fleet without an operator.
pub(crate) struct BareLoop {
    client: Client,
    namespace: String,
    watch: SpecWatch,
}

impl BareLoop {
    /// Creates a bare loop for existing node states. `watch_client` watches them.
    pub(crate) async fn new(
        client: Client,
        watch_client: Client,
        namespace: String,
        nodes: usize,
    ) -> Result<Self> {
        let watch = SpecWatch::new(watch_client, &namespace, nodes).await?;
        Ok(Self { client, namespace, watch })
    }

    /// Writes the specs of the first `nodes` nodes, and removes them afterwards.
    pub(crate) async fn run(&mut self, nodes: usize) -> Result<ChangeTimes> {
        let Self { client, namespace, watch } = self;
        watch.catch_up();
        let spec = json!({ "spec": fleet::spec_for_all(Cards::FEW) });
        let started = Instant::now();
        let (written, changes) = tokio::join!(
            write(client, namespace, nodes, &spec),
            watch.changes(started, names(nodes), LIMIT),
        );
        written?;
        let changes = changes?.context("timed out waiting for the writes of the bare loop")?;
        write(client, namespace, nodes, &json!({})).await?;
        Ok(changes)
    }
}

/// Runs each write in its own task, like the operator, so that all cores are used.
async fn write(client: &Client, namespace: &str, nodes: usize, content: &Value) -> Result<()> {
    let api = states(client, namespace);
    let writes = names(nodes).map(|name| {
        let mut state = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", &name);
        if let (Some(state), Some(content)) = (state.as_object_mut(), content.as_object()) {
            state.extend(content.clone());
        }
        let api = api.clone();
        async move { api.patch(&name, &PatchParams::apply(ACCOUNT).force(), &Patch::Apply(&state)).await }
    });
    let written = stream::iter(writes).map(tokio::spawn).buffer_unordered(CONCURRENT_WRITES);
    written.map(|write| Ok(write?.map(drop)?)).try_collect().await
}
