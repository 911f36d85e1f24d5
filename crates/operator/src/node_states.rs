//! The node state controller: what each node shall be like.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use thiserror::Error;
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState};

use crate::Config;
use crate::fleet::{Decision, Fleet};
use crate::patch::{self, WriteError};
use crate::retry::Retries;

/// How many node states are written at once: enough to keep the API server busy, few enough to leave room for
/// others in its default queue for one client.
const WRITES_AT_ONCE: usize = 32;

/// Why the operator ended.
#[derive(Debug, Error)]
pub enum OperatorError {
    /// The streams of changes ended, which they never should.
    #[error("the API server's changes cannot be followed any more")]
    WatchEnded,
}

/// Something changed.
enum Change {
    Policy(Box<Event<DeserializeGuard<SriovNetworkNodePolicy>>>),
    Node(Box<Event<PartialObjectMeta<Node>>>),
    State(Box<Event<DeserializeGuard<SriovNetworkNodeState>>>),
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    client: Client,
    config: &Config,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let mut controller = Controller {
        states: Api::namespaced(client.clone(), &config.namespace),
        fleet: Fleet::default(),
        dirty: BTreeSet::new(),
        writing: HashMap::new(),
        writes: JoinSet::new(),
        retries: Retries::default(),
        warned: BTreeSet::new(),
    };
    let mut changes = pin!(changes(client, config));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.take(change.ok_or(OperatorError::WatchEnded)?),
            Some(written) = controller.writes.join_next_with_id() => controller.written(written),
            node = controller.retries.next() => { controller.dirty.insert(node); }
        }
        controller.start_writes();
    }
    // Writes under way are short; letting them end leaves no half of a thought behind.
    while controller.writes.join_next().await.is_some() {}
    Ok(())
}

fn changes(client: Client, config: &Config) -> impl futures::Stream<Item = Change> + use<> {
    let policies: Api<DeserializeGuard<SriovNetworkNodePolicy>> =
        Api::namespaced(client.clone(), &config.namespace);
    let states: Api<DeserializeGuard<SriovNetworkNodeState>> =
        Api::namespaced(client.clone(), &config.namespace);
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client);
    let all = watcher::Config::default;
    futures::stream::select_all([
        watch(policies, all()).map_ok(|event| Change::Policy(Box::new(event))).default_backoff().boxed(),
        watch(nodes, all()).map_ok(|event| Change::Node(Box::new(event))).default_backoff().boxed(),
        watch(states, all()).map_ok(|event| Change::State(Box::new(event))).default_backoff().boxed(),
    ])
    .filter_map(async |change| {
        change.inspect_err(|error| tracing::warn!(%error, "watching is interrupted, will go on")).ok()
    })
}

struct Controller {
    states: Api<SriovNetworkNodeState>,
    fleet: Fleet,
    /// Nodes to plan.
    dirty: BTreeSet<String>,
    /// Nodes that are being written, by task; planned again only after that.
    writing: HashMap<task::Id, String>,
    writes: JoinSet<Result<(), WriteError>>,
    retries: Retries,
    /// What was said about policies. Once is enough, not once for each node.
    warned: BTreeSet<String>,
}

impl Controller {
    fn take(&mut self, change: Change) {
        let touched = match change {
            Change::Policy(event) => self.fleet.policy(*event),
            Change::Node(event) => self.fleet.node(*event),
            Change::State(event) => self.fleet.state(*event),
        };
        self.dirty.extend(touched);
    }

    fn start_writes(&mut self) {
        if !self.fleet.is_complete() {
            return;
        }
        let mut waiting = BTreeSet::new();
        while let Some(node) = self.dirty.pop_first() {
            if self.writing.values().any(|writing| *writing == node) {
                waiting.insert(node);
            } else if self.writes.len() >= WRITES_AT_ONCE {
                waiting.insert(node);
                break;
            } else {
                self.plan(node);
            }
        }
        self.dirty.append(&mut waiting);
    }

    fn plan(&mut self, node: String) {
        let (decision, problems) = self.fleet.decide(&node);
        for problem in problems.iter().map(ToString::to_string) {
            if self.warned.insert(problem.clone()) {
                tracing::warn!(node, problem, "a policy cannot be followed");
            }
        }
        let (api, name) = (self.states.clone(), node.clone());
        let write = match decision {
            Decision::Nothing => return,
            Decision::Create => self.writes.spawn(async move { patch::create(&api, &name).await }),
            Decision::Apply(spec) => {
                self.writes.spawn(async move { patch::apply_spec(&api, &name, &spec).await })
            }
        };
        self.writing.insert(write.id(), node);
    }

    fn written(&mut self, written: Result<(task::Id, Result<(), WriteError>), task::JoinError>) {
        let (id, result) = match written {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(WriteError::Thread(error))),
        };
        let Some(node) = self.writing.remove(&id) else { return };
        match result {
            Ok(()) => {
                tracing::info!(node, "node state written");
                self.retries.forget(&node);
            }
            Err(error) => {
                tracing::warn!(node, error = %error, cause = ?error, "node state not written, will try again");
                self.retries.later(node);
            }
        }
    }
}
