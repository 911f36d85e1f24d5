//! NetworkAttachmentDefinitions: the networks that pods name.

use std::collections::HashMap;

use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use vfleet_api::keys::{NAD_NODE_SELECTOR, NAD_RESOURCE};
use vfleet_api::network::NetworkAttachmentDefinition;
use vfleet_plan::admission::{NadSight, NetworkRef};

type Seen = HashMap<NetworkRef, NadSight>;

/// What is known of networks that pods name.
#[derive(Debug, Default)]
pub(crate) struct Nads {
    found: Seen,
    /// The list that is under way.
    listing: Seen,
    is_listed: bool,
    has_no_kind: bool,
}

impl Nads {
    /// `None` when it has not been seen: it may just have been made, and even its kind.
    pub(crate) fn find(&self, network: &NetworkRef) -> Option<NadSight> {
        self.found.get(network).cloned()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_listed || self.has_no_kind
    }

    /// The cluster does not know what a NetworkAttachmentDefinition is.
    pub(super) fn see_no_kind(&mut self) {
        *self = Self { has_no_kind: true, ..Self::default() };
    }

    pub(super) fn see(&mut self, event: Event<PartialObjectMeta<NetworkAttachmentDefinition>>) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(nad) => {
                self.listing.insert(place(&nad), sight(&nad));
            }
            Event::InitDone => {
                self.found = std::mem::take(&mut self.listing);
                (self.is_listed, self.has_no_kind) = (true, false);
            }
            Event::Apply(nad) => {
                self.found.insert(place(&nad), sight(&nad));
            }
            Event::Delete(nad) => {
                self.found.remove(&place(&nad));
            }
        }
    }
}

fn place(nad: &PartialObjectMeta<NetworkAttachmentDefinition>) -> NetworkRef {
    NetworkRef { namespace: nad.namespace().unwrap_or_default(), name: nad.name_any() }
}

/// What counts of it.
pub(crate) fn sight(nad: &PartialObjectMeta<NetworkAttachmentDefinition>) -> NadSight {
    let annotation = |key: &str| nad.annotations().get(key).cloned();
    NadSight { resource: annotation(NAD_RESOURCE), node_selector: annotation(NAD_NODE_SELECTOR) }
}
