//! What the demo shows of the node states: one row a node.

use std::collections::BTreeMap;

use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::node_state::{InterfaceExt, SUCCEEDED};

/// The rows.
pub(crate) struct FleetView {
    pf: &'static str,
    wanted: usize,
    rows: BTreeMap<String, Row>,
}

#[derive(Clone, Default, PartialEq)]
struct Row {
    cards: usize,
    vfs: usize,
    kernel: usize,
    dpdk: usize,
    mtu: Option<i64>,
    sync: String,
}

impl FleetView {
    pub(crate) fn new(nodes: &[&str], pf: &'static str, wanted: usize) -> Self {
        Self { pf, wanted, rows: nodes.iter().map(|node| ((*node).to_owned(), Row::default())).collect() }
    }

    /// Takes in a change; gives a line about it if there is something new to say.
    pub(crate) fn take(&mut self, event: Event<SriovNetworkNodeState>) -> Option<String> {
        let (Event::Apply(state) | Event::InitApply(state)) = event else { return None };
        let row = row(&state, self.pf);
        let known = self.rows.get_mut(&state.name_any())?;
        if *known == row {
            return None;
        }
        *known = row.clone();
        let Row { vfs, kernel, dpdk, sync, .. } = row;
        let sync = if sync.is_empty() { "reported" } else { &sync };
        Some(format!("{}: {sync}, {vfs} VFs on {} ({kernel} kernel, {dpdk} DPDK)", state.name_any(), self.pf))
    }

    /// Every node told what cards it has, and that nothing is to be done.
    pub(crate) fn all_report(&self) -> bool {
        self.rows.values().all(|row| row.cards > 0 && row.sync == SUCCEEDED)
    }

    /// Every node has the wanted VFs, half of them for the kernel and half for DPDK.
    pub(crate) fn all_done(&self) -> bool {
        let half = self.wanted / 2;
        self.rows.values().all(|row| row.sync == SUCCEEDED && row.kernel == half && row.dpdk == half)
    }

    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(["node", "PF", "MTU", "VFs", "", "kernel", "DPDK", "sync status"]);
        for (node, row) in &self.rows {
            table.add_row([
                node.clone(),
                self.pf.to_owned(),
                row.mtu.map(|mtu| mtu.to_string()).unwrap_or_default(),
                format!("{}/{}", row.vfs, self.wanted),
                bar(row.kernel + row.dpdk, self.wanted),
                row.kernel.to_string(),
                row.dpdk.to_string(),
                row.sync.clone(),
            ]);
        }
        table
    }
}

fn bar(done: usize, of: usize) -> String {
    (0..of).map(|at| if at < done { '█' } else { '░' }).collect()
}

fn row(state: &SriovNetworkNodeState, pf: &str) -> Row {
    let status = state.status.clone().unwrap_or_default();
    let cards = status.interfaces.unwrap_or_default();
    let mut row =
        Row { cards: cards.len(), sync: status.sync_status.unwrap_or_default(), ..Default::default() };
    if let Some(card) = cards.iter().find(|card| card.name.as_deref() == Some(pf)) {
        count_vfs(card, &mut row);
    }
    row
}

fn count_vfs(card: &InterfaceExt, row: &mut Row) {
    row.mtu = card.mtu;
    for vf in card.vfs.iter().flatten() {
        row.vfs += 1;
        match vf.driver.as_deref() {
            Some("vfio-pci") => row.dpdk += 1,
            Some(_) => row.kernel += 1,
            None => {}
        }
    }
}
