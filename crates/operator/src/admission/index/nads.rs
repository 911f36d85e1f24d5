//! Index of NetworkAttachmentDefinitions.

use std::collections::HashMap;

use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use vfleet_api::keys::{NAD_NODE_SELECTOR, NAD_RESOURCE};
use vfleet_api::network::NetworkAttachmentDefinition;
use vfleet_plan::admission::{NadAnnotations, NetworkRef};

type NadMap = HashMap<NetworkRef, NadAnnotations>;

/// Index of NADs.
#[derive(Debug, Default)]
pub(crate) struct NadIndex {
    found: NadMap,
    /// NADs of the list in progress.
    listing: NadMap,
    is_listed: bool,
    is_crd_missing: bool,
}

impl NadIndex {
    /// Returns the facts of a NAD; `None` if it is not in the index. It may still exist.
    pub(crate) fn find(&self, network: &NetworkRef) -> Option<NadAnnotations> {
        self.found.get(network).cloned()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_listed || self.is_crd_missing
    }

    /// Records that the CRD does not exist.
    pub(super) fn set_crd_missing(&mut self) {
        *self = Self { is_crd_missing: true, ..Self::default() };
    }

    /// Applies a watch event.
    pub(super) fn update(&mut self, event: Event<PartialObjectMeta<NetworkAttachmentDefinition>>) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(nad) => {
                self.listing.insert(network_ref(&nad), nad_facts(&nad));
            }
            Event::InitDone => {
                self.found = std::mem::take(&mut self.listing);
                (self.is_listed, self.is_crd_missing) = (true, false);
            }
            Event::Apply(nad) => {
                self.found.insert(network_ref(&nad), nad_facts(&nad));
            }
            Event::Delete(nad) => {
                self.found.remove(&network_ref(&nad));
            }
        }
    }
}

fn network_ref(nad: &PartialObjectMeta<NetworkAttachmentDefinition>) -> NetworkRef {
    NetworkRef { namespace: nad.namespace().unwrap_or_default(), name: nad.name_any() }
}

/// Returns the facts of a NAD.
pub(crate) fn nad_facts(nad: &PartialObjectMeta<NetworkAttachmentDefinition>) -> NadAnnotations {
    let annotation = |key: &str| nad.annotations().get(key).cloned();
    NadAnnotations { resource: annotation(NAD_RESOURCE), node_selector: annotation(NAD_NODE_SELECTOR) }
}
