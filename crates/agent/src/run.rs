//! Main loop of the agent.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use vfleet_api::SriovNetworkNodeState;
use vfleet_host::{HostError, WatchGuard};

use crate::Config;
use crate::attachments::AttachmentSweeper;
use crate::attempt::{Agent, NextAction};
use crate::bridge_resources::BridgeResourceReporter;
use crate::nic_ids;
use crate::node_object::NodeContextState;
use crate::notice::EventSink;
use crate::wake_timer::WakeTimer;
use crate::watch_log::WatchLog;

/// A card that the kernel changes causes many events. The reaction is delayed as after so many repairs.
const REPAIRS_WHILE_STEP_RUNS: u32 = 2;

/// Error that ends the agent.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Changes of the machine cannot be watched.
    #[error("cannot watch the machine for changes")]
    Host(#[from] HostError),
    /// A watch stream ended, which it never should.
    #[error("a watch of the API server ended unexpectedly")]
    WatchEnded,
}

/// Waits for a change of the node context; forever when the machine has none.
async fn next_node_context(node_context: &mut Option<watch::Receiver<NodeContextState>>) -> NodeContextState {
    if let Some(context) = node_context
        && context.changed().await.is_ok()
    {
        return context.borrow_and_update().clone();
    }
    std::future::pending().await
}

/// Starts to release attachments of pods that are gone, until `stop`. Returns the watch of namespaces.
fn start_sweeper(
    client: &Client,
    config: &Config,
    released: &Arc<Notify>,
    pods_changed: Arc<Notify>,
    stop: &CancellationToken,
) -> Result<Option<WatchGuard>, HostError> {
    let Some(host) = &config.attachments else { return Ok(None) };
    let wake = Arc::clone(&pods_changed);
    let watch = config.host.on_namespace_end(Box::new(move || wake.notify_one()))?;
    let sweeper = AttachmentSweeper::new(Arc::clone(host), Arc::clone(&config.metrics), Arc::clone(released))
        .with_ovs(config.settings.ovsdb_socket.parse().ok());
    let events = EventSink::new(client, &config.namespace, &config.node);
    tokio::spawn(sweeper.run(pods_changed, Some(events), stop.clone()));
    Ok(Some(watch))
}

/// Starts to handle the resources of the Node that stand for bridges, until `stop`. Returns the task.
fn start_bridge_resources(
    client: &Client,
    config: &Config,
    stop: &CancellationToken,
) -> Option<AbortOnDropHandle<()>> {
    let reporter = BridgeResourceReporter::new(config)?;
    let task = reporter.run(client.clone(), config.namespace.clone(), stop.clone());
    Some(AbortOnDropHandle::new(tokio::spawn(task)))
}

/// Runs the agent until `stop`.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), AgentError> {
    let (node, namespace, settings) = (&config.node, &config.namespace, &config.settings);
    tracing::info!(
        node,
        namespace,
        configuration_mode = config.mode.name(),
        parallel_nic_config = !settings.one_card_at_a_time,
        mellanox = settings.options.mellanox,
        mellanox_firmware_reset = settings.options.firmware_reset,
        "agent started"
    );
    let (machine_changed, pods_changed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let wakes = [&machine_changed, &pods_changed].map(Arc::clone);
    let _watch = config.host.on_change(Box::new(move || wakes.iter().for_each(|wake| wake.notify_one())))?;
    let _sweeper = start_sweeper(&client, &config, &machine_changed, pods_changed, &stop)?;
    let _bridge_resources = start_bridge_resources(&client, &config, &stop);

    let states: Api<SriovNetworkNodeState> = Api::namespaced(client.clone(), &config.namespace);
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={}", config.node));
    let mut changes = pin!(watcher(states, only_ours).default_backoff());
    let mut nic_filters = if config.follows_nic_ids {
        nic_ids::watch_nic_ids(&client, &config.namespace).boxed()
    } else {
        futures::stream::pending().boxed()
    };
    let mut node_context = config.node_context.clone();
    let mut process_conditions = config.process_conditions.subscribe();
    let mut watch_log = WatchLog::new(format!("node state {}", config.node));
    let mut agent = Agent::new(&client, config, &machine_changed);
    let mut timer = WakeTimer::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => match change.ok_or(AgentError::WatchEnded)? {
                Ok(event) => {
                    watch_log.received(&event);
                    if agent.handle_event(event) {
                        timer.wake_now();
                    }
                }
                Err(error) => watch_log.failed(&error),
            },
            filter = nic_filters.next() => {
                if agent.set_nic_filter(filter.ok_or(AgentError::WatchEnded)?) {
                    timer.wake_now();
                }
            }
            context = next_node_context(&mut node_context) => {
                agent.set_node_context(&context);
                timer.wake_now();
            }
            Ok(()) = process_conditions.changed() => timer.wake_now(),
            () = machine_changed.notified() => timer.wake_soon(),
            () = agent.wait_for_go_plugin() => agent.release_go_plugin().await,
            () = timer.wait() => {
                timer.clear();
                // A running attempt is finished also on `stop`: half-configured VFs are worse than a short wait.
                match agent.attempt().await {
                    NextAction::Wait => {}
                    NextAction::Retry { failures } => timer.retry_after(failures),
                    NextAction::HoldOff { repairs } => timer.hold_off(repairs),
                    NextAction::StepRunning => timer.hold_off(REPAIRS_WHILE_STEP_RUNS),
                    NextAction::Reboot => {
                        stop.cancelled().await;
                        break;
                    }
                }
                if let Some(time) = agent.next_attempt_at() {
                    timer.wake_at(time);
                }
            }
        }
    }
    // A step that the kernel still executes notifies when it ends, or becomes overdue.
    while let Some(deadline) = agent.next_step_deadline() {
        let _ = tokio::time::timeout_at(deadline, machine_changed.notified()).await;
        agent.reap_steps();
    }
    tracing::info!("agent stopped");
    Ok(())
}
