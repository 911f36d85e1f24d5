//! Drains of many nodes in pools with different limits, while the operator is killed repeatedly.
//!
//! `FLEET_TIMES=3` multiplies nodes and kills by three.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::node_state::DrainStatus::Idle;
use vfleet_tests::cluster::{Cluster, NodeStateView, Program, machine};
use vfleet_tests::drain::log::DrainLog;
use vfleet_tests::drain::{RESOURCE, cordon_mark, is_cordoned, status_of};
use vfleet_tests::plane::Plane;

/// Two ports with 7 VFs each.
const PF: &str = "enp1s0";
const POOL_LABEL: &str = "fleet.test/pool";
const KILLS: usize = 10;
/// `Drain_Required`, `Draining`, `Draining_Complete`, `Idle`.
const STEPS_OF_A_NODE: usize = 4;
const DEADLINE: Duration = Duration::from_mins(5);

/// Pool with its nodes and the budget of their pods.
struct Pool {
    name: &'static str,
    nodes: usize,
    spec: fn() -> Value,
    /// Number of nodes, out of the given number, that may be drained at once; `None` for no limit.
    limit: fn(usize) -> Option<usize>,
    /// `maxUnavailable` of the budget: less than the number of drained nodes.
    budget: usize,
}

const POOLS: [Pool; 4] = [
    Pool { name: "three", nodes: 12, spec: || json!({ "maxUnavailable": 3 }), limit: |_| Some(3), budget: 2 },
    Pool {
        name: "tenth",
        nodes: 40,
        spec: || json!({ "maxUnavailable": "10%" }),
        limit: |nodes| Some(nodes / 10),
        budget: 3,
    },
    Pool {
        name: "eight",
        nodes: 24,
        spec: || json!({ "drainConfig": { "maxParallelNodeConfiguration": 8 } }),
        limit: |_| Some(8),
        budget: 6,
    },
    Pool {
        name: "free",
        nodes: 24,
        spec: || json!({ "drainConfig": { "maxParallelNodeConfiguration": 0 } }),
        limit: |_| None,
        budget: 12,
    },
];

impl Pool {
    fn nodes(&self) -> usize {
        self.nodes * times()
    }

    fn members(&self) -> Vec<String> {
        (0..self.nodes()).map(|number| format!("fleet-{}-{number:02}", self.name)).collect()
    }
}

/// Returns the factor for nodes and kills.
fn times() -> usize {
    match std::env::var("FLEET_TIMES") {
        Ok(text) => text.parse().expect("FLEET_TIMES is a number"),
        Err(_) => 1,
    }
}

#[tokio::test]
async fn limits_hold_while_the_operator_is_killed_again_and_again() {
    let started = Instant::now();
    let say = |what: &str| eprintln!("{:5.1} s: {what}", started.elapsed().as_secs_f64());
    let cluster = Cluster::new("fleet", Plane::LargeFleet).await;
    let mut operator = start_operator(&cluster);
    create_nodes(&cluster).await;
    let names: Vec<_> = POOLS.iter().flat_map(Pool::members).collect();
    let _agents = cluster.start_sim(&names, &machine());
    for pool in &POOLS {
        let mut spec = (pool.spec)();
        spec["nodeSelector"] = json!({ "matchLabels": { POOL_LABEL: pool.name } });
        cluster.apply("SriovNetworkPoolConfig", "sriovnetworkpoolconfigs", pool.name, &spec).await;
    }
    apply_vfs(&cluster, 4).await;
    expect_all(&cluster, &names, "4 VFs", |state| state.is_synced() && state.vfs(PF).len() == 4).await;
    say("all nodes have VFs");
    run_pods(&cluster).await;
    say("a pod runs on each node");

    let mut log = DrainLog::start(&cluster);
    apply_vfs(&cluster, 6).await;
    let mut random = Random::new();
    let steps = names.len() * STEPS_OF_A_NODE;
    let kills = KILLS * times();
    for kill in 0..kills {
        let at = (kill * steps + random.below(steps)) / kills;
        let reached = tokio::time::timeout(DEADLINE, log.wait_for_changes(at)).await;
        assert!(reached.is_ok(), "stuck after {} steps\n{}", log.count_changes(), cluster.log());
        operator.kill();
        operator = start_operator(&cluster);
        say(&format!("killed after {at} of {steps} steps"));
    }
    expect_all(&cluster, &names, "6 VFs", |state| state.is_synced() && state.vfs(PF).len() == 6).await;
    for node in &names {
        cluster.expect_drain(node, Idle).await;
        cluster.expect_uncordoned(node).await;
    }
    say("all nodes have their new VFs and are idle");

    for pool in &POOLS {
        let most = log.max_busy_nodes(&pool.members());
        say(&format!("pool {}: {most} at once of {} nodes", pool.name, pool.nodes()));
        match (pool.limit)(pool.nodes()) {
            Some(limit) => assert_eq!(most, limit, "pool {}", pool.name),
            // More nodes are drained at once than the budget allows pods to be evicted.
            None => assert!(most > pool.budget, "pool {}: {most}", pool.name),
        }
    }
    assert_eq!(log.pods_on_drained_nodes(), Vec::<String>::new());
    expect_nothing_left(&cluster, &names).await;
    let refusals = count_refusals(&cluster).await;
    say(&format!("at least {refusals} nodes had to wait for a budget"));
    assert!(refusals > 0, "no budget refused an eviction");
}

/// Starts the operator with a fixed replica name, so that it acquires its lease again at once.
fn start_operator(cluster: &Cluster) -> Program {
    cluster.start_operator_with(&[("POD_NAME", "operator-0")])
}

/// Creates nodes for the simulated agents, with capacity for a few pods with VFs.
async fn create_nodes(cluster: &Cluster) {
    let api = cluster.nodes();
    let nodes =
        POOLS.iter().flat_map(|pool| pool.members().into_iter().map(move |name| node(&name, pool.name)));
    let params = PostParams::default();
    let created = futures::stream::iter(nodes).map(|node| {
        let (api, params) = (&api, &params);
        async move { api.create(params, &node).await }
    });
    created.buffer_unordered(16).try_for_each(async |_| Ok(())).await.unwrap();
}

fn node(name: &str, pool: &str) -> Node {
    let capacity = json!({ "cpu": "32", "memory": "64Gi", "pods": "110", RESOURCE: "4" });
    let labels = json!({
        POOL_LABEL: pool, "kubernetes.io/hostname": name, "vfleet.io/simulated": "true",
        "node-role.kubernetes.io/worker": "", "kubernetes.io/os": "linux",
    });
    let object = json!({
        "metadata": { "name": name, "labels": labels, "annotations": { "kwok.x-k8s.io/node": "fake" } },
        "status": { "capacity": capacity, "allocatable": capacity },
    });
    serde_json::from_value(object).unwrap()
}

async fn apply_vfs(cluster: &Cluster, count: usize) {
    cluster.apply_policy("p", json!({ "numVfs": count, "nicSelector": { "pfNames": [PF] } })).await;
}

/// Creates a Deployment with one pod on each node, and a budget, for each pool.
async fn run_pods(cluster: &Cluster) {
    let objects: Vec<_> = POOLS.iter().flat_map(|pool| [deployment(pool), budget(pool)]).collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let file = cluster.write_file("pods.json", &list.to_string());
    cluster.apply_file(&file);
    for pool in &POOLS {
        let expected = i32::try_from(pool.nodes()).unwrap();
        let runs = |set: &Deployment| {
            set.status.as_ref().and_then(|status| status.available_replicas) == Some(expected)
        };
        cluster.wait_for(pool.name, "all pods run", runs).await;
        let counted = |budget: &PodDisruptionBudget| {
            budget.status.as_ref().is_some_and(|status| status.current_healthy == expected)
        };
        cluster.wait_for(pool.name, "all pods are counted", counted).await;
    }
    let pods = cluster.api::<k8s_openapi::api::core::v1::Pod>().list(&ListParams::default()).await.unwrap();
    let mut on_node: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.items.into_iter().filter_map(|pod| pod.spec?.node_name) {
        *on_node.entry(pod).or_default() += 1;
    }
    let expected: usize = POOLS.iter().map(Pool::nodes).sum();
    assert_eq!((on_node.len(), on_node.values().max()), (expected, Some(&1)), "{on_node:?}");
}

fn deployment(pool: &Pool) -> Value {
    let labels = json!({ "app": pool.name });
    // One pod on each node, but not on cordoned ones.
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor", "labelSelector": { "matchLabels": labels },
    }]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": pool.name },
        "spec": {
            "replicas": pool.nodes(), "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "nodeSelector": { POOL_LABEL: pool.name }, "topologySpreadConstraints": spread,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "c", "image": "none", "resources": { "limits": { RESOURCE: "1" } } }],
                },
            },
        },
    })
}

fn budget(pool: &Pool) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": pool.name },
        "spec": { "maxUnavailable": pool.budget, "selector": { "matchLabels": { "app": pool.name } } },
    })
}

async fn expect_all(cluster: &Cluster, nodes: &[String], what: &str, like: impl Fn(&NodeStateView) -> bool) {
    for node in nodes {
        cluster.wait(node, what, &like).await;
    }
}

/// Expects that no node, node state or pool shows a trace of a drain.
async fn expect_nothing_left(cluster: &Cluster, names: &[String]) {
    let nodes = cluster.nodes().list(&ListParams::default()).await.unwrap();
    let busy: Vec<_> = nodes.iter().filter(|node| is_cordoned(node) || cordon_mark(node).is_some()).collect();
    assert!(nodes.items.len() == names.len() && busy.is_empty(), "{busy:#?}");
    let states = cluster.states().list(&ListParams::default()).await.unwrap();
    let busy: Vec<_> =
        states.iter().filter(|state: &&SriovNetworkNodeState| status_of(state) != Idle).collect();
    assert!(states.items.len() == names.len() && busy.is_empty(), "{busy:#?}");
    for pool in &POOLS {
        let empty = |pool: &vfleet_api::SriovNetworkPoolConfig| {
            pool.status.as_ref().and_then(|status| status.slots.as_ref()).is_none_or(Vec::is_empty)
        };
        cluster.wait_for(pool.name, "no slots", empty).await;
    }
}

/// Returns the number of Events about refused evictions.
async fn count_refusals(cluster: &Cluster) -> usize {
    let events =
        cluster.api::<k8s_openapi::api::events::v1::Event>().list(&ListParams::default()).await.unwrap();
    events.iter().filter(|event| event.reason.as_deref() == Some("EvictionRefused")).count()
}

/// Pseudorandom numbers from a seed.
struct Random(u64);

impl Random {
    /// Uses the seed of `VFLEET_SEED`, or 1.
    fn new() -> Self {
        let seed = std::env::var("VFLEET_SEED").ok();
        Self(seed.map_or(1, |text| text.parse().expect("VFLEET_SEED is a number")))
    }

    /// Returns a number from 0 to `end - 1`.
    fn below(&mut self, end: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap_or_default()
    }
}
