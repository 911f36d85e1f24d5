//! Cards that policies name and that do not exist yet: at boot, drivers are loaded and interfaces are renamed.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use vfleet_agent::boot::{is_card_present, wait_for_cards};
use vfleet_host::Host;
use vfleet_plan::{HostFacts, NamedPolicy};

use super::policies::PolicySource;

/// Waits until no card is missing, at most until `timeout`. The planner reports cards that are still missing.
pub(super) fn wait(host: &dyn Host, source: &PolicySource, timeout: Duration) -> anyhow::Result<()> {
    let missing = find_missing(source, &host.facts().context("cannot read the machine")?);
    if missing.is_empty() || timeout.is_zero() {
        return Ok(());
    }
    let seconds = timeout.as_secs();
    eprintln!("vfleet: waiting for {}, at most {seconds} s (--wait 0 does not wait)", missing.join(", "));
    wait_for_cards(host, timeout, |facts| find_missing(source, facts)).context("cannot wait for cards")
}

/// Returns the missing cards, in words: cards that policies name, and cards that were configured before.
fn find_missing(source: &PolicySource, facts: &HostFacts) -> Vec<String> {
    let mut missing = BTreeSet::new();
    for policy in source.for_this_machine() {
        missing.extend(pf_names(&policy).filter(|name| !has_name(name, facts)));
        let addresses = policy.spec.nic_selector.root_devices.iter().flatten();
        let addresses = addresses.filter_map(|written| written.value().ok());
        missing
            .extend(addresses.filter(|address| !is_card_present(**address, facts)).map(ToString::to_string));
    }
    let records = facts.records.iter().map(|record| record.pf);
    let recorded = records.filter(|pf| facts.unreadable(*pf).is_none() && !is_card_present(*pf, facts));
    missing.extend(recorded.map(|pf| pf.to_string()));
    missing.extend(policies_without_cards(source, facts));
    missing.into_iter().collect()
}

fn pf_names<'a>(policy: &NamedPolicy<'a>) -> impl Iterator<Item = String> + use<'a> {
    let names = policy.spec.nic_selector.pf_names.iter().flatten();
    names.filter_map(|written| Some(written.value().ok()?.name.clone()))
}

fn has_name(name: &str, facts: &HostFacts) -> bool {
    let links = facts.pfs.iter().filter_map(|pf| pf.link.as_ref());
    links.into_iter().any(|link| link.name == name || link.alt_names.iter().any(|other| other == name))
}

/// Returns policies that select a kind of cards of which there is none.
fn policies_without_cards<'a>(
    source: &'a PolicySource,
    facts: &HostFacts,
) -> impl Iterator<Item = String> + use<'a> {
    let lines = source.evaluate(facts).policies;
    let policies = source.for_this_machine().filter(|policy| {
        let nic = &policy.spec.nic_selector;
        nic.pf_names.iter().flatten().next().is_none() && nic.root_devices.iter().flatten().next().is_none()
    });
    let selects = move |policy: &str| lines.iter().any(|line| line.policy == policy && line.is_selecting());
    policies
        .filter(move |policy| !selects(policy.name))
        .map(|policy| format!("a card that policy {} selects", policy.name))
}

#[cfg(test)]
mod tests {
    use vfleet_host::SimHost;
    use vfleet_host::sim::Machine;

    use super::*;

    const PF: &str = "0000:3b:00.0";
    const MACHINE: &str = "
pfs:
  - { address: '0000:3b:00.0', name: ens1f0, altNames: [enp59s0f0], vendor: '8086', device: 158b, vfDevice: 154c,
      driver: i40e, vfDriver: iavf, totalVfs: 8 }
";

    fn source(selector: &str) -> PolicySource {
        let text = format!(
            "kind: SriovNetworkNodePolicy\nmetadata: {{ name: a }}\n\
             spec: {{ resourceName: r, numVfs: 2, nodeSelector: {{}}, nicSelector: {selector} }}"
        );
        PolicySource::parse(&text, &[]).unwrap()
    }

    fn machine() -> SimHost {
        SimHost::new(&Machine::from_yaml(MACHINE).unwrap(), "node").unwrap()
    }

    #[test]
    fn what_policies_name_is_missing_until_it_is_card_present() {
        let facts = machine().facts().unwrap();
        for (selector, expected) in [
            ("{ pfNames: [ens1f0#0-1] }", None),
            ("{ pfNames: [enp59s0f0] }", None),
            ("{ pfNames: [ens1f0, ens9] }", Some("ens9")),
            ("{ rootDevices: ['0000:3b:00.0'] }", None),
            ("{ rootDevices: ['0000:ff:00.0'] }", Some("0000:ff:00.0")),
            ("{ vendor: '8086' }", None),
            ("{ vendor: '15b3' }", Some("a card that policy a selects")),
        ] {
            let found = find_missing(&source(selector), &facts);
            assert_eq!(found.first().map(String::as_str), expected, "{selector}: {found:?}");
        }
    }

    #[test]
    fn a_card_that_appears_late_is_waited_for() {
        let host = machine();
        let pf = PF.parse().unwrap();
        let name = host.modify_kernel(|kernel| kernel.pf_mut(pf).unwrap().link.take());
        let other_handle = host.new_process();
        let waiting = std::thread::spawn(move || {
            wait(&host, &source("{ pfNames: [ens1f0] }"), Duration::from_secs(30)).unwrap();
            host.facts().unwrap()
        });
        other_handle.modify_kernel(|kernel| kernel.pf_mut(pf).unwrap().link = name);
        assert!(waiting.join().unwrap().pf(pf).unwrap().link.is_some());
    }
}
