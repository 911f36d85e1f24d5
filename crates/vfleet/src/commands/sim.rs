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

/// Largest number of parallel requests while nodes are created and deleted.
const MAX_REQUESTS: usize = 32;

/// Run the agents of simulated nodes in one process
///
/// Creates missing Node objects, with the label vfleet.io/simulated and the annotation of kwok, and deletes them at the
/// end.
#[derive(clap::Args)]
pub(crate) struct SimArguments {
    /// Number of nodes, named sim-1, sim-2 and so on
    #[arg(long, value_name = "COUNT", default_value_t = 5, conflicts_with = "names")]
    nodes: u32,
    /// Names of the nodes, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    names: Vec<String>,
    /// YAML file that describes the simulated machine of each node
    #[arg(long, value_name = "FILE")]
    machine: PathBuf,
    /// Namespace of the node states
    #[arg(long, value_name = "NAMESPACE", env = "NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    /// Duration of each step on a simulated machine, in milliseconds
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    step_time: u64,
    /// Do not delete the Node objects at the end
    #[arg(long)]
    keep_nodes: bool,
}

pub(crate) fn run(arguments: &SimArguments) -> anyhow::Result<()> {
    log::start(log::LogFormat::Text);
    raise_file_limit();
    let names = match arguments.names.as_slice() {
        [] => (1..=arguments.nodes).map(|number| format!("sim-{number}")).collect(),
        names => names.to_vec(),
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let stop = stop::on_signal()?;
        let client = client::connect().await?;
        let created = create_nodes(&client, &names).await?;
        tracing::info!(nodes = names.len(), created = created.len(), "simulated nodes exist");
        let result = run_agents(&client, arguments, &names, stop).await;
        if !arguments.keep_nodes {
            delete_nodes(&client, &created).await;
        }
        result
    })
}

async fn run_agents(
    client: &Client,
    arguments: &SimArguments,
    names: &[String],
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let machine = read_machine(&arguments.machine)?;
    let mut agents = JoinSet::new();
    for node in names {
        let host = Arc::new(SimHost::new(&machine, node)?);
        if arguments.step_time > 0 {
            let time = Duration::from_millis(arguments.step_time);
            host.set_step_hook(move |_| sleep(time));
        }
        let config = vfleet_agent::Config::new(node.clone(), arguments.namespace.clone(), host);
        agents.spawn(vfleet_agent::run(client.clone(), config, stop.clone()));
    }
    while let Some(ended) = agents.join_next().await {
        ended?.context("an agent ended with an error")?;
    }
    Ok(())
}

/// Raises the limit of open files: every agent has its own connection, and the usual limit is 1,024 files.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, highest)| setrlimit(Resource::RLIMIT_NOFILE, highest, highest));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files: about 1,000 nodes are possible");
    }
}

#[expect(clippy::disallowed_methods, reason = "a simulated step takes time")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Creates the nodes that are missing, and returns their names.
async fn create_nodes(client: &Client, names: &[String]) -> anyhow::Result<Vec<String>> {
    let api: Api<Node> = Api::all(client.clone());
    let created: Vec<anyhow::Result<Option<String>>> = futures::stream::iter(names)
        .map(|name| create_node(&api, name))
        .buffer_unordered(MAX_REQUESTS)
        .collect()
        .await;
    Ok(created.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

async fn create_node(api: &Api<Node>, name: &str) -> anyhow::Result<Option<String>> {
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
        Err(error) => Err(error).with_context(|| format!("cannot create Node {name}")),
    }
}

/// Fails for a real node: a simulated agent would report cards that do not exist there.
async fn ensure_simulated(api: &Api<Node>, name: &str) -> anyhow::Result<()> {
    let node = api.get_metadata(name).await.with_context(|| format!("cannot read Node {name}"))?;
    anyhow::ensure!(
        node.labels().contains_key(SIMULATED_LABEL),
        "Node {name} is a real node (it has no label {SIMULATED_LABEL}): choose another name"
    );
    Ok(())
}

async fn delete_nodes(client: &Client, names: &[String]) {
    let api: Api<Node> = Api::all(client.clone());
    futures::stream::iter(names)
        .for_each_concurrent(MAX_REQUESTS, async |name| {
            if let Err(error) = api.delete(name, &DeleteParams::default()).await {
                tracing::warn!(node = name, %error, "cannot delete a simulated Node");
            }
        })
        .await;
}
