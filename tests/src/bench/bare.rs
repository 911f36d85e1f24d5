//! The bare loop: the writes that the operator has to do, and nothing else.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::fleet::{self, AT_ONCE, Cards, names, states};
use super::watched::{Changes, Watched};

/// Its service account and field manager.
pub(crate) const ACCOUNT: &str = "bare-loop";

const LIMIT: Duration = Duration::from_mins(10);

/// A fleet without an operator, for the bare loop.
pub(crate) struct BareLoop {
    client: Client,
    namespace: String,
    watched: Watched,
}

impl BareLoop {
    /// On node states that are there. `eyes` is who looks at them.
    pub(crate) async fn new(client: Client, eyes: Client, namespace: String, nodes: usize) -> Result<Self> {
        let watched = Watched::new(eyes, &namespace, nodes).await?;
        Ok(Self { client, namespace, watched })
    }

    /// Writes the specs of the first `nodes` nodes, then takes them back: the fleet is as before.
    pub(crate) async fn run(&mut self, nodes: usize) -> Result<Changes> {
        let Self { client, namespace, watched } = self;
        watched.catch_up();
        let spec = json!({ "spec": fleet::spec_for_all(Cards::FEW) });
        let started = Instant::now();
        let (written, changes) = tokio::join!(
            write(client, namespace, nodes, &spec),
            watched.changes(started, names(nodes), LIMIT),
        );
        written?;
        let changes = changes?.context("the bare loop's writes are not seen")?;
        write(client, namespace, nodes, &json!({})).await?;
        Ok(changes)
    }
}

/// Each write is a task of its own, as the operator's are: all cores take part.
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
    let written = stream::iter(writes).map(tokio::spawn).buffer_unordered(AT_ONCE);
    written.map(|write| Ok(write?.map(drop)?)).try_collect().await
}
