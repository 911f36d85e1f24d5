//! Many cards in parallel, on a simulated machine with realistic delays.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use vfleet_agent::apply::{ApplyContext, apply_plan, survey};
use vfleet_api::PciAddress;
use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_host::SimHost;
use vfleet_plan::{HostFacts, Step, plan_node};

use crate::bench::report::{Figure, Limit, Row, Unit};

const CARDS: u8 = 8;
const VFS: u32 = 64;
/// Card that takes twice as long as the others.
const SLOW: u8 = 3;
/// Delay of creating VFs, in the order of magnitude of real cards.
const CREATE_VFS: Duration = Duration::from_secs(1);
const BIND: Duration = Duration::from_millis(20);

/// Measures all cards in parallel, compared with the slowest card alone.
pub(super) fn row() -> Result<Row> {
    let alone = measure(&[SLOW])?.as_secs_f64();
    let together = measure(&(0..CARDS).collect::<Vec<_>>())?.as_secs_f64();
    Ok(Row {
        what: "8 simulated cards of 64 VFs, compared with the slowest",
        nodes: 1,
        unit: Unit::Time,
        bare: Some(alone),
        vfleet: Some(Figure::Is(together)),
        go: None,
        limit: Some(Limit { text: "1.2x slowest".to_owned(), maximum: 1.2 * alone }),
    })
}

/// Measures creating, binding and verifying VFs on these cards.
fn measure(cards: &[u8]) -> Result<Duration> {
    let machine = json!({ "pfs": (0..CARDS).map(card).collect::<Vec<_>>() });
    let host = Arc::new(SimHost::from_yaml(&machine.to_string(), "bench")?);
    host.set_step_hook(delay_step);
    let interfaces: Vec<_> = cards.iter().map(|card| desired_pf(*card)).collect();
    let spec: SriovNetworkNodeStateSpec = serde_json::from_value(json!({ "interfaces": interfaces }))?;
    let planner = |facts: &HostFacts| plan_node(&spec, facts);
    let context = ApplyContext {
        host: &*host,
        node: "bench",
        planner: &planner,
        one_card_at_a_time: false,
        listener: &|_| {},
    };

    let started = Instant::now();
    let (facts, plan) = survey(context.host, context.planner)?;
    let outcome = apply_plan(&context, facts, plan);
    let duration = started.elapsed();
    ensure!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let bound = outcome.facts.iter().flat_map(|facts| &facts.pfs).flat_map(|pf| &pf.vfs);
    let bound = bound.filter(|vf| vf.driver.as_deref() == Some("iavf")).count();
    ensure!(bound == cards.len() * VFS as usize, "{bound} VFs are bound");
    Ok(duration)
}

#[expect(clippy::disallowed_methods, reason = "simulates the delays of a kernel")]
fn delay_step(step: &Step) {
    let is_slow = step.pf() == address(SLOW).parse::<PciAddress>().ok();
    let factor = if is_slow { 2 } else { 1 };
    match step {
        Step::SetNumVfs { .. } => thread::sleep(CREATE_VFS * factor),
        Step::BindVf { .. } => thread::sleep(BIND * factor),
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

fn desired_pf(card: u8) -> Value {
    json!({
        "pciAddress": address(card), "name": format!("ens{card}f0"), "numVfs": VFS,
        "vfGroups": [{
            "resourceName": "all", "deviceType": "netdevice", "vfRange": format!("0-{}", VFS - 1),
            "policyName": "all",
        }],
    })
}
