//! The controllers of the cluster: they fetch, ask `plan`, and write what it says.
//!
//! One loop per controller: watch events change an in-memory index ([`fleet::Fleet`]), which answers at once which
//! nodes are touched; those are planned and written, several at a time, and nothing else is done.

mod fleet;
mod node_states;
mod patch;
mod retry;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use node_states::OperatorError;

/// Where the operator works.
#[derive(Clone, Debug)]
pub struct Config {
    /// The namespace of policies and node states.
    pub namespace: String,
}

/// Runs until `stop`, or until the API server cannot be watched at all.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), OperatorError> {
    tracing::info!(namespace = config.namespace, "operator starts");
    node_states::run(client, &config, stop).await?;
    tracing::info!("operator stops");
    Ok(())
}
