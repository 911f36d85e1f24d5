//! Benchmark of admission in a large fleet: policies are written (dry run) through the API server, and compared with
//! the same writes without admission.

mod server;

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
use server::AdmissionServer;

const NAMESPACE: &str = "admission";
/// Namespace of another installation, without admission.
const BARE: &str = "admission-bare";
const POLICIES: usize = 40;
const REQUESTS: usize = 2000;
/// Number of concurrent requests. The API server, its store and this program need a core as well.
const CONCURRENT_REQUESTS: usize = 2;
/// Interval in which nodes report changed cards meanwhile, as in a busy fleet.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// Number of kinds of nodes, in a usual and in an extreme fleet, with the titles of the rows.
const KINDS: [(usize, [&str; 4]); 2] = [
    (
        3,
        [
            "policy at admission, median",
            "policy at admission, 99th percentile",
            "responses over 5 ms",
            "memory with admission",
        ],
    ),
    (
        300,
        [
            "  300 kinds of nodes, median",
            "  300 kinds of nodes, 99th percentile",
            "  300 kinds of nodes, responses over 5 ms",
            "memory with 300 kinds of nodes",
        ],
    ),
];

/// Setup of the benchmark.
pub(crate) struct AdmissionSetup<'a> {
    pub(crate) plane: &'a ControlPlane,
    /// Client with all rights.
    pub(crate) client: &'a Client,
    pub(crate) vfleet: &'a Path,
    pub(crate) nodes: usize,
}

/// Runs the benchmark.
pub(crate) async fn rows(setup: AdmissionSetup<'_>, log: impl Fn(&str)) -> Result<Vec<Row>> {
    let AdmissionSetup { plane, client, nodes, .. } = setup;
    log(&format!("creating {nodes} nodes for admission"));
    for namespace in [NAMESPACE, BARE] {
        fleet::create_namespace(client, namespace).await?;
    }
    let label = format!("vfleet.io/installation={BARE}");
    plane.kubectl(&["label", "namespace", BARE, &label])?.into_stdout()?;
    fleet::create_nodes(client, 0..nodes).await?;
    fleet::create_states(client, NAMESPACE, nodes, Cards::FEW).await?;
    for number in 0..POLICIES {
        fleet::create_policy(client, NAMESPACE, existing_policy(number)).await?;
    }
    enable_webhook(client).await?;
    let mut rows = Vec::new();
    for (kinds, [median, slow, over, in_memory]) in KINDS {
        log(&format!("{kinds} kinds of nodes"));
        fleet::for_each(0..nodes, async |number| {
            fleet::report_kind(client, NAMESPACE, &fleet::node_name(number), Cards::FEW, number % kinds).await
        })
        .await?;
        let server = AdmissionServer::start(&setup).await?;
        let bare = measure_while_nodes_change(&setup, kinds, BARE).await?;
        let before = server.answers()?;
        let times = measure_while_nodes_change(&setup, kinds, NAMESPACE).await?;
        let answers = server.answers()?.since(&before);
        ensure!(answers.all >= REQUESTS, "only {} of {REQUESTS} requests reached the webhook", answers.all);
        let row = |what, share, limit| Row {
            what,
            nodes,
            unit: Unit::TimeEach,
            bare: Some(percentile(&bare, share)),
            vfleet: Some(Figure::Is(percentile(&times, share))),
            go: None,
            limit,
        };
        let memory = server.memory()?;
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
            // Other programs on the same cores may delay a few responses.
            limit: Some(Limit { text: format!("1% of {REQUESTS}"), maximum: 20.0 }),
        });
        rows.push(Row {
            what: in_memory,
            nodes,
            unit: Unit::Bytes,
            bare: None,
            vfleet: Some(Figure::Is(memory.now)),
            go: None,
            limit: None,
        });
    }
    Ok(rows)
}

/// Returns one of many policies, each of which selects another VF of the same card.
fn existing_policy(number: usize) -> Value {
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

/// Returns a valid policy for all nodes that selects the next VF, and is compared with all others.
fn candidate(number: usize) -> Value {
    let mut policy =
        fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodePolicy", &format!("new-{number}"));
    policy["spec"] = json!({
        "resourceName": format!("new{number}"), "nodeSelector": { "kubernetes.io/os": "linux" },
        "numVfs": POLICIES + 1, "nicSelector": { "pfNames": [format!("ens0f0#{POLICIES}-{POLICIES}")] },
    });
    policy
}

async fn enable_webhook(client: &Client) -> Result<()> {
    let configs: Api<SriovOperatorConfig> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({ "spec": { "enableOperatorWebhook": true } }));
    configs.patch("default", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Returns the sorted times of all requests in this namespace. Meanwhile agents report changed cards.
async fn measure_while_nodes_change(
    setup: &AdmissionSetup<'_>,
    kinds: usize,
    namespace: &str,
) -> Result<Vec<f64>> {
    let nodes_change = async {
        let mut ticks = interval(REPORT_INTERVAL);
        for number in (0..setup.nodes).cycle() {
            ticks.tick().await;
            let name = fleet::node_name(number);
            fleet::report_kind(setup.client, NAMESPACE, &name, Cards::FEW, (number + 1) % kinds).await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        changed = nodes_change => changed.and_then(|()| bail!("nodes do not change any more")),
        times = measure_requests(setup.client, namespace) => times,
    }
}

/// Returns the sorted times of all requests in this namespace.
async fn measure_requests(client: &Client, namespace: &str) -> Result<Vec<f64>> {
    let policies: Api<SriovNetworkNodePolicy> = Api::namespaced(client.clone(), namespace);
    let parameters = PostParams { dry_run: true, ..Default::default() };
    let measure_one = async |number: usize| {
        let policy = serde_json::from_value(candidate(number))?;
        let start = Instant::now();
        policies.create(&parameters, &policy).await?;
        anyhow::Ok(start.elapsed().as_secs_f64())
    };
    let mut times: Vec<f64> = stream::iter(0..REQUESTS)
        .map(measure_one)
        .buffer_unordered(CONCURRENT_REQUESTS)
        .try_collect()
        .await?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Returns a percentile of sorted times; `share` is between 0 and 1.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few thousand"
)]
fn percentile(times: &[f64], share: f64) -> f64 {
    let index = (times.len() as f64 * share) as usize;
    times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}
