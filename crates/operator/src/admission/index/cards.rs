//! The cards of nodes, of which many have the same.

use std::hash::{Hash, Hasher};

use vfleet_api::node_state::InterfaceExt;

/// The cards of a node, with all that rules look at and nothing else: nodes of one kind have the same.
#[derive(Debug)]
pub(super) struct Cards {
    pub(super) list: Vec<InterfaceExt>,
    /// Cards with the same text are the same.
    text: String,
}

impl Cards {
    pub(super) fn new(reported: Vec<InterfaceExt>) -> Self {
        let list: Vec<_> = reported.into_iter().map(for_rules).collect();
        let text = format!("{list:?}");
        Self { list, text }
    }
}

impl PartialEq for Cards {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cards {}

impl Hash for Cards {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// What is left out is different on each node, or says nothing about what is possible there.
fn for_rules(card: InterfaceExt) -> InterfaceExt {
    InterfaceExt {
        mac: None,
        driver: None,
        link_speed: None,
        link_admin_state: None,
        externally_managed: None,
        numa_node: None,
        in_use_by: None,
        vfs: None,
        conditions: None,
        ..card
    }
}
