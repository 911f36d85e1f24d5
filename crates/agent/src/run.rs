//! The agent's loop.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use vfleet_api::SriovNetworkNodeState;
use vfleet_host::HostError;

use crate::Config;
use crate::alarm::Alarm;
use crate::attempt::{Agent, Next};
use crate::nic_ids;
use crate::node_object::NodeContextState;

/// A card that is being changed tells of it again and again. It is looked at as after so many repairs.
const WHILE_STILL_AT_IT: u32 = 2;

/// Why the agent ended.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Changes of the machine cannot be followed.
    #[error("cannot follow the machine's changes")]
    Host(#[from] HostError),
    /// The stream of changes ended, which it never should.
    #[error("the API server's changes cannot be followed any more")]
    WatchEnded,
}

/// Waits for a change of what the cluster says about the node; for ever when none comes.
async fn next(node_context: &mut Option<watch::Receiver<NodeContextState>>) -> NodeContextState {
    if let Some(context) = node_context
        && context.changed().await.is_ok()
    {
        return context.borrow_and_update().clone();
    }
    std::future::pending().await
}

/// Runs until `stop`.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), AgentError> {
    let (node, namespace, mode, settings) = (&config.node, &config.namespace, config.mode, &config.settings);
    tracing::info!(node, namespace, ?mode, ?settings, "agent starts");
    let machine_changed = Arc::new(Notify::new());
    let wake = Arc::clone(&machine_changed);
    let _watch = config.host.on_change(Box::new(move || wake.notify_one()))?;

    let states: Api<SriovNetworkNodeState> = Api::namespaced(client.clone(), &config.namespace);
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={}", config.node));
    let mut changes = pin!(watcher(states, only_ours).default_backoff());
    let mut narrowing = if config.follows_nic_ids {
        nic_ids::changes(&client, &config.namespace).boxed()
    } else {
        futures::stream::pending().boxed()
    };
    let mut node_context = config.node_context.clone();
    let mut standing = config.standing.subscribe();
    let mut agent = Agent::new(&client, config, &machine_changed);
    let mut alarm = Alarm::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => match change.ok_or(AgentError::WatchEnded)? {
                Ok(event) => if agent.take(event) { alarm.now() },
                Err(error) => tracing::warn!(%error, "watching is interrupted, will go on"),
            },
            narrow = narrowing.next() => {
                if agent.narrow(narrow.ok_or(AgentError::WatchEnded)?) {
                    alarm.now();
                }
            }
            context = next(&mut node_context) => {
                agent.follow_node(&context);
                alarm.now();
            }
            Ok(()) = standing.changed() => alarm.now(),
            () = machine_changed.notified() => alarm.soon(),
            () = agent.go_plugin_waits() => agent.release_go_plugin().await,
            () = alarm.rings() => {
                alarm.stop();
                // An attempt under way is finished also on `stop`: half-made VFs are worse than a short wait.
                match agent.attempt().await {
                    Next::Rest => {}
                    Next::Again { times } => alarm.again(times),
                    Next::HoldOff { times } => alarm.hold_off(times),
                    Next::StillAtIt => alarm.hold_off(WHILE_STILL_AT_IT),
                    Next::End => {
                        stop.cancelled().await;
                        break;
                    }
                }
                if let Some(then) = agent.look_again() {
                    alarm.at(then);
                }
            }
        }
    }
    // A step that the kernel still executes ends with a notification, or becomes overdue.
    while let Some(deadline) = agent.next_step_deadline() {
        let _ = tokio::time::timeout_at(deadline, machine_changed.notified()).await;
        agent.reap_steps();
    }
    tracing::info!("agent stops");
    Ok(())
}
