//! What is known of networks and what they depend on. Plain data and no client, so that it can be tested by calling it.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;
use vfleet_api::SriovNetworkNodePolicy;
use vfleet_api::conditions::{Verdict, updated};
use vfleet_api::keys::NETWORK_FINALIZER;
use vfleet_api::meta::Condition;
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::store::Known as ByName;
use vfleet_plan::NamedPolicy;
use vfleet_plan::admission::{Installation, ResourceFacts, check_network, valid};
use vfleet_plan::network::{
    Decision, NadFacts, NamespaceFacts, NetworkFacts, NetworkId, NetworkKind, Surroundings, decide, plan_nad,
    remembered_namespace, target_namespace,
};

use crate::networks::changes::{Change, Network, Place, SeenNad, SeenNamespace};
use crate::networks::objects::{Objects, Version};
use crate::networks::steps::News;

/// Networks, NADs and namespaces.
pub(super) struct Known {
    operator_namespace: String,
    resource_prefix: String,
    networks: HashMap<NetworkKind, Objects<Network>>,
    /// Where each network may have its NAD, and who may have one at a place.
    places: HashMap<NetworkId, Vec<Place>>,
    networks_at: HashMap<Place, BTreeSet<NetworkId>>,
    nads: Objects<SeenNad>,
    /// The cluster does not know what a NAD is.
    no_nads: bool,
    namespaces: Objects<SeenNamespace>,
    /// They offer the resources that networks name.
    policies: ByName<SriovNetworkNodePolicy>,
    /// What we last said of networks outside our namespace. An operator of another installation may say something else
    /// of them; each says it once, or both would write for ever.
    said: HashMap<NetworkId, Said>,
}

struct Said {
    uid: String,
    conditions: Vec<Condition>,
}

/// Something to do for a network.
pub(super) struct Todo {
    pub(super) network: Network,
    /// The NADs that were there when it was decided.
    pub(super) nads: HashMap<String, Version>,
    pub(super) decision: Decision,
    /// What admission would say of it; nothing about what cannot be read.
    pub(super) valid: Option<Verdict>,
}

impl Todo {
    /// All that is said together with `verdict`. What we leave out would be taken off the network.
    pub(super) fn with_valid(&self, verdict: &Verdict) -> Vec<Verdict> {
        [verdict].into_iter().chain(&self.valid).cloned().collect()
    }
}

impl Known {
    pub(super) fn new(operator_namespace: &str, resource_prefix: &str) -> Self {
        Self {
            operator_namespace: operator_namespace.to_owned(),
            resource_prefix: resource_prefix.to_owned(),
            networks: HashMap::new(),
            places: HashMap::new(),
            networks_at: HashMap::new(),
            nads: Objects::default(),
            no_nads: false,
            namespaces: Objects::default(),
            policies: ByName::default(),
            said: HashMap::new(),
        }
    }

    /// Takes in a change; gives the networks that it touches.
    pub(super) fn take(&mut self, change: Change) -> BTreeSet<NetworkId> {
        match change {
            Change::Network(kind, event) => self.network(kind, *event),
            Change::Nad(event) => self.nad(*event),
            Change::NoNads => self.no_nads(),
            Change::Namespace(event) => self.namespace(event),
            Change::Policy(event) => self.policy(*event),
        }
    }

    fn network(&mut self, kind: NetworkKind, event: Event<Network>) -> BTreeSet<NetworkId> {
        let changed: BTreeSet<_> = self.networks.entry(kind).or_default().take(event).into_iter().collect();
        for id in &changed {
            self.note_places(id);
            if self.get(id).is_none() {
                self.said.remove(id);
            }
        }
        changed
    }

    fn nad(&mut self, event: Event<SeenNad>) -> BTreeSet<NetworkId> {
        let all_are_touched = self.no_nads && matches!(event, Event::InitDone);
        let changed = self.nads.take(event);
        if all_are_touched {
            tracing::info!("there are NetworkAttachmentDefinitions now");
            self.no_nads = false;
            return self.all();
        }
        changed.iter().filter_map(|place| self.networks_at.get(place)).flatten().cloned().collect()
    }

    fn no_nads(&mut self) -> BTreeSet<NetworkId> {
        if self.no_nads {
            return BTreeSet::new();
        }
        tracing::warn!(
            "this cluster has no NetworkAttachmentDefinitions: networks wait until Multus or their \
             CustomResourceDefinition is installed"
        );
        self.no_nads = true;
        self.nads = Objects::default();
        self.all()
    }

    fn namespace(&mut self, event: Event<SeenNamespace>) -> BTreeSet<NetworkId> {
        let changed: BTreeSet<_> = self.namespaces.take(event).into_iter().collect();
        if changed.is_empty() || !self.is_complete() {
            return BTreeSet::new();
        }
        let touched = self.networks_at.iter().filter(|(place, _)| changed.contains(&place.namespace));
        touched.flat_map(|(_, networks)| networks).cloned().collect()
    }

    /// It touches the networks that name a resource which it offers, or offered.
    fn policy(&mut self, event: Event<Guarded<SriovNetworkNodePolicy>>) -> BTreeSet<NetworkId> {
        let changed = self.policies.update(event, |mut policy| {
            policy.metadata.managed_fields = None;
            policy
        });
        let versions = changed.iter().flat_map(|one| one.old.iter().chain(self.policies.get(&one.name)));
        let resources: BTreeSet<_> = versions.map(|policy| policy.spec.resource_name.as_str()).collect();
        let names_one = |id: &&NetworkId| {
            let spec = self.get(id).and_then(|network| network.spec.as_ref().ok());
            spec.is_some_and(|spec| resources.contains(spec.resource_name()))
        };
        self.networks.values().flat_map(Objects::keys).filter(names_one).cloned().collect()
    }

    fn all(&self) -> BTreeSet<NetworkId> {
        self.networks.values().flat_map(Objects::keys).cloned().collect()
    }

    /// Whether enough is known to decide: before that, an absent NAD or namespace may just not have been seen.
    pub(super) fn is_complete(&self) -> bool {
        self.namespaces.is_listed() && (self.no_nads || self.nads.is_listed()) && self.policies.is_listed()
    }

    /// Takes in what was written.
    pub(super) fn learn(&mut self, news: News) {
        match news {
            News::Nad(nad) => {
                self.nads.put(*nad);
            }
            News::Prepared { id, version, finalizers, last_namespace } => {
                if let Some(network) = self.same(&id, &version.uid) {
                    network.version = version;
                    network.finalizers = finalizers;
                    network.last_namespace = last_namespace;
                    self.note_places(&id);
                }
            }
            News::Said { id, uid, conditions } => {
                if let Some(network) = self.same(&id, &uid) {
                    network.conditions = Some(conditions.clone());
                    if id.namespace != self.operator_namespace {
                        self.said.insert(id, Said { uid, conditions });
                    }
                }
            }
        }
    }

    /// Nothing is under way any more, and all that was written is learned.
    pub(super) fn at_rest(&mut self) {
        self.networks.values_mut().for_each(Objects::forget_gone);
        self.nads.forget_gone();
        self.namespaces.forget_gone();
    }

    fn same(&mut self, id: &NetworkId, uid: &str) -> Option<&mut Network> {
        self.networks.get_mut(&id.kind)?.get_mut(id).filter(|network| network.version.uid == uid)
    }

    fn get(&self, id: &NetworkId) -> Option<&Network> {
        self.networks.get(&id.kind)?.get(id)
    }

    fn note_places(&mut self, id: &NetworkId) {
        for place in self.places.remove(id).unwrap_or_default() {
            if let Some(networks) = self.networks_at.get_mut(&place) {
                networks.remove(id);
                if networks.is_empty() {
                    self.networks_at.remove(&place);
                }
            }
        }
        let Some(network) = self.get(id) else { return };
        let mut namespaces = BTreeSet::from([self.target(network)]);
        namespaces.extend(self.remembered(network));
        let place = |namespace: &str| Place { namespace: namespace.to_owned(), name: id.name.clone() };
        let places: Vec<_> = namespaces.into_iter().map(place).collect();
        for place in &places {
            self.networks_at.entry(place.clone()).or_default().insert(id.clone());
        }
        self.places.insert(id.clone(), places);
    }

    fn target<'a>(&self, network: &'a Network) -> &'a str {
        target_namespace(&network.id, network.spec.as_ref().ok(), &self.operator_namespace)
    }

    fn remembered<'a>(&self, network: &'a Network) -> Option<&'a str> {
        remembered_namespace(&network.id, network.last_namespace.as_deref(), &self.operator_namespace)
    }

    /// What to do for a network; `None` when there is nothing.
    pub(super) fn decide(&self, id: &NetworkId) -> Option<Todo> {
        let network = self.get(id)?;
        let places = self.places.get(id).map(Vec::as_slice).unwrap_or_default();
        let nads: Vec<_> = places.iter().filter_map(|place| self.nads.get(place)).collect();
        let decision = self.decision(network, &nads);
        let nads = nads.iter().map(|nad| (nad.place.namespace.clone(), nad.version.clone())).collect();
        let mut todo = Todo { network: network.clone(), nads, decision, valid: self.valid(network) };
        let verdict = todo.decision.verdict.take();
        todo.decision.verdict = verdict.filter(|verdict| !self.is_said(network, &todo.with_valid(verdict)));
        let nothing = todo.decision.steps.is_empty() && todo.decision.verdict.is_none();
        (!nothing).then_some(todo)
    }

    /// What admission would say of the network.
    fn valid(&self, network: &Network) -> Option<Verdict> {
        let spec = network.spec.as_ref().ok()?;
        let mut offered_by: Vec<_> = self
            .policies
            .iter()
            .filter(|(_, policy)| policy.spec.resource_name == spec.resource_name())
            .map(|(name, policy)| NamedPolicy { name, spec: &policy.spec })
            .collect();
        offered_by.sort_unstable_by_key(|policy| policy.name);
        // Which cards are reported is no matter of networks.
        let home = Installation { namespace: &self.operator_namespace, dev_mode: false };
        Some(valid(&check_network(&network.id, spec, &home, Some(&ResourceFacts { offered_by }))))
    }

    fn decision(&self, network: &Network, nads: &[&SeenNad]) -> Decision {
        let wanted = match &network.spec {
            Ok(spec) => plan_nad(&network.id, spec, &self.resource_prefix, &self.operator_namespace),
            Err(fault) => Err(vec![fault.clone()]),
        };
        let facts: Vec<&NadFacts> = nads.iter().map(|nad| &nad.facts).collect();
        let around = Surroundings {
            operator_namespace: &self.operator_namespace,
            target: self.namespace_facts(self.target(network)),
            nads: (!self.no_nads).then_some(&facts),
        };
        let network = NetworkFacts {
            id: &network.id,
            uid: &network.version.uid,
            deleting: network.deleting,
            has_finalizer: network.finalizers.iter().any(|finalizer| finalizer == NETWORK_FINALIZER),
            remembered: self.remembered(network),
        };
        decide(&network, &wanted, &around)
    }

    /// Whether the network's conditions say so already, or did when we last wrote them. Where they cannot be read nobody
    /// could tell: better silence than to say it for ever.
    fn is_said(&self, network: &Network, verdicts: &[Verdict]) -> bool {
        let Some(found) = &network.conditions else { return true };
        let ours = self.said.get(&network.id).filter(|said| said.uid == network.version.uid);
        let says = |conditions: &[Condition]| {
            updated(conditions, verdicts, network.generation, Timestamp::now()) == *conditions
        };
        says(found) || ours.is_some_and(|said| says(&said.conditions))
    }

    fn namespace_facts(&self, name: &str) -> NamespaceFacts {
        match self.namespaces.get(&name.to_owned()) {
            None => NamespaceFacts::Missing,
            Some(namespace) if namespace.ending => NamespaceFacts::Ending,
            Some(_) => NamespaceFacts::There,
        }
    }
}

#[cfg(test)]
mod tests;
