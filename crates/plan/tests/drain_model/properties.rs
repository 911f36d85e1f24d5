//! What must hold, whatever happens.

use stateright::Property;
use vfleet_api::node_state::DrainStatus;

use crate::protocol::Protocol;
use crate::world::{POOLS, Pod, World};

pub(crate) const LIMIT: &str = "no pool is above its limit";
pub(crate) const PODS: &str = "a drained node has no pods";
pub(crate) const WITHDRAWAL: &str = "a withdrawal is not overwritten";
pub(crate) const SERVED: &str = "everybody who asked is served";
pub(crate) const CORDON: &str = "no node is left cordoned by us";
pub(crate) const SLOTS: &str = "no slot is left behind";
pub(crate) const USED: &str = "a node is drained";

/// The last word of a run is said when nothing more happens: as every run ends, what holds then is what comes eventually.
/// (`Property::eventually` is content with what was so once, on any of the ways to a state.)
pub(crate) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(LIMIT, |protocol: &Protocol, world: &World| {
            (0..POOLS).all(|pool| {
                let counts = |node: &usize| {
                    world.api.nodes[*node].pool == pool && world.api.occupies(*node) && !world.moved[*node]
                };
                (0..protocol.nodes).filter(counts).count() <= 1
            })
        }),
        Property::always(PODS, |protocol: &Protocol, world: &World| {
            (0..protocol.nodes).all(|node| {
                let is_drained = world.status(node) == Some(DrainStatus::DrainingComplete);
                world.pods[node] == Pod::None || !is_drained && !world.agents[node].works
            })
        }),
        Property::always(WITHDRAWAL, |_, world: &World| !world.overwrote),
        Property::always(SERVED, |protocol: &Protocol, world: &World| {
            let is_served = |node: usize| {
                world.agents[node].need.is_none() && world.status(node) == Some(DrainStatus::Idle)
            };
            !world.at_rest || (0..protocol.nodes).all(is_served)
        }),
        Property::always(CORDON, |protocol: &Protocol, world: &World| {
            let is_as_found = |node: usize| {
                let facts = world.api.nodes[node].facts;
                facts.mark.is_none() && facts.is_cordoned == (protocol.finds_cordon && node == 0)
            };
            !world.at_rest || (0..protocol.nodes).all(is_as_found)
        }),
        Property::always(SLOTS, |_, world: &World| {
            !world.at_rest || world.api.pools.iter().flatten().all(Option::is_none)
        }),
        Property::sometimes(USED, |_, world: &World| world.status(0) == Some(DrainStatus::DrainingComplete)),
    ]
}

impl World {
    fn status(&self, node: usize) -> Option<DrainStatus> {
        self.api.states[node].map(|state| state.status)
    }
}
