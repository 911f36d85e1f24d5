//! Waiting for ovs-vswitchd to apply a change of the database.

use std::time::Instant;

use serde_json::{Value, json};

use super::super::ovsdb::OvsdbClient;
use super::super::root::HostRoot;
use super::rows::{Configuration, Rows};
use crate::HostError;

/// Waits until ovs-vswitchd has applied the configuration with this number. Returns false at the deadline, which is
/// then remembered: later waits for the same number do not wait again.
pub(in crate::linux) fn wait(
    client: &mut OvsdbClient,
    root: &HostRoot,
    number: i64,
    attempt: &str,
) -> Result<bool, HostError> {
    let deadline = Instant::now() + root.ovs_limits().apply;
    if wait_until(client, number, deadline, attempt)? {
        root.cache().ovs.set_unapplied(None);
        return Ok(true);
    }
    // Noted before the last look: the watch reports every later progress.
    root.cache().ovs.set_unapplied(Some(number));
    let rows = super::rows::read(client, attempt)?;
    let has_reached = rows.root.is_some_and(|row| row.configuration.has_reached(number));
    if has_reached {
        root.cache().ovs.set_unapplied(None);
    }
    Ok(has_reached)
}

/// Waits until ovs-vswitchd has applied the configuration with this number. Returns false at the deadline.
pub(in crate::linux) fn wait_until(
    client: &mut OvsdbClient,
    number: i64,
    deadline: Instant,
    attempt: &str,
) -> Result<bool, HostError> {
    let tables = json!({"Open_vSwitch": {"columns": ["cur_cfg", "next_cfg"]}});
    let mut update = client.monitor(tables, attempt)?;
    loop {
        let has_reached =
            configurations(&update).any(|found| found.is_some_and(|found| found.has_reached(number)));
        if has_reached {
            return Ok(true);
        }
        match client.next_update(deadline, attempt)? {
            // The parameters of an update: the identifier of the monitor and the tables.
            Some(next) => update = next.get(1).cloned().unwrap_or_default(),
            None => return Ok(false),
        }
    }
}

/// Waits until ovs-vswitchd has created the datapaths of the bridges that vfleet made. A server that was restarted has
/// forgotten the datapaths until ovs-vswitchd connects again, although the configuration counts as applied. At the
/// deadline the bridges without a datapath are remembered: later reads do not wait for them again.
pub(super) fn wait_for_datapaths(
    client: &mut OvsdbClient,
    root: &HostRoot,
    rows: &mut Rows,
    attempt: &str,
) -> Result<(), HostError> {
    let cache = &root.cache().ovs;
    if rows.without_datapath().is_subset(&cache.without_datapath()) {
        cache.set_without_datapath(rows.without_datapath());
        return Ok(());
    }
    let deadline = Instant::now() + root.ovs_limits().apply;
    client.monitor(json!({"Bridge": {"columns": ["datapath_id"]}}), attempt)?;
    loop {
        *rows = super::rows::read(client, attempt)?;
        let is_over = rows.without_datapath().is_empty() || Instant::now() >= deadline;
        if is_over || client.next_update(deadline, attempt)?.is_none() {
            cache.set_without_datapath(rows.without_datapath());
            return Ok(());
        }
    }
}

/// Returns the new configurations in an update of tables.
pub(in crate::linux) fn configurations(update: &Value) -> impl Iterator<Item = Option<Configuration>> {
    let rows = update.get("Open_vSwitch").and_then(Value::as_object).into_iter().flatten();
    rows.map(|(_, row)| Configuration::parse(row.get("new")?))
}
