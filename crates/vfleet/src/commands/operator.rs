//! `vfleet operator`: controllers and admission webhooks.

mod admission;
mod environment;

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context;
use vfleet_api::keys::{DEFAULT_NAMESPACE, DEFAULT_RESOURCE_PREFIX};
use vfleet_cluster::server::BindAddress;

pub(crate) use self::admission::parse_lifetime;
pub(crate) use self::environment::parse_cluster_type;
use crate::{client, log, log_level, stop};

/// Run the operator: it derives the desired state of each node from the policies
///
/// Uses the cluster of KUBECONFIG, or the cluster that the operator runs in.
#[derive(clap::Args)]
#[command(after_help = environment::IGNORED)]
pub(crate) struct OperatorArguments {
    /// Namespace of policies and node states
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "NAMESPACE",
        default_value = DEFAULT_NAMESPACE,
        value_parser = non_empty_or(DEFAULT_NAMESPACE)
    )]
    namespace: String,
    /// Prefix of resource names, as in openshift.io/nics
    #[arg(
        long,
        value_name = "PREFIX",
        env = "RESOURCE_PREFIX",
        default_value = DEFAULT_RESOURCE_PREFIX,
        value_parser = non_empty_or(DEFAULT_RESOURCE_PREFIX)
    )]
    resource_prefix: String,
    /// Unique name of this replica for leader election [default: the host name]
    #[arg(long, value_name = "NAME", env = "POD_NAME", default_value = "", hide_default_value = true)]
    pod_name: String,
    /// Minutes that a node state is kept after its node was deleted; 0 deletes it at once
    ///
    /// An invalid number counts as 30.
    #[arg(
        long,
        value_name = "MINUTES",
        env = "STALE_NODE_STATE_CLEANUP_DELAY_MINUTES",
        default_value = "30",
        allow_negative_numbers = true
    )]
    stale_node_state_cleanup_delay_minutes: String,
    /// Address of the metrics server (/metrics); 0 disables the server
    #[arg(long, value_name = "[ADDRESS]:PORT", default_value = ":8080", help_heading = "Servers")]
    metrics_bind_address: BindAddress,
    /// Address of the probe server (/healthz and /readyz); 0 disables the server
    #[arg(long, value_name = "[ADDRESS]:PORT", default_value = ":8081", help_heading = "Servers")]
    health_probe_bind_address: BindAddress,
    #[command(flatten)]
    admission: admission::AdmissionArguments,
    #[command(flatten)]
    log: log::LogArguments,
    #[command(flatten)]
    deploy: environment::DeployArguments,
}

pub(crate) fn run(arguments: OperatorArguments) -> anyhow::Result<()> {
    let format = arguments.log.log_format;
    let level = log::start(format);
    let namespace = arguments.namespace.clone();
    let config = vfleet_operator::Config {
        namespace: arguments.namespace,
        identity: identity(arguments.pod_name)?,
        resource_prefix: arguments.resource_prefix,
        deploy: arguments.deploy.into_config(format),
        stale_state_after: Duration::from_mins(parse_minutes(
            &arguments.stale_node_state_cleanup_delay_minutes,
        )),
        metrics: arguments.metrics_bind_address,
        health: arguments.health_probe_bind_address,
        webhook: arguments.admission.into_config(),
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let stop = stop::on_signal()?;
        let client = client::connect().await?;
        tokio::select! {
            ended = vfleet_operator::run(client.clone(), config, stop) => ended?,
            () = log_level::watch_log_level(client, &namespace, &level) => {}
        }
        Ok(())
    })
}

/// Returns the name of this replica.
fn identity(pod_name: String) -> anyhow::Result<String> {
    if !pod_name.is_empty() {
        return Ok(pod_name);
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("cannot read the host name")?;
    Ok(name.trim().to_owned())
}

/// Returns a parser that replaces an empty value by `default`: manifests for the Go operator set some variables to "".
fn non_empty_or(default: &'static str) -> impl Fn(&str) -> Result<String, Infallible> + Clone {
    move |text| Ok(if text.is_empty() { default } else { text }.to_owned())
}

/// Parses a number of minutes. Like in the Go operator, an invalid number counts as the default.
pub(crate) fn parse_minutes(text: &str) -> u64 {
    text.parse::<u32>().map_or_else(
        |_| {
            tracing::warn!(
                text,
                "not a number of minutes: keeping node states of deleted nodes for 30 minutes"
            );
            30
        },
        u64::from,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_number_of_minutes_is_the_default() {
        assert_eq!(["0", "45", "", "-1", "soon"].map(parse_minutes), [0, 45, 30, 30, 30]);
    }
}
