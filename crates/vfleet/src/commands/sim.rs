//! `vfleet sim`: many simulated nodes in one process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vfleet_api::keys::{DEFAULT_NAMESPACE, OS_LABEL, SIMULATED_LABEL, WORKER_LABEL};
use vfleet_host::SimHost;

use crate::commands::agent::read_machine;
use crate::{client, log, stop};

/// Requests under way at once while nodes are made and removed.
const REQUESTS_AT_ONCE: usize = 32;

/// Run the agents of many simulated nodes in one process.
///
/// Creates the Node objects that are missing (with the label vfleet.io/simulated and the annotation that lets
/// kwok act as their kubelet) and removes those again at the end.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many nodes; they are called sim-1, sim-2 and so on.
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "names")]
    nodes: u32,
    /// The names of the nodes, separated by commas.
    #[arg(long, value_delimiter = ',')]
    names: Vec<String>,
    /// The machine that each of them is: a YAML file.
    #[arg(long, value_name = "FILE")]
    machine: PathBuf,
    /// Namespace of the node states.
    #[arg(long, env = "NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    /// Milliseconds that each step on a machine takes. A real one is not as quick as memory.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    step_time: u64,
    /// Leave the Node objects where they are at the end.
    #[arg(long)]
    keep_nodes: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log::start(log::Format::Text);
    raise_file_limit();
    let names = match arguments.names.as_slice() {
        [] => (1..=arguments.nodes).map(|number| format!("sim-{number}")).collect(),
        names => names.to_vec(),
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let stop = stop::on_signal()?;
        let client = client::connect().await?;
        let made = make_nodes(&client, &names).await?;
        tracing::info!(nodes = names.len(), made = made.len(), "simulated nodes are there");
        let result = run_agents(&client, arguments, &names, stop).await;
        if !arguments.keep_nodes {
            remove_nodes(&client, &made).await;
        }
        result
    })
}

async fn run_agents(
    client: &Client,
    arguments: &Arguments,
    names: &[String],
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let machine = read_machine(&arguments.machine)?;
    let mut agents = JoinSet::new();
    for node in names {
        let host = Arc::new(SimHost::new(&machine, node)?);
        if arguments.step_time > 0 {
            let time = Duration::from_millis(arguments.step_time);
            host.before_each_step(move |_| take(time));
        }
        let config = vfleet_agent::Config::new(node.clone(), arguments.namespace.clone(), host);
        agents.spawn(vfleet_agent::run(client.clone(), config, stop.clone()));
    }
    while let Some(ended) = agents.join_next().await {
        ended?.context("an agent ended")?;
    }
    Ok(())
}

/// Every agent watches its node state on a connection of its own, and the usual limit is 1024 files.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, highest)| setrlimit(Resource::RLIMIT_NOFILE, highest, highest));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is; about 1,000 nodes fit");
    }
}

#[expect(clippy::disallowed_methods, reason = "it plays a machine that takes its time")]
fn take(time: Duration) {
    std::thread::sleep(time);
}

/// Makes the nodes that are missing; gives their names.
async fn make_nodes(client: &Client, names: &[String]) -> anyhow::Result<Vec<String>> {
    let api: Api<Node> = Api::all(client.clone());
    let made: Vec<anyhow::Result<Option<String>>> = futures::stream::iter(names)
        .map(|name| make_node(&api, name))
        .buffer_unordered(REQUESTS_AT_ONCE)
        .collect()
        .await;
    Ok(made.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

async fn make_node(api: &Api<Node>, name: &str) -> anyhow::Result<Option<String>> {
    let node: Node = serde_json::from_value(serde_json::json!({
        "metadata": {
            "name": name,
            "labels": {
                SIMULATED_LABEL: "true",
                WORKER_LABEL: "",
                OS_LABEL: "linux",
                "kubernetes.io/hostname": name,
            },
            "annotations": { "kwok.x-k8s.io/node": "fake" },
        },
    }))?;
    match api.create(&PostParams::default(), &node).await {
        Ok(_) => Ok(Some(name.to_owned())),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            ensure_simulated(api, name).await?;
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot create the node {name}")),
    }
}

/// A simulated agent on a real node would report cards that are not there.
async fn ensure_simulated(api: &Api<Node>, name: &str) -> anyhow::Result<()> {
    let node = api.get_metadata(name).await.with_context(|| format!("cannot look at the node {name}"))?;
    anyhow::ensure!(
        node.labels().contains_key(SIMULATED_LABEL),
        "{name} is a real node (it has no label {SIMULATED_LABEL}): choose another name"
    );
    Ok(())
}

async fn remove_nodes(client: &Client, names: &[String]) {
    let api: Api<Node> = Api::all(client.clone());
    futures::stream::iter(names)
        .for_each_concurrent(REQUESTS_AT_ONCE, async |name| {
            if let Err(error) = api.delete(name, &DeleteParams::default()).await {
                tracing::warn!(node = name, %error, "simulated node not removed");
            }
        })
        .await;
}
