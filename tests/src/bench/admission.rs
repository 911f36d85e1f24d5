//! Policies at admission in a large fleet: written (dry run) through the API server, beside the same writes that it asks
//! nobody about.

mod served;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use fixture_kube::ControlPlane;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::interval;
use vfleet_api::{SriovNetworkNodePolicy, SriovOperatorConfig};

use super::fleet::{self, Cards};
use super::report::{Figure, Limit, Row, Unit};
use served::Served;

const NAMESPACE: &str = "admission";
/// Another installation's, about which nobody is asked.
const BARE: &str = "admission-bare";
const POLICIES: usize = 40;
const REQUESTS: usize = 2000;
/// Requests at once. The API server, its store and this program need a core, too.
const AT_ONCE: usize = 2;
/// Meanwhile a node reports other cards so often: in a fleet where something is always under way.
const REPORTS_EVERY: Duration = Duration::from_millis(50);
/// How many kinds of nodes there are: in a fleet as they are, and in one that nobody has.
const KINDS: [(usize, [&str; 4]); 2] = [
    (
        3,
        [
            "policy at admission, median",
            "policy at admission, 99 of 100",
            "answers that took over 5 ms",
            "memory with admission",
        ],
    ),
    (
        300,
        [
            "the same with 300 kinds of nodes, median",
            "the same with 300 kinds of nodes, 99 of 100",
            "the same with 300 kinds of nodes, over 5 ms",
            "memory with 300 kinds of nodes",
        ],
    ),
];

/// What is measured, and where.
pub(crate) struct Scene<'a> {
    pub(crate) plane: &'a ControlPlane,
    /// As the administrator.
    pub(crate) client: &'a Client,
    pub(crate) vfleet: &'a Path,
    pub(crate) nodes: usize,
}

/// Measures it.
pub(crate) async fn rows(scene: Scene<'_>, say: impl Fn(&str)) -> Result<Vec<Row>> {
    let Scene { plane, client, nodes, .. } = scene;
    say(&format!("{nodes} nodes for admission"));
    for namespace in [NAMESPACE, BARE] {
        fleet::create_namespace(client, namespace).await?;
    }
    let label = format!("vfleet.io/installation={BARE}");
    plane.kubectl(&["label", "namespace", BARE, &label])?.into_stdout()?;
    fleet::create_nodes(client, 0..nodes).await?;
    fleet::create_states(client, NAMESPACE, nodes, Cards::FEW).await?;
    for number in 0..POLICIES {
        fleet::create_policy(client, NAMESPACE, other_policy(number)).await?;
    }
    switch_on(client).await?;
    let mut rows = Vec::new();
    for (kinds, [median, slow, over, in_memory]) in KINDS {
        say(&format!("{kinds} kinds of nodes"));
        fleet::for_each(0..nodes, async |number| {
            fleet::report_kind(client, NAMESPACE, &fleet::node_name(number), Cards::FEW, number % kinds).await
        })
        .await?;
        let served = Served::start(&scene).await?;
        let bare = ask_while_nodes_change(&scene, kinds, BARE).await?;
        let before = served.answers()?;
        let asked = ask_while_nodes_change(&scene, kinds, NAMESPACE).await?;
        let answers = served.answers()?.since(&before);
        ensure!(answers.all >= REQUESTS, "only {} of {REQUESTS} were asked about", answers.all);
        let row = |what, share, limit| Row {
            what,
            nodes,
            unit: Unit::TimeEach,
            bare: Some(at(&bare, share)),
            vfleet: Some(Figure::Is(at(&asked, share))),
            go: None,
            limit,
        };
        let memory = served.memory()?;
        rows.push(row(median, 0.5, None));
        rows.push(row(slow, 0.99, None));
        rows.push(Row {
            what: over,
            nodes,
            unit: Unit::Count,
            bare: None,
            #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
            vfleet: Some(Figure::Is(answers.slow as f64)),
            go: None,
            // Another program on the same two cores may be in the way once in a while.
            limit: Some(Limit { says: format!("1 of 100 of {REQUESTS}"), most: 20.0 }),
        });
        rows.push(Row {
            what: in_memory,
            nodes,
            unit: Unit::Memory,
            bare: None,
            vfleet: Some(Figure::Is(memory.now)),
            go: None,
            limit: None,
        });
    }
    Ok(rows)
}

/// One of many, each of which wants another VF of the same card.
fn other_policy(number: usize) -> Value {
    let mut policy =
        fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodePolicy", &format!("p{number}"));
    let selector =
        if number.is_multiple_of(2) { json!({}) } else { json!({ "node-role.kubernetes.io/worker": "" }) };
    policy["spec"] = json!({
        "resourceName": format!("r{number}"), "nodeSelector": selector, "numVfs": POLICIES,
        "nicSelector": { "pfNames": [format!("ens0f0#{number}-{number}")] },
    });
    policy
}

/// One for all nodes that nobody objects to, and that is compared with each of the others: it wants the next VF.
fn candidate(number: usize) -> Value {
    let mut policy =
        fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodePolicy", &format!("new-{number}"));
    policy["spec"] = json!({
        "resourceName": format!("new{number}"), "nodeSelector": { "kubernetes.io/os": "linux" },
        "numVfs": POLICIES + 1, "nicSelector": { "pfNames": [format!("ens0f0#{POLICIES}-{POLICIES}")] },
    });
    policy
}

async fn switch_on(client: &Client) -> Result<()> {
    let configs: Api<SriovOperatorConfig> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({ "spec": { "enableOperatorWebhook": true } }));
    configs.patch("default", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The times of all requests in this namespace, in order. Meanwhile agents report what is news to admission.
async fn ask_while_nodes_change(scene: &Scene<'_>, kinds: usize, namespace: &str) -> Result<Vec<f64>> {
    let nodes_change = async {
        let mut turns = interval(REPORTS_EVERY);
        for number in (0..scene.nodes).cycle() {
            turns.tick().await;
            let name = fleet::node_name(number);
            fleet::report_kind(scene.client, NAMESPACE, &name, Cards::FEW, (number + 1) % kinds).await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        changed = nodes_change => changed.and_then(|()| bail!("nodes change no more")),
        times = ask(scene.client, namespace) => times,
    }
}

/// The times of all requests in this namespace, in order.
async fn ask(client: &Client, namespace: &str) -> Result<Vec<f64>> {
    let policies: Api<SriovNetworkNodePolicy> = Api::namespaced(client.clone(), namespace);
    let parameters = PostParams { dry_run: true, ..Default::default() };
    let one = async |number: usize| {
        let policy = serde_json::from_value(candidate(number))?;
        let start = Instant::now();
        policies.create(&parameters, &policy).await?;
        anyhow::Ok(start.elapsed().as_secs_f64())
    };
    let mut times: Vec<f64> =
        stream::iter(0..REQUESTS).map(one).buffer_unordered(AT_ONCE).try_collect().await?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The time within which this share of them was.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few thousand"
)]
fn at(times: &[f64], share: f64) -> f64 {
    let place = (times.len() as f64 * share) as usize;
    times.get(place.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}
