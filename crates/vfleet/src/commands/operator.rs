//! `vfleet operator`: the controllers.

mod admission;
mod environment;

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context;
use vfleet_api::keys::{DEFAULT_NAMESPACE, DEFAULT_RESOURCE_PREFIX};
use vfleet_cluster::server::BindAddress;

pub(crate) use self::admission::lifetime;
use crate::{client, log, log_level, stop};

/// Run the operator: it turns policies into what each node shall be like.
///
/// Talks to the cluster that KUBECONFIG names, or to the one that it runs in.
#[derive(clap::Args)]
#[command(after_help = environment::IGNORED)]
pub(crate) struct Arguments {
    /// Namespace of policies and node states.
    #[arg(long, env = "NAMESPACE", default_value = DEFAULT_NAMESPACE, value_parser = or(DEFAULT_NAMESPACE))]
    namespace: String,
    /// What stands before the names of resources.
    #[arg(
        long,
        env = "RESOURCE_PREFIX",
        default_value = DEFAULT_RESOURCE_PREFIX,
        value_parser = or(DEFAULT_RESOURCE_PREFIX)
    )]
    resource_prefix: String,
    /// Name of this replica, different from the others'. The host name when empty.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pod_name: String,
    /// Minutes that a node state is kept when its node is gone; 0 is not at all. What is no number of minutes is 30.
    #[arg(
        long,
        value_name = "MINUTES",
        env = "STALE_NODE_STATE_CLEANUP_DELAY_MINUTES",
        default_value = "30",
        allow_negative_numbers = true
    )]
    stale_node_state_cleanup_delay_minutes: String,
    /// Where metrics are served for Prometheus, at /metrics; 0 is nowhere.
    #[arg(long, value_name = "[ADDRESS]:PORT", default_value = ":8080")]
    metrics_bind_address: BindAddress,
    /// Where /healthz and /readyz are served; 0 is nowhere.
    #[arg(long, value_name = "[ADDRESS]:PORT", default_value = ":8081")]
    health_probe_bind_address: BindAddress,
    #[command(flatten)]
    admission: admission::Admission,
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
        identity: identity(arguments.pod_name)?,
        resource_prefix: arguments.resource_prefix,
        deploy: arguments.deploy.into_config(format),
        stale_state_after: Duration::from_mins(minutes(&arguments.stale_node_state_cleanup_delay_minutes)),
        metrics: arguments.metrics_bind_address,
        health: arguments.health_probe_bind_address,
        webhook: arguments.admission.into_config(),
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

/// The name of this replica.
fn identity(pod_name: String) -> anyhow::Result<String> {
    if !pod_name.is_empty() {
        return Ok(pod_name);
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("cannot read the host's name")?;
    Ok(name.trim().to_owned())
}

/// An empty variable is the same as none: manifests that were made for the Go operator set some of them so.
fn or(default: &'static str) -> impl Fn(&str) -> Result<String, Infallible> + Clone {
    move |text| Ok(if text.is_empty() { default } else { text }.to_owned())
}

/// As the Go operator reads it: what cannot be meant is the default.
pub(crate) fn minutes(text: &str) -> u64 {
    text.parse::<u32>().map_or_else(
        |_| {
            tracing::warn!(
                text,
                "not a number of minutes: node states of nodes that are gone are kept for 30"
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
    fn what_is_no_number_of_minutes_is_the_default() {
        assert_eq!(["0", "45", "", "-1", "soon"].map(minutes), [0, 45, 30, 30, 30]);
    }
}
