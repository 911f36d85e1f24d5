//! The node state controller: what each node shall be like.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::{DeserializeGuard, PartialObjectMeta, Resource};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState};

use crate::context::Context;
use crate::fleet::{Decision, Fleet};
use crate::patch::Writer;
use crate::settings::Settings;
use crate::work::Work;
use crate::{OperatorError, watch};

/// How many node states are written at once: enough to keep the API server busy, few enough to leave room for
/// others in its default queue for one client.
const WRITES_AT_ONCE: usize = 32;

/// Something changed.
enum Change {
    Policy(Box<Event<DeserializeGuard<SriovNetworkNodePolicy>>>),
    Node(Box<Event<PartialObjectMeta<Node>>>),
    State(Box<Event<DeserializeGuard<SriovNetworkNodeState>>>),
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    context: Context,
    _settings: Settings,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let mut changes = pin!(changes(&context));
    let mut controller = Controller {
        states: Api::namespaced(context.client.clone(), &context.config.namespace),
        writer: Writer::new(context.leadership.clone()),
        fleet: Fleet::default(),
        work: Work::new("node-states", WRITES_AT_ONCE, Arc::clone(&context.metrics)),
        warned: BTreeSet::new(),
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.take(change.ok_or(OperatorError::WatchEnded)?),
            () = controller.work.progress() => {}
        }
        controller.start_writes();
    }
    // Writes under way are short; letting them end leaves no half of a thought behind.
    controller.work.finish().await;
    Ok(())
}

fn changes(context: &Context) -> impl futures::Stream<Item = Change> + use<> {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let all = watcher::Config::default;
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    let nodes = watcher(nodes, all()).default_backoff().filter_map(async |change| {
        change.inspect_err(|error| tracing::warn!(%error, "watching nodes is interrupted, will go on")).ok()
    });
    futures::stream::select_all([
        watch::changes(Api::namespaced(client.clone(), namespace), all())
            .map(|event| Change::Policy(Box::new(event)))
            .boxed(),
        watch::changes(Api::namespaced(client.clone(), namespace), all())
            .map(|event| Change::State(Box::new(event)))
            .boxed(),
        nodes.map(|event| Change::Node(Box::new(event))).boxed(),
    ])
}

struct Controller {
    states: Api<SriovNetworkNodeState>,
    writer: Writer,
    fleet: Fleet,
    work: Work<String>,
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
        self.work.touch(touched);
    }

    fn start_writes(&mut self) {
        if !self.fleet.is_complete() {
            return;
        }
        while let Some(node) = self.work.next_touched() {
            self.plan(node);
        }
    }

    fn plan(&mut self, node: String) {
        let (decision, problems) = self.fleet.decide(&node);
        for problem in problems.iter().map(ToString::to_string) {
            if self.warned.insert(problem.clone()) {
                tracing::warn!(node, problem, "a policy cannot be followed");
            }
        }
        let content = match decision {
            Decision::Nothing => return self.work.nothing_to_do(&node),
            Decision::Create => json!({}),
            Decision::Apply(spec) => json!({ "spec": spec }),
        };
        let (writer, api, name) = (self.writer.clone(), self.states.clone(), node.clone());
        self.work.start(node, async move {
            writer.apply(&api, &name, &object(&name, &content)).await?;
            tracing::info!(node = name, "node state written");
            Ok(())
        });
    }
}

fn object(node: &str, content: &Value) -> Value {
    let mut object = json!({
        "apiVersion": SriovNetworkNodeState::api_version(&()),
        "kind": SriovNetworkNodeState::kind(&()),
        "metadata": { "name": node },
    });
    if let (Some(object), Some(content)) = (object.as_object_mut(), content.as_object()) {
        object.extend(content.clone());
    }
    object
}
