//! Fleet as text: two tables, or lines about changes.

use comfy_table::{LineStyle, Table, TableStyle};
use vfleet_api::node_state::DrainStatus;

use crate::fleet_view::{FleetView, NodeRow, PoolRow};

/// Style without lines between rows, so that the tables fit on a screen.
const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'));

/// Returns the tables of pools and nodes.
pub(crate) fn format_tables(view: &FleetView) -> String {
    let mut pools = table(["pool", "limit", "nodes", "waiting", "draining", "done", "slots held by"]);
    for pool in &view.pools {
        pools.add_row([
            pool.name.clone(),
            pool.limit.clone(),
            pool.total.to_string(),
            pool.waiting.to_string(),
            pool.draining.to_string(),
            pool.done.to_string(),
            pool.slots.join(" "),
        ]);
    }
    let mut nodes = table([
        "node",
        "pool",
        "drain status",
        "cordon",
        "pods with VFs",
        "others",
        "VFs/desired",
        "sync status",
    ]);
    for node in &view.nodes {
        nodes.add_row([
            node.name.clone(),
            node.pool.clone(),
            node.drain.as_str().to_owned(),
            if node.is_cordoned { "yes".to_owned() } else { String::new() },
            // Of constant width, so that the table does not move.
            format!("{:<10}", "●".repeat(node.pods.with_vf)),
            "○".repeat(node.pods.without),
            format!("{}/{}", node.vfs, node.desired_vfs),
            node.sync.clone(),
        ]);
    }
    format!("{pools}\n{nodes}")
}

fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(header);
    table
}

/// Returns lines about the changes since `before`.
pub(crate) fn format_changes(before: &FleetView, now: &FleetView) -> Vec<String> {
    let has_changed = |pool: &&PoolRow| !before.pools.contains(pool);
    let pools = now.pools.iter().filter(has_changed).map(pool_line);
    let drain_state = |node: &NodeRow| (node.drain, node.is_cordoned, node.sync.clone());
    let is_different = |node: &&NodeRow| {
        let previous = before.nodes.iter().find(|previous| previous.name == node.name);
        previous.map(drain_state) != Some(drain_state(node))
    };
    now.nodes.iter().filter(is_different).map(node_line).chain(pools).collect()
}

fn pool_line(pool: &PoolRow) -> String {
    let PoolRow { name, limit, waiting, draining, done, slots, .. } = pool;
    let slots = if slots.is_empty() { "no node".to_owned() } else { slots.join(" ") };
    format!(
        "{name}: limit {limit}, slots held by {slots}; {waiting} waiting, {draining} draining, {done} done"
    )
}

fn node_line(node: &NodeRow) -> String {
    let NodeRow { name, vfs, sync, pods, .. } = node;
    let drain = match (node.drain, node.is_cordoned) {
        (DrainStatus::Idle, false) => "not drained".to_owned(),
        (drain, false) => drain.as_str().to_owned(),
        (drain, true) => format!("{}, cordoned", drain.as_str()),
    };
    format!("{name}: {drain}, {} pods with VFs, {vfs} VFs, {sync}", pods.with_vf)
}
