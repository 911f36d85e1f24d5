//! Open vSwitch bridges as resources in the capacity of the Node, as the marker of ovs-cni reports them. Pods that request
//! such a resource are scheduled only to nodes that have the bridge.
//!
//! Only the capacity is written: the kubelet computes what pods may allocate from it, and would overwrite anything else.

use thiserror::Error;
use vfleet_api::keys::BRIDGE_RESOURCE_DOMAIN;

use crate::admission::is_extended_resource;
use crate::facts::OvsFacts;
use crate::prelude::*;

/// Quantity of each resource, in the form in which the API server stores it. It limits the pods on a bridge to 1000, as with
/// ovs-cni: a resource without a limit does not exist.
pub const BRIDGE_QUANTITY: &str = "1k";

/// Handling of the resources by the agent of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BridgeResourceMode {
    /// The agent neither writes nor removes resources: its node has no machine.
    #[default]
    Ignored,
    /// The agent removes the resources that it wrote earlier: the feature gate is off.
    Withdrawn,
    /// The agent reports a resource for each bridge.
    Reported,
}

/// Resources of bridges in the capacity of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeCapacity {
    quantities: BTreeMap<String, String>,
    owned: BTreeSet<String>,
}

impl BridgeCapacity {
    /// Returns the resources of bridges in a capacity. `owned` are the names of resources that the agent wrote, and whose
    /// quantities no other program changed since. Other resources are ignored.
    pub fn new(
        capacity: impl IntoIterator<Item = (String, String)>,
        owned: impl IntoIterator<Item = String>,
    ) -> Self {
        let quantities = capacity.into_iter().filter(|(name, _)| is_bridge_resource(name)).collect();
        Self { quantities, owned: owned.into_iter().filter(|name| is_bridge_resource(name)).collect() }
    }

    /// Returns the names of all resources of bridges.
    pub fn names(&self) -> BTreeSet<&str> {
        self.quantities.keys().map(String::as_str).collect()
    }

    /// Returns whether the agent wrote a resource that is still there.
    pub fn has_own(&self) -> bool {
        !self.owned.is_empty()
    }
}

/// Returns whether a resource of a Node stands for a bridge.
fn is_bridge_resource(name: &str) -> bool {
    name.strip_prefix(BRIDGE_RESOURCE_DOMAIN).is_some_and(|rest| rest.starts_with('/'))
}

/// Write to the capacity of a Node. Other resources are never touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapacityChange {
    /// Server-side apply of exactly these resources, each with [`BRIDGE_QUANTITY`]. It removes resources that only the agent
    /// wrote, and keeps those of others.
    Apply(BTreeSet<String>),
    /// Removal of these resources, which another program wrote: their bridges do not exist.
    Remove(BTreeSet<String>),
}

/// Fault that keeps the resources of a Node from matching the bridges of its machine. The text includes the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BridgeResourceFault {
    /// Open vSwitch does not run. Its database is a file: the bridges are unknown, not absent.
    #[error(
        "the bridges of the node are unknown, since Open vSwitch is not running (nobody listens on socket {socket}), so the Node keeps the resources {resources}: start Open vSwitch on the node; if it was removed from the node, remove these resources with kubectl"
    )]
    OvsNotRunning { socket: String, resources: String },
    /// Open vSwitch cannot be read.
    #[error(
        "the bridges of the node are unknown, so the resources of the Node do not change until Open vSwitch can be read: {error}"
    )]
    OvsUnreadable { error: String, reason: &'static str },
    /// Names of bridges are not valid in resources.
    #[error(
        "Open vSwitch bridges without a resource: {bridges}; the name of a resource has at most 63 letters, digits, -, _ and ., and begins and ends with a letter or digit: rename the bridges"
    )]
    InvalidName { bridges: String },
}

impl BridgeResourceFault {
    /// Returns the reason for conditions and Events.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::OvsNotRunning { .. } => "OvsNotRunning",
            Self::OvsUnreadable { reason, .. } => reason,
            Self::InvalidName { .. } => "InvalidName",
        }
    }
}

/// Plan for the resources of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeResourcePlan {
    /// Next write; `None` when nothing is left to do.
    pub change: Option<CapacityChange>,
    /// Fault that remains after the write.
    pub fault: Option<BridgeResourceFault>,
}

/// Returns the plan for a Node with `found` in its capacity and these bridges on its machine. After its change was written,
/// it is planned again.
///
/// The domain of the resources belongs to the agent and to the marker of ovs-cni together, and both report the same bridges:
/// while bridges are reported, a resource without a bridge is removed whoever wrote it, as the marker does. When they are
/// withdrawn, the marker may still report them, so only resources of the agent are removed.
pub fn plan_bridge_resources(
    mode: BridgeResourceMode,
    ovs: &OvsFacts,
    found: &BridgeCapacity,
) -> BridgeResourcePlan {
    match mode {
        BridgeResourceMode::Ignored => BridgeResourcePlan::default(),
        BridgeResourceMode::Withdrawn => {
            let change = found.has_own().then(|| CapacityChange::Apply(BTreeSet::new()));
            BridgeResourcePlan { change, fault: None }
        }
        BridgeResourceMode::Reported => plan_reported(ovs, found),
    }
}

fn plan_reported(ovs: &OvsFacts, found: &BridgeCapacity) -> BridgeResourcePlan {
    let Some(database) = ovs.database() else {
        return BridgeResourcePlan { change: None, fault: unknown_bridges(ovs, found) };
    };
    let bridges = database.bridges.iter().map(|bridge| bridge.name.as_str());
    let to_resource = |bridge| (bridge, format!("{BRIDGE_RESOURCE_DOMAIN}/{bridge}"));
    let (valid, invalid): (Vec<_>, Vec<_>) =
        bridges.map(to_resource).partition(|(_, resource)| is_extended_resource(resource));
    let invalid: Vec<_> = invalid.into_iter().map(|(bridge, _)| format!("{bridge:?}")).collect();
    let change = change_to(valid.into_iter().map(|(_, resource)| resource).collect(), found);
    let fault =
        (!invalid.is_empty()).then(|| BridgeResourceFault::InvalidName { bridges: invalid.join(", ") });
    BridgeResourcePlan { change, fault }
}

/// Returns the reason why the bridges are unknown; `None` if nobody has to do anything about that.
fn unknown_bridges(ovs: &OvsFacts, found: &BridgeCapacity) -> Option<BridgeResourceFault> {
    match ovs {
        OvsFacts::NotRead | OvsFacts::Database(_) => None,
        // A node without Open vSwitch has no bridges to report.
        OvsFacts::NotRunning { .. } if found.quantities.is_empty() => None,
        OvsFacts::NotRunning { socket } => {
            let resources: Vec<_> = found.quantities.keys().map(String::as_str).collect();
            let (socket, resources) = (socket.clone(), resources.join(", "));
            Some(BridgeResourceFault::OvsNotRunning { socket, resources })
        }
        OvsFacts::Unreadable { error, reason } => {
            Some(BridgeResourceFault::OvsUnreadable { error: error.clone(), reason })
        }
    }
}

/// Returns the next write that leads to exactly the `desired` resources.
fn change_to(desired: BTreeSet<String>, found: &BridgeCapacity) -> Option<CapacityChange> {
    // The kubelet sets all quantities to 0 when it registers its node again.
    let is_complete =
        |name: &String| found.quantities.get(name).is_some_and(|found| found == BRIDGE_QUANTITY);
    if !desired.iter().all(is_complete) || !found.owned.is_subset(&desired) {
        return Some(CapacityChange::Apply(desired));
    }
    let stale: BTreeSet<_> =
        found.quantities.keys().filter(|name| !desired.contains(*name)).cloned().collect();
    (!stale.is_empty()).then_some(CapacityChange::Remove(stale))
}
