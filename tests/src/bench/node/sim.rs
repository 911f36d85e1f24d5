//! Many cards at once, on a simulated machine whose kernel takes its time.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use vfleet_agent::apply::{Work, carry_out, survey};
use vfleet_api::PciAddress;
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::SimHost;
use vfleet_plan::{HostFacts, Step, plan_node};

use crate::bench::report::{Figure, Limit, Row, Unit};

const CARDS: u8 = 8;
const VFS: u32 = 64;
/// Takes twice as long as the others.
const SLOW: u8 = 3;
/// What real cards take, in the order of magnitude.
const MAKE_VFS: Duration = Duration::from_secs(1);
const BIND: Duration = Duration::from_millis(20);

/// All cards together, beside the slowest alone.
pub(super) fn row() -> Result<Row> {
    let alone = time(&[SLOW])?.as_secs_f64();
    let together = time(&(0..CARDS).collect::<Vec<_>>())?.as_secs_f64();
    Ok(Row {
        what: "8 simulated cards of 64 VFs, beside the slowest alone",
        nodes: 1,
        unit: Unit::Time,
        bare: Some(alone),
        vfleet: Some(Figure::Is(together)),
        go: None,
        limit: Some(Limit { says: "1.2x slowest".to_owned(), most: 1.2 * alone }),
    })
}

/// From no VFs to all of them bound and verified, on these cards.
fn time(cards: &[u8]) -> Result<Duration> {
    let machine = json!({ "pfs": (0..CARDS).map(card).collect::<Vec<_>>() });
    let host = Arc::new(SimHost::from_yaml(&machine.to_string(), "bench")?);
    host.before_each_step(take_time);
    let interfaces: Vec<_> = cards.iter().map(|card| wanted(*card)).collect();
    let spec: SriovNetworkNodeStateSpec = serde_json::from_value(json!({ "interfaces": interfaces }))?;
    let planner = |facts: &HostFacts| plan_node(&spec, facts);
    let work =
        Work { host: &*host, node: "bench", planner: &planner, one_card_at_a_time: false, listener: &|_| {} };

    let started = Instant::now();
    let (facts, plan) = survey(work.host, work.planner)?;
    let outcome = carry_out(&work, facts, plan);
    let took = started.elapsed();
    ensure!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let bound = outcome.facts.iter().flat_map(|facts| &facts.pfs).flat_map(|pf| &pf.vfs);
    let bound = bound.filter(|vf| vf.driver.as_deref() == Some("iavf")).count();
    ensure!(bound == cards.len() * VFS as usize, "{bound} VFs are bound");
    Ok(took)
}

#[expect(clippy::disallowed_methods, reason = "a kernel that takes its time")]
fn take_time(step: &Step) {
    let is_slow = step.pf() == address(SLOW).parse::<PciAddress>().ok();
    let times = if is_slow { 2 } else { 1 };
    match step {
        Step::SetNumVfs { .. } => thread::sleep(MAKE_VFS * times),
        Step::BindVf { .. } => thread::sleep(BIND * times),
        _ => {}
    }
}

fn address(card: u8) -> String {
    format!("0000:{:02x}:00.0", 0x10 + card)
}

fn card(card: u8) -> Value {
    json!({
        "address": address(card), "name": format!("ens{card}f0"), "vendor": "8086", "device": "158b",
        "vfDevice": "154c", "driver": "i40e", "vfDriver": "iavf", "totalVfs": VFS, "vfOffset": 16, "maxMtu": 9702,
    })
}

fn wanted(card: u8) -> Value {
    json!({
        "pciAddress": address(card), "name": format!("ens{card}f0"), "numVfs": VFS,
        "vfGroups": [{
            "resourceName": "all", "deviceType": "netdevice", "vfRange": format!("0-{}", VFS - 1),
            "policyName": "all",
        }],
    })
}
