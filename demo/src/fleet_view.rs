//! View of the fleet at one moment, in rows.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use vfleet_api::keys::DEFAULT_POOL;
use vfleet_api::node_state::{DrainStatus, SUCCEEDED};
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_plan::drain::{DrainLimit, drain_limit};
use vfleet_plan::{NamedPool, NodeIdentity, find_pool_of_node};

use crate::fleet::Fleet;

/// Resource that pods with VFs request.
pub(crate) const RESOURCE: &str = "openshift.io/nics";

/// View of the fleet at one moment.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct FleetView {
    pub(crate) pools: Vec<PoolRow>,
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) pods: PodCount,
}

/// Number of running pods.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) struct PodCount {
    pub(crate) with_vf: usize,
    pub(crate) without: usize,
}

/// Row of a pool.
#[derive(Clone, PartialEq)]
pub(crate) struct PoolRow {
    pub(crate) name: String,
    pub(crate) limit: String,
    pub(crate) total: i64,
    pub(crate) waiting: i64,
    pub(crate) draining: i64,
    pub(crate) done: i64,
    /// Nodes that hold a slot.
    pub(crate) slots: Vec<String>,
}

/// Row of a node.
#[derive(Clone, PartialEq)]
pub(crate) struct NodeRow {
    pub(crate) name: String,
    pub(crate) pool: String,
    pub(crate) drain: DrainStatus,
    pub(crate) is_cordoned: bool,
    pub(crate) pods: PodCount,
    /// The node has reported its cards.
    pub(crate) has_cards: bool,
    pub(crate) vfs: usize,
    pub(crate) desired_vfs: i64,
    pub(crate) sync: String,
}

impl FleetView {
    pub(crate) fn of(fleet: &Fleet) -> Self {
        let mut pools: Vec<_> = fleet.pools.state();
        pools.sort_by_key(|pool| pool.name_any());
        let named: Vec<_> = pools
            .iter()
            .filter_map(|pool| Some(NamedPool { name: pool.metadata.name.as_deref()?, spec: &pool.spec }))
            .collect();
        let pods = fleet.pods.state();
        let running: Vec<_> = pods.iter().map(AsRef::as_ref).filter(|pod| is_running(pod)).collect();
        let mut states = fleet.states.state();
        states.sort_by_key(|state| state.name_any());
        let rows = states.iter().filter_map(|state| {
            let node = fleet.nodes.state().into_iter().find(|node| node.name_any() == state.name_any())?;
            Some(build_node_row(state, &node, &named, &running))
        });
        Self {
            nodes: rows.collect(),
            // The default pool is empty: all nodes belong to other pools.
            pools: pools
                .iter()
                .filter(|pool| pool.name_any() != DEFAULT_POOL)
                .map(|pool| build_pool_row(pool))
                .collect(),
            pods: count(running.iter().copied()),
        }
    }

    /// Returns whether so many nodes have reported their cards and are in the desired state.
    pub(crate) fn all_reported(&self, nodes: usize) -> bool {
        self.nodes.len() == nodes && self.nodes.iter().all(|node| node.has_cards && node.sync == SUCCEEDED)
    }

    /// Returns whether every node has the desired number of VFs and is schedulable, and all pools are done.
    pub(crate) fn is_settled(&self, vfs: impl Fn(&str) -> usize) -> bool {
        let is_node_settled = |node: &NodeRow| {
            let is_schedulable = node.drain == DrainStatus::Idle && !node.is_cordoned;
            node.vfs == vfs(&node.name) && node.sync == SUCCEEDED && is_schedulable
        };
        let is_pool_settled =
            |pool: &PoolRow| pool.slots.is_empty() && pool.total > 0 && pool.done == pool.total;
        self.nodes.iter().all(is_node_settled) && self.pools.iter().all(is_pool_settled)
    }
}

fn build_pool_row(pool: &SriovNetworkPoolConfig) -> PoolRow {
    let status = pool.status.clone().unwrap_or_default();
    let nodes = status.nodes.unwrap_or_default();
    let total = nodes.total.unwrap_or(0);
    let name = pool.name_any();
    let (most, _) =
        drain_limit(&NamedPool { name: &name, spec: &pool.spec }, usize::try_from(total).unwrap_or_default());
    let slots = status.slots.unwrap_or_default();
    PoolRow {
        limit: match most {
            DrainLimit::Unlimited => "none".to_owned(),
            DrainLimit::NoPool => "never".to_owned(),
            DrainLimit::AtMost(most) => most.to_string(),
        },
        total,
        waiting: nodes.waiting.unwrap_or(0),
        draining: nodes.draining.unwrap_or(0),
        done: nodes.done.unwrap_or(0),
        slots: slots.into_iter().map(|slot| slot.node).collect(),
        name,
    }
}

fn build_node_row(
    state: &SriovNetworkNodeState,
    node: &Node,
    pools: &[NamedPool<'_>],
    running: &[&Pod],
) -> NodeRow {
    let name = node.name_any();
    let status = state.status.clone().unwrap_or_default();
    let cards = status.interfaces.unwrap_or_default();
    let pool = find_pool_of_node(pools, NodeIdentity { name: &name, labels: node.labels() });
    let on_node = running.iter().copied().filter(|pod| node_of(pod) == Some(name.as_str()));
    NodeRow {
        pool: pool.map(|pool| pool.name.to_owned()).unwrap_or_default(),
        drain: status.drain_status.unwrap_or(DrainStatus::Idle),
        is_cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
        pods: count(on_node),
        has_cards: !cards.is_empty(),
        vfs: cards.iter().map(|card| card.vfs.iter().flatten().count()).sum(),
        desired_vfs: state.spec.interfaces.iter().flatten().filter_map(|card| card.num_vfs).sum(),
        sync: status.sync_status.unwrap_or_default(),
        name,
    }
}

fn count<'a>(pods: impl Iterator<Item = &'a Pod>) -> PodCount {
    let mut count = PodCount::default();
    for pod in pods {
        if has_vf(pod) {
            count.with_vf += 1;
        } else {
            count.without += 1;
        }
    }
    count
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn has_vf(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut limits = containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    limits.any(|limits| limits.contains_key(RESOURCE))
}
