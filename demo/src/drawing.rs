//! A picture of the fleet as text: two tables, or lines about what changed.

use comfy_table::{LineStyle, Table, TableStyle};
use vfleet_api::node_state::DrainStatus;

use crate::picture::{NodeRow, Picture, PoolRow};

/// No lines between rows: all of it fits on a screen.
const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'));

/// The tables: pools, nodes.
pub(crate) fn tables(picture: &Picture) -> String {
    let mut pools = table(["pool", "limit", "nodes", "waiting", "draining", "done", "slots held by"]);
    for pool in &picture.pools {
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
        "VFs/wanted",
        "sync status",
    ]);
    for node in &picture.nodes {
        nodes.add_row([
            node.name.clone(),
            node.pool.clone(),
            node.drain.as_str().to_owned(),
            if node.is_cordoned { "yes".to_owned() } else { String::new() },
            // As wide as the widest, so that the table does not jump.
            format!("{:<10}", "●".repeat(node.pods.with_vf)),
            "○".repeat(node.pods.without),
            format!("{}/{}", node.vfs, node.wanted_vfs),
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

/// What is new since `before`, for those who read lines.
pub(crate) fn news(before: &Picture, now: &Picture) -> Vec<String> {
    let is_old = |pool: &&PoolRow| !before.pools.contains(pool);
    let pools = now.pools.iter().filter(is_old).map(pool_line);
    let course = |node: &NodeRow| (node.drain, node.is_cordoned, node.sync.clone());
    let is_news = |node: &&NodeRow| {
        let known = before.nodes.iter().find(|known| known.name == node.name);
        known.map(course) != Some(course(node))
    };
    now.nodes.iter().filter(is_news).map(node_line).chain(pools).collect()
}

fn pool_line(pool: &PoolRow) -> String {
    let PoolRow { name, limit, waiting, draining, done, slots, .. } = pool;
    let slots = if slots.is_empty() { "nobody".to_owned() } else { slots.join(" ") };
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
