//! Open vSwitch of the machine: facts from its database, and a watch of it.

mod cache;
mod connected;
pub(super) mod follow;
pub(super) mod rows;
pub(super) mod session;
pub(super) mod switch_rows;
#[cfg(test)]
pub(super) mod test_switch;
#[cfg(test)]
mod tests;
pub(super) mod transaction;
pub(super) mod watch;

pub(super) use cache::OvsCache;
pub(super) use connected::connected_interfaces;
pub(super) use watch::watch;

use std::io::ErrorKind;

use vfleet_plan::files::MANAGED_OVS_BRIDGES;
use vfleet_plan::{BridgeKind, HostFacts, OvsFacts};

use super::HostSettings;
use super::ovsdb::OvsdbClient;
use super::root::HostRoot;
use crate::{HostError, format_error_chain};

const ATTEMPT: &str = "read the database of Open vSwitch";

/// Reads the facts of Open vSwitch, if bridges are managed or `facts` mention an Open vSwitch bridge that vfleet or the
/// Go daemon created. Never fails: an Open vSwitch that cannot be read is a fact.
pub(super) fn read(settings: &HostSettings, facts: &HostFacts) -> OvsFacts {
    let root = &settings.root;
    let is_read = settings.reads_ovs || mentions_ovs(facts);
    root.cache().ovs.set_socket(is_read.then(|| root.ovsdb_socket()));
    if !is_read {
        return OvsFacts::NotRead;
    }
    // A server that does not answer is asked once, so that other cards do not wait for it again and again.
    root.cache().ovs.unanswered(root.ovsdb_socket()).unwrap_or_else(|| read_database(root))
}

fn mentions_ovs(facts: &HostFacts) -> bool {
    let mut bridges = facts.records.iter().filter_map(|record| record.bridge.as_ref());
    bridges.any(|bridge| bridge.kind == BridgeKind::Ovs)
        || facts.files.get(MANAGED_OVS_BRIDGES).is_some_and(|text| !matches!(text.trim(), "" | "{}" | "null"))
}

fn read_database(root: &HostRoot) -> OvsFacts {
    let error = match try_read(root) {
        Ok(facts) => {
            root.cache().ovs.set_answered();
            return facts;
        }
        Err(error) => error,
    };
    match &error {
        HostError::OvsNotRunning { socket, .. } => return OvsFacts::NotRunning { socket: socket.clone() },
        // A server that was killed leaves its socket.
        HostError::OvsConnection { socket, source, .. } if source.kind() == ErrorKind::ConnectionRefused => {
            return OvsFacts::NotRunning { socket: socket.clone() };
        }
        _ => {}
    }
    let facts = OvsFacts::Unreadable { error: format_error_chain(&error), reason: error.reason() };
    if matches!(error, HostError::OvsTimeout { .. }) {
        root.cache().ovs.set_unanswered(root.ovsdb_socket(), facts.clone());
    }
    facts
}

fn try_read(root: &HostRoot) -> Result<OvsFacts, HostError> {
    let mut client = OvsdbClient::connect(root, ATTEMPT)?;
    let cache = &root.cache().ovs;
    let mut rows = rows::read(&mut client, ATTEMPT)?;
    let configuration = rows.configuration();
    let is_known_to_wait = || cache.unapplied().is_some_and(|number| configuration.lacks(number));
    if configuration.is_behind() && !is_known_to_wait() {
        // Usually ovs-vswitchd is just applying the change, and its errors are not in the database yet.
        follow::wait(&mut client, root, configuration.next, ATTEMPT)?;
        let earlier = std::mem::replace(&mut rows, rows::read(&mut client, ATTEMPT)?);
        rows.confirm(&earlier);
    }
    if !rows.configuration().is_behind() {
        follow::wait_for_datapaths(&mut client, root, &mut rows, ATTEMPT)?;
    }
    let configuration = rows.configuration();
    let mut database = rows.database;
    // A change that somebody made during the wait is not a change that ovs-vswitchd ignores.
    database.is_behind = cache.unapplied().is_some_and(|number| configuration.lacks(number));
    if database.is_behind {
        database.bridges.iter_mut().for_each(|bridge| bridge.lacks_datapath = false);
    } else {
        cache.set_unapplied(None);
    }
    Ok(OvsFacts::Database(database))
}
