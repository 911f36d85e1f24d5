//! Cards of nodes. Many nodes have equal cards.

use std::hash::{Hash, Hasher};

use vfleet_api::node_state::InterfaceExt;

/// Cards of a node, with only the fields that rules check, so that nodes of one kind are equal.
#[derive(Debug)]
pub(super) struct Cards {
    pub(super) list: Vec<InterfaceExt>,
    /// Text form of the list, for comparison and hashing.
    text: String,
}

impl Cards {
    pub(super) fn new(reported: Vec<InterfaceExt>) -> Self {
        let list: Vec<_> = reported.into_iter().map(keep_checked_fields).collect();
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

/// Removes fields that differ on each node or that no rule checks.
fn keep_checked_fields(card: InterfaceExt) -> InterfaceExt {
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
