//! Steps that change mirrors of Open vSwitch.

use serde_json::{Map, Value, json};
use vfleet_plan::cni::facts::{OVS_OWNER, OWNER_KEY, OvsSocket};
use vfleet_plan::cni::step::MirrorRole;

use crate::HostError;
use crate::linux::ovs::session::OvsSession;
use crate::linux::ovs::switch_rows::{BridgeRow, MirrorRow, RowFilter, SwitchRows};
use crate::linux::ovs::transaction::{Transaction, uuids};
use crate::linux::ovsdb::{Operation, value};
use crate::linux::root::HostRoot;
use crate::linux::steps::verify;

const TABLE: &str = "Mirror";

/// Place of a port in a mirror.
#[derive(Clone, Copy, Debug)]
pub(super) struct MirrorPlace<'a> {
    pub(super) bridge: &'a str,
    pub(super) mirror: &'a str,
    pub(super) port: &'a str,
    pub(super) role: MirrorRole,
}

impl MirrorPlace<'_> {
    fn read(&self, session: &mut OvsSession<'_>) -> Result<SwitchRows, HostError> {
        session.read(RowFilter::Mirror { mirror: self.mirror, port: self.port })
    }

    /// Returns the columns for the row of a port in this place.
    fn columns(&self, port: &str) -> Vec<(&'static str, Value)> {
        let row = || value::set([value::uuid(port)]);
        let (ingress, egress, is_output) = match self.role {
            MirrorRole::Source { ingress, egress } => (ingress, egress, false),
            MirrorRole::Output => (false, false, true),
        };
        let all = [("select_src_port", ingress), ("select_dst_port", egress), ("output_port", is_output)];
        all.into_iter().filter(|(_, is_used)| *is_used).map(|(column, _)| (column, row())).collect()
    }

    /// Returns whether a mirror has the row of a port in this place.
    fn is_in(&self, mirror: &MirrorRow, port: &str) -> bool {
        match self.role {
            MirrorRole::Source { ingress, egress } => {
                (!ingress || mirror.sources.contains(port)) && (!egress || mirror.destinations.contains(port))
            }
            MirrorRole::Output => mirror.output.as_deref() == Some(port),
        }
    }

    /// Returns the mirror without the row of a port.
    fn without(&self, mirror: &MirrorRow, port: Option<&str>) -> MirrorRow {
        let mut rest = mirror.clone();
        let Some(port) = port else { return rest };
        match self.role {
            MirrorRole::Source { ingress, egress } => {
                if ingress {
                    rest.sources.remove(port);
                }
                if egress {
                    rest.destinations.remove(port);
                }
            }
            MirrorRole::Output => rest.output = rest.output.filter(|output| output != port),
        }
        rest
    }
}

/// Adds a port to a mirror, which is created if it does not exist.
pub(super) fn attach(root: &HostRoot, socket: &OvsSocket, place: MirrorPlace<'_>) -> Result<(), HostError> {
    let MirrorPlace { bridge, mirror, port, .. } = place;
    let attempt = format!("add port {port} to mirror {mirror} of Open vSwitch bridge {bridge}");
    OvsSession::run(root, socket, &attempt, |session| {
        session.repeat(|session| {
            let rows = place.read(session)?;
            let on = session.require_bridge(&rows, bridge)?;
            let port = require_port(on, place, &attempt)?;
            let mut transaction = session.transaction(&rows);
            match on.mirror(mirror) {
                Some(found) if place.is_in(found, port) => return session.apply_latest(&rows),
                Some(found) => extend(&mut transaction, found, place, port, &attempt)?,
                None => create(&mut transaction, on, place, port),
            }
            session.apply(transaction)
        })?;
        let rows = place.read(session)?;
        let on = session.require_bridge(&rows, bridge)?;
        let port = require_port(on, place, &attempt)?;
        let is_in = on.mirror(mirror).is_some_and(|found| place.is_in(found, port));
        let (expected, other) = ("the port in the mirror", "a mirror without the port");
        verify(&attempt, &expected, &if is_in { expected } else { other })
    })
}

/// Returns the row of the port, which has to be one of the bridge.
fn require_port<'r>(on: &'r BridgeRow, place: MirrorPlace<'_>, attempt: &str) -> Result<&'r str, HostError> {
    let found = on.port(place.port).map(|port| port.uuid.as_str());
    found.ok_or_else(|| HostError::OvsPortNotFound {
        attempt: attempt.to_owned(),
        port: place.port.to_owned(),
        bridge: place.bridge.to_owned(),
    })
}

/// Creates a mirror of the CNI plugins.
fn create(transaction: &mut Transaction, on: &BridgeRow, place: MirrorPlace<'_>, port: &str) {
    // Names of mirrors are not unique in the database: no other process may have created it.
    let mirrors = json!(["mirrors", "==", uuids(&on.all_mirrors)]);
    transaction.push(Operation::assert_row("Bridge", &on.uuid, vec![mirrors]));
    let owner = [(OWNER_KEY.to_owned(), OVS_OWNER.to_owned())].into();
    let mut row = Map::from_iter([
        ("name".to_owned(), Value::from(place.mirror)),
        ("external_ids".to_owned(), value::map(&owner)),
    ]);
    row.extend(place.columns(port).into_iter().map(|(column, value)| (column.to_owned(), value)));
    transaction.push(Operation::insert(TABLE, "mirror", &row.into()));
    let added = json!(["mirrors", "insert", value::set([value::named_uuid("mirror")])]);
    transaction.push(Operation::mutate("Bridge", &on.uuid, &[added]));
}

/// Adds a port to a mirror that exists.
fn extend(
    transaction: &mut Transaction,
    found: &MirrorRow,
    place: MirrorPlace<'_>,
    port: &str,
    attempt: &str,
) -> Result<(), HostError> {
    if place.role == MirrorRole::Output && (found.output.is_some() || found.output_vlan.is_some()) {
        let (attempt, mirror) = (attempt.to_owned(), place.mirror.to_owned());
        return Err(HostError::OvsMirrorTaken { attempt, mirror });
    }
    transaction.push(assert_unchanged(found));
    let additions = place.columns(port).into_iter().map(|(column, value)| json!([column, "insert", value]));
    transaction.push(Operation::mutate(TABLE, &found.uuid, &additions.collect::<Vec<_>>()));
    Ok(())
}

/// Asserts the part of a mirror by which it is in use.
fn assert_unchanged(mirror: &MirrorRow) -> Operation {
    let output = value::set(mirror.output.iter().map(|port| value::uuid(port)));
    let conditions = vec![
        json!(["select_src_port", "==", uuids(&mirror.sources)]),
        json!(["select_dst_port", "==", uuids(&mirror.destinations)]),
        json!(["output_port", "==", output]),
    ];
    Operation::assert_row(TABLE, &mirror.uuid, conditions)
}

/// Takes a port out of a mirror, and removes a mirror of the CNI plugins that nothing uses any more.
pub(super) fn detach(root: &HostRoot, socket: &OvsSocket, place: MirrorPlace<'_>) -> Result<(), HostError> {
    let MirrorPlace { bridge, mirror, port, .. } = place;
    let attempt = format!("remove port {port} from mirror {mirror} of Open vSwitch bridge {bridge}");
    release(root, socket, place, &attempt)
}

/// Removes a mirror of the CNI plugins, if nothing uses it.
pub(super) fn remove_unused(
    root: &HostRoot,
    socket: &OvsSocket,
    bridge: &str,
    mirror: &str,
) -> Result<(), HostError> {
    let attempt = format!("remove mirror {mirror} of Open vSwitch bridge {bridge}");
    // No port has an empty name.
    release(root, socket, MirrorPlace { bridge, mirror, port: "", role: MirrorRole::Output }, &attempt)
}

fn release(
    root: &HostRoot,
    socket: &OvsSocket,
    place: MirrorPlace<'_>,
    attempt: &str,
) -> Result<(), HostError> {
    OvsSession::run(root, socket, attempt, |session| {
        session.repeat(|session| {
            let rows = place.read(session)?;
            let Some((on, found, rest)) = find_rest(&rows, place) else { return Ok(()) };
            let mut transaction = session.transaction(&rows);
            transaction.push(assert_unchanged(found));
            if is_left_over(&rest) {
                let removed = json!(["mirrors", "delete", uuids([&found.uuid])]);
                transaction.push(Operation::mutate("Bridge", &on.uuid, &[removed]));
            } else if rest == *found {
                return Ok(());
            } else {
                let row = json!({
                    "select_src_port": uuids(&rest.sources),
                    "select_dst_port": uuids(&rest.destinations),
                    "output_port": value::set(rest.output.iter().map(|port| value::uuid(port))),
                });
                transaction.push(Operation::update(TABLE, &found.uuid, &row));
            }
            session.give_back(transaction)
        })?;
        let rows = place.read(session)?;
        let is_left = |(_, found, rest): (_, &MirrorRow, MirrorRow)| is_left_over(&rest) || rest != *found;
        let is_left = find_rest(&rows, place).is_some_and(is_left);
        let (expected, other) = ("no port in the mirror, and no unused mirror", "one of them");
        verify(attempt, &expected, &if is_left { other } else { expected })
    })
}

/// Returns the mirror with its bridge, and as it has to be after the release.
fn find_rest<'r>(
    rows: &'r SwitchRows,
    place: MirrorPlace<'_>,
) -> Option<(&'r BridgeRow, &'r MirrorRow, MirrorRow)> {
    let on = rows.bridge(place.bridge)?;
    let found = on.mirror(place.mirror)?;
    let port = on.port(place.port).map(|port| port.uuid.as_str());
    Some((on, found, place.without(found, port)))
}

/// Returns whether a mirror is one of the CNI plugins and nothing uses it.
fn is_left_over(mirror: &MirrorRow) -> bool {
    let facts = mirror.to_facts(&[].into());
    facts.is_owned() && facts.is_unused()
}

#[cfg(test)]
#[path = "mirror/tests.rs"]
mod tests;
