//! Random machines, desired bridges, and histories.

use std::collections::BTreeMap;
use std::fmt;

use proptest::prelude::*;
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::bridge::OvsConfigExt;
use vfleet_host::sim::{HexId, Machine, MachineBridge, MachinePf};
use vfleet_host::{Host, SimHost};
use vfleet_plan::files::MANAGED_OVS_BRIDGES;
use vfleet_plan::firmware::MELLANOX;
use vfleet_plan::{EswitchMode, NodeOptions};

use super::desired::{bridge_name, desired};
use super::disturbance::{self, Disturbance};
use crate::convergence::{Desired, ExecutedLanes, plan};
use crate::machine::address;

/// Machine with a history of software bridges, and its desired state.
#[derive(Clone)]
pub(super) struct Scenario {
    pub(super) machine: Machine,
    pub(super) before: Desired,
    /// The Go daemon configured `before`. Otherwise vfleet did.
    pub(super) is_taken_over: bool,
    /// Number of executed steps for `before`.
    pub(super) executed_before: usize,
    pub(super) disturbances: Vec<(usize, Disturbance)>,
    pub(super) desired: Desired,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let print = |spec| serde_json::to_string(spec).map_err(|_| fmt::Error);
        for MachinePf { address, up, eswitch, driver, speed, .. } in &self.machine.pfs {
            write!(f, "\n  {address}: up {up}, {eswitch:?}, {driver:?}, speed {speed:?}")?;
        }
        write!(f, "\n  {:?}, {:?}", self.machine.open_vswitch, self.machine.linux_bridges)?;
        for (desired, what) in [(&self.before, "before"), (&self.desired, "desired")] {
            let NodeOptions { manage_bridges, ovs_offload, .. } = desired.options;
            write!(f, "\n  {what}: gate {manage_bridges}, offload {ovs_offload}, {}", print(&desired.spec)?)?;
        }
        let (steps, go, disturbances) = (self.executed_before, self.is_taken_over, &self.disturbances);
        writeln!(f, "\n  Go {go}, {steps} steps of before, then {disturbances:?}")
    }
}

pub(super) fn scenario() -> impl Strategy<Value = Scenario> {
    machine().prop_flat_map(|machine| {
        let cards = machine.pfs.len();
        let disturbances = prop::collection::vec((0..cards, disturbance::disturbance()), 0..5);
        let executed = prop_oneof![3 => Just(usize::MAX), 1 => 0_usize..40];
        let is_taken_over = prop::bool::weighted(0.1);
        // Often only the bridges change.
        let keeps_interfaces = prop::bool::weighted(0.6);
        let states = (desired(cards), desired(cards));
        (Just(machine), states, is_taken_over, executed, disturbances, keeps_interfaces).prop_map(
            |(machine, (before, mut desired), is_taken_over, executed_before, disturbances, keeps)| {
                if keeps {
                    desired.spec.interfaces.clone_from(&before.spec.interfaces);
                }
                Scenario { machine, before, is_taken_over, executed_before, disturbances, desired }
            },
        )
    })
}

/// Creates the machine of a scenario and applies its history. The result is deterministic.
pub(super) fn prepare_host(scenario: &Scenario) -> SimHost {
    let mut machine = scenario.machine.clone();
    if scenario.is_taken_over {
        add_go_files(&mut machine, &scenario.before.spec);
    }
    let host = SimHost::new(&machine, "bridges").expect("a possible machine");
    if scenario.is_taken_over {
        create_go_bridges(&host, &scenario.before.spec);
    } else {
        let failed = ExecutedLanes::default();
        for planned in plan(&host, &scenario.before).steps.iter().take(scenario.executed_before) {
            failed.execute(&host, planned).unwrap_or_else(|error| panic!("`{planned}`: {error}"));
        }
    }
    for (card, disturbance) in &scenario.disturbances {
        disturbance.apply(&host, scenario.machine.pfs[*card].address);
    }
    host.new_process()
}

/// Adds the state files of a Go daemon that configured the spec.
fn add_go_files(machine: &mut Machine, spec: &SriovNetworkNodeStateSpec) {
    let interfaces = spec.interfaces.iter().flatten();
    machine.go_records =
        interfaces.filter(|interface| interface.pci_address.value().is_ok()).cloned().collect();
    let list: BTreeMap<&str, &OvsConfigExt> =
        go_bridges(spec).map(|bridge| (bridge.name.as_str(), bridge)).collect();
    if !list.is_empty() {
        let text = serde_json::to_string(&list).expect("JSON");
        machine.files.insert(MANAGED_OVS_BRIDGES.to_owned(), text);
    }
}

/// Creates the bridges as the Go daemon does: without our marks.
fn create_go_bridges(host: &SimHost, spec: &SriovNetworkNodeStateSpec) {
    let facts = host.facts().expect("facts");
    host.modify_kernel(|kernel| {
        for bridge in go_bridges(spec).filter(|_| kernel.ovs.is_installed).collect::<Vec<_>>() {
            let uplink =
                bridge.uplinks.iter().flatten().next().and_then(|uplink| uplink.pci_address.value().ok());
            let Some(link) = uplink.and_then(|pf| facts.pf(*pf)?.link.as_ref()) else { continue };
            kernel.ovs.add_bridge(&bridge.name);
            // A port of another bridge is left there.
            let _ = kernel.ovs.add_port(&bridge.name, &link.name, "");
            let settings = bridge.bridge.clone().unwrap_or_default();
            if let Some(row) = kernel.ovs.bridge_mut(&bridge.name) {
                row.external_ids.extend(settings.external_ids.unwrap_or_default());
                row.datapath_type = settings.datapath_type.unwrap_or_default();
            }
        }
    });
}

fn go_bridges(spec: &SriovNetworkNodeStateSpec) -> impl Iterator<Item = &OvsConfigExt> {
    let bridges = spec.bridges.iter().flat_map(|bridges| bridges.ovs.iter().flatten());
    bridges.filter(|bridge| bridge.uplinks.iter().flatten().count() == 1)
}

fn machine() -> impl Strategy<Value = Machine> {
    let ovs = (prop::bool::weighted(0.95), prop::bool::weighted(0.95), any::<bool>());
    // A foreign bridge may have the name of ours, or the first card as port.
    let foreign = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (prop::collection::vec(card(), 1..=2), ovs, foreign).prop_map(|(cards, ovs, foreign)| {
        let mut machine = Machine { pfs: cards, ..Machine::lab() };
        for (pf, number) in machine.pfs.iter_mut().zip(1..) {
            (pf.name, pf.address) = (format!("ens{number}"), address(number));
        }
        let first = machine.pfs[0].name.clone();
        let bridge = |name: &str, ports: &[&str]| MachineBridge {
            name: name.to_owned(),
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
        };
        let switch = &mut machine.open_vswitch;
        (switch.installed, switch.running, switch.offload) = ovs;
        switch.bridges = vec![bridge("br-ex", &["eth7"])];
        machine.linux_bridges = vec![bridge("br0", &["eth8"])];
        if foreign.0 {
            switch.bridges.push(bridge(&bridge_name(1), &["eth6"]));
        }
        if foreign.1 {
            machine.linux_bridges.push(bridge(&bridge_name(2), &[]));
        }
        if foreign.2 {
            machine.linux_bridges[0].ports.push(first);
        }
        machine
    })
}

fn card() -> impl Strategy<Value = MachinePf> {
    let driver = prop::sample::select(vec![("mlx5_core", "mlx5_core"), ("igb", "igbvf"), ("ice", "iavf")]);
    let speed = prop::sample::select(vec![None, Some(1000), Some(25_000)]);
    (driver, speed, prop::bool::weighted(0.8)).prop_map(|((driver, vf_driver), speed, up)| MachinePf {
        driver: Some(driver.to_owned()),
        vf_driver: vf_driver.to_owned(),
        vendor: HexId(if driver == "mlx5_core" { MELLANOX } else { 0x8086 }),
        eswitch: Some(EswitchMode::Legacy),
        max_mtu: Some(9216),
        num_vfs: 0,
        speed,
        up,
        ..Machine::lab().pfs.remove(0)
    })
}
