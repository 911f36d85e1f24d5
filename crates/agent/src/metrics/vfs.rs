//! Number of VFs, counted in the latest snapshot of the machine when metrics are collected.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;
use vfleet_plan::{HostFacts, NodeSnapshot, PfFacts, VfFacts, VfHolder};

/// Collector of the metric `vfs`.
#[derive(Debug)]
pub(super) struct VfCollector(pub(super) watch::Receiver<Arc<NodeSnapshot>>);

impl Collector for VfCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = Arc::clone(&self.0.borrow());
        let text = "VFs by PF and state: bound to a driver, unbound, held by a pod";
        let mut family = encoder.encode_descriptor("vfs", text, None, MetricType::Gauge)?;
        for ((pf, state), count) in count(&snapshot) {
            let labels = [("pf", pf.as_str()), ("state", state)];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn count(snapshot: &NodeSnapshot) -> BTreeMap<(String, &'static str), i64> {
    let mut counts = BTreeMap::new();
    for pf in &snapshot.facts.pfs {
        for vf in &pf.vfs {
            *counts.entry((name(pf), state(vf, &snapshot.facts))).or_default() += 1;
        }
    }
    counts
}

/// Returns the interface name of the PF, or its PCI address.
fn name(pf: &PfFacts) -> String {
    pf.link.as_ref().map_or_else(|| pf.address.to_string(), |link| link.name.clone())
}

fn state(vf: &VfFacts, facts: &HostFacts) -> &'static str {
    match VfHolder::of(vf, facts) {
        VfHolder::Pod => "held",
        _ if vf.driver.is_none() => "unbound",
        _ => "bound",
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use vfleet_api::{SriovNetworkNodeStateSpec, VfRef};
    use vfleet_host::sim::Machine;
    use vfleet_host::{Host, SimHost};
    use vfleet_plan::{Plan, Step};

    use super::*;

    #[test]
    fn vfs_are_counted_in_the_latest_snapshot() {
        let snapshots = watch::Sender::<Arc<NodeSnapshot>>::default();
        let mut registry = Registry::with_prefix("vfleet_agent");
        registry.register_collector(Box::new(VfCollector(snapshots.subscribe())));
        let lines = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(), [""; 0]);

        let host = SimHost::new(&Machine::lab(), "metrics").unwrap();
        let pf = Machine::lab().pfs[0].address;
        host.execute(&Step::SetNumVfs { pf, count: 3 }).unwrap();
        host.modify_kernel(|kernel| {
            kernel.set_in_other_namespace(VfRef { pf, index: 0 }, true).unwrap();
            kernel.unbind(VfRef { pf, index: 1 }).unwrap();
        });
        let facts = host.facts().unwrap();
        let name = name(&facts.pfs[0]);
        let snapshot =
            NodeSnapshot::default().next(&facts, &SriovNetworkNodeStateSpec::default(), &Plan::default());
        snapshots.send_replace(Arc::new(snapshot));
        let line = |state: &str| format!("vfleet_agent_vfs{{pf=\"{name}\",state=\"{state}\"}} 1");
        assert_eq!(lines(), ["bound", "held", "unbound"].map(line));
    }
}
