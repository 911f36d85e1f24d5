//! Input of users to the programs: files, options and environment variables.

use vfleet_api::PciAddress;
use vfleet_cluster::server::BindAddress;
use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_operator::{WebhookUrl, parse_ca_certificate};

use crate::driver::{Target, Verdict};
use crate::node_files::MACHINE;

#[test]
fn node_policies() {
    Target::new("node_policies").with_cases(500).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let labels = [("rack".to_owned(), "a".to_owned())];
        let verdicts =
            [&[][..], &labels].map(|labels| vfleet::fuzzing::node_policies(&text, labels, &MACHINE));
        for spec in verdicts.iter().flatten() {
            for interface in spec.interfaces.iter().flatten() {
                let address = *interface.pci_address.value().expect("a PCI address");
                assert!(
                    MACHINE.pfs.iter().any(|pf| pf.address == address),
                    "{address} is no card of the machine"
                );
            }
        }
        for error in verdicts.iter().filter_map(|verdict| verdict.as_ref().err()) {
            assert!(!error.is_empty());
        }
        Verdict::of(verdicts[0].is_ok())
    });
}

#[test]
fn sim_machine() {
    Target::new("sim_machine").with_cases(500).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let machine = match Machine::from_yaml(&text) {
            Ok(machine) => machine,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return Verdict::Refused;
            }
        };
        let facts = SimHost::new(&machine, "fuzz").map(|host| host.facts());
        if let Ok(Ok(facts)) = &facts {
            let addresses: Vec<PciAddress> = facts.pfs.iter().map(|pf| pf.address).collect();
            assert!(addresses.is_sorted(), "{addresses:?}");
        }
        Verdict::of(facts.is_ok())
    });
}

#[test]
fn options() {
    Target::new("options").run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches('\n');
        let lifetime = vfleet::fuzzing::lifetime(text);
        assert!(
            lifetime.as_ref().is_ok_and(|time| (12..=3650 * 24 * 3600).contains(&time.as_secs()))
                || lifetime.is_err()
        );
        assert!(u32::try_from(vfleet::fuzzing::minutes(text)).is_ok());
        let addresses = vfleet::fuzzing::node_addresses(text);
        let printed: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        assert_eq!(vfleet::fuzzing::node_addresses(&printed.join(",")), addresses);
        if let Ok((key, value)) = vfleet::fuzzing::label(text) {
            assert_eq!(format!("{key}={value}"), text);
        }
        let address = text.parse::<BindAddress>();
        if let Ok(address) = &address {
            assert_eq!(address.to_string().parse::<BindAddress>().unwrap(), *address);
        }
        let url = text.parse::<WebhookUrl>();
        if url.is_ok() {
            let parsed: http::Uri = text.parse().expect("the API server reads it as a URL");
            assert!(parsed.port_u16().is_some_and(|port| port > 0) && parsed.host().is_some(), "{text}");
        }
        let _ = parse_ca_certificate(text);
        Verdict::of(lifetime.is_ok() || address.is_ok() || url.is_ok() || !addresses.is_empty())
    });
}
