//! `vfleet operator`: the controllers.

use vfleet_api::keys::DEFAULT_NAMESPACE;

use crate::{client, log, stop};

/// Run the operator: it turns policies into what each node shall be like.
///
/// Talks to the cluster that KUBECONFIG names, or to the one that it runs in.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Namespace of policies and node states.
    #[arg(long, env = "NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    namespace: String,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    log::start();
    tokio::runtime::Runtime::new()?.block_on(async {
        let stop = stop::on_signal()?;
        let client = client::connect().await?;
        vfleet_operator::run(client, vfleet_operator::Config { namespace: arguments.namespace }, stop)
            .await?;
        Ok(())
    })
}
