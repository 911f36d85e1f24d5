//! Open vSwitch as a fact.

use vfleet_plan::cni::facts::{NAMESPACE_KEY, OvsSocket, OvsSwitchFacts, OvsSwitchPort};

use crate::format_error_chain;
use crate::linux::attachment::namespace;
use crate::linux::ovs::session::OvsSession;
use crate::linux::ovs::switch_rows::RowFilter;
use crate::linux::root::HostRoot;

/// Reads the bridges of Open vSwitch. Never fails: an Open vSwitch that does not answer is a fact.
pub(super) fn read(root: &HostRoot, socket: &OvsSocket) -> OvsSwitchFacts {
    let attempt = "read the database of Open vSwitch";
    let rows = match OvsSession::run(root, socket, attempt, |session| session.read(RowFilter::All)) {
        Ok(rows) => rows,
        Err(error) => return OvsSwitchFacts::Down { reason: format_error_chain(&error) },
    };
    let mut bridges = rows.to_facts();
    for port in bridges.iter_mut().flat_map(|bridge| &mut bridge.ports) {
        if has_error(port)
            && let Some(path) = port.external_ids.get(NAMESPACE_KEY)
        {
            port.namespace = Some(namespace::state_at(root, path));
        }
    }
    OvsSwitchFacts::Running { bridges }
}

fn has_error(port: &OvsSwitchPort) -> bool {
    port.interfaces.iter().any(|interface| interface.error.is_some())
}
