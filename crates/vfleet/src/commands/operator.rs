//! `vfleet operator`: the controllers.

mod environment;

use vfleet_api::keys::{DEFAULT_NAMESPACE, DEFAULT_RESOURCE_PREFIX};

use crate::{client, log, log_level, stop};

/// Run the operator: it turns policies into what each node shall be like.
///
/// Talks to the cluster that KUBECONFIG names, or to the one that it runs in.
#[derive(clap::Args)]
#[command(after_help = environment::IGNORED)]
pub(crate) struct Arguments {
    /// Namespace of policies and node states.
    #[arg(long, env = "NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    /// What stands before the names of resources.
    #[arg(long, env = "RESOURCE_PREFIX", default_value = DEFAULT_RESOURCE_PREFIX)]
    resource_prefix: String,
    /// Name of this replica, different from the others'. The host name when empty.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pod_name: String,
    #[command(flatten)]
    log: log::LogArguments,
    #[command(flatten)]
    deploy: environment::Environment,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let format = arguments.log.log_format;
    let level = log::start(format);
    let namespace = arguments.namespace.clone();
    let config = vfleet_operator::Config {
        namespace: arguments.namespace,
        identity: arguments.pod_name,
        resource_prefix: arguments.resource_prefix,
        deploy: arguments.deploy.into_config(format),
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let stop = stop::on_signal()?;
        let client = client::connect().await?;
        tokio::select! {
            ended = vfleet_operator::run(client.clone(), config, stop) => ended?,
            () = log_level::follow(client, &namespace, &level) => {}
        }
        Ok(())
    })
}
