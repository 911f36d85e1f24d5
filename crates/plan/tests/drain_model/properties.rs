//! Properties that must hold in every state.

use stateright::Property;
use vfleet_api::node_state::DrainStatus;

use crate::model::{ModelState, POOLS, Pod};
use crate::protocol::Protocol;

pub(crate) const LIMIT: &str = "no pool is above its limit";
pub(crate) const PODS: &str = "a drained node has no pods";
pub(crate) const WITHDRAWAL: &str = "a withdrawal is not overwritten";
pub(crate) const SERVED: &str = "every request is served";
pub(crate) const CORDON: &str = "no node is left cordoned by us";
pub(crate) const SLOTS: &str = "no slot is left behind";
pub(crate) const USED: &str = "a node is drained";

/// Returns all properties. Liveness is checked in final states: as every run ends, what holds there holds eventually.
/// (`Property::eventually` would accept a property that held once on any path to a state.)
pub(crate) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(LIMIT, |protocol: &Protocol, model: &ModelState| {
            (0..POOLS).all(|pool| {
                let counts = |node: &usize| {
                    model.api.nodes[*node].pool == pool && model.api.occupies(*node) && !model.moved[*node]
                };
                (0..protocol.nodes).filter(counts).count() <= 1
            })
        }),
        Property::always(PODS, |protocol: &Protocol, model: &ModelState| {
            (0..protocol.nodes).all(|node| {
                let is_drained = model.status(node) == Some(DrainStatus::DrainingComplete);
                model.pods[node] == Pod::None || !is_drained && !model.agents[node].is_busy
            })
        }),
        Property::always(WITHDRAWAL, |_, model: &ModelState| !model.overwrote),
        Property::always(SERVED, |protocol: &Protocol, model: &ModelState| {
            let is_served = |node: usize| {
                model.agents[node].needed.is_none() && model.status(node) == Some(DrainStatus::Idle)
            };
            !model.is_final || (0..protocol.nodes).all(is_served)
        }),
        Property::always(CORDON, |protocol: &Protocol, model: &ModelState| {
            let is_restored = |node: usize| {
                let facts = model.api.nodes[node].facts;
                facts.mark.is_none() && facts.is_cordoned == (protocol.has_preexisting_cordon && node == 0)
            };
            !model.is_final || (0..protocol.nodes).all(is_restored)
        }),
        Property::always(SLOTS, |_, model: &ModelState| {
            !model.is_final || model.api.pools.iter().flatten().all(Option::is_none)
        }),
        Property::sometimes(USED, |_, model: &ModelState| {
            model.status(0) == Some(DrainStatus::DrainingComplete)
        }),
    ]
}

impl ModelState {
    fn status(&self, node: usize) -> Option<DrainStatus> {
        self.api.states[node].map(|state| state.status)
    }
}
