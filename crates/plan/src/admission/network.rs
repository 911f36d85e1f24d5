//! Networks of all four kinds.

use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::node_policy::{EswitchMode, LinkType};

use super::texts::NOT_CHECKED;
use super::{Findings, Installation, NameFault};
use crate::NamedPolicy;
use crate::network::{self, NetworkFault, NetworkId, NetworkKind, NetworkSpec};
use crate::prelude::*;

const RESOURCE: &str = "spec.resourceName";

/// What is known of the cluster when a network is judged.
#[derive(Clone, Debug)]
pub struct ResourceFacts<'a> {
    /// The policies that offer the resource that the network names.
    pub offered_by: Vec<NamedPolicy<'a>>,
}

/// What is wrong with a network. `facts` is `None` while the cluster is not completely known.
pub fn check_network(
    id: &NetworkId,
    spec: &NetworkSpec,
    home: &Installation<'_>,
    facts: Option<&ResourceFacts<'_>>,
) -> Findings {
    let mut findings = Findings::default();
    for (field, fault) in network::faults(id, spec, home.namespace) {
        findings.error(rule(&fault), fault.reason(), field, fault.to_string());
    }
    if network::has_ipam_without_type(spec) {
        let text = r#"ipam has no type, so no address is given: set type, as in {"type": "dhcp"}"#;
        findings.warning("N05", "NoIpamType", "spec.ipam", text);
    }
    rates(spec, &mut findings);
    trunk(spec, &mut findings);
    let has_a_name = findings.iter().all(|finding| finding.field != RESOURCE);
    match facts {
        None => findings.warning("G02", "NotChecked", "", NOT_CHECKED),
        Some(facts) if has_a_name => resource(id.kind, spec.resource_name(), facts, &mut findings),
        Some(_) => {}
    }
    findings
}

fn rule(fault: &NetworkFault) -> &'static str {
    match fault {
        NetworkFault::NamespaceNotAllowed { .. } => "N01",
        NetworkFault::NoResource | NetworkFault::ResourceName(NameFault::Empty) => "N02",
        NetworkFault::ResourceName(NameFault::TooLong { .. } | NameFault::Signs { .. }) => "N03",
        NetworkFault::Json { field: "capabilities", .. } => "N06",
        NetworkFault::Json { field: "metaPlugins", .. } => "N08",
        NetworkFault::Json { .. } => "N04",
        NetworkFault::Capability { .. } => "N07",
        NetworkFault::PluginWithoutType { .. } => "N09",
        NetworkFault::TooLong { .. } => "N10",
        NetworkFault::QosWithoutVlan => "N14",
        NetworkFault::ProtocolWithoutVlan => "N15",
        NetworkFault::VlanBeyond { .. } => "N11",
        NetworkFault::EmptyTrunk => "N19",
        NetworkFault::Unreadable { .. } => "G03",
    }
}

/// N16. The API server refuses it, but may have stored it before there was such a rule.
fn rates(spec: &NetworkSpec, findings: &mut Findings) {
    let NetworkSpec::Sriov(spec) = spec else { return };
    let (least, most) = (spec.min_tx_rate.unwrap_or(0), spec.max_tx_rate.unwrap_or(0));
    if most != 0 && least > most {
        let text = "minTxRate must not be above maxTxRate";
        findings.error("N16", "RatesReversed", "spec.minTxRate", text);
    }
}

/// N18, N20. The rest of what is wrong with trunks keeps the network from being made.
fn trunk(spec: &NetworkSpec, findings: &mut Findings) {
    for at in network::bad_ranges(spec) {
        let text = "minID and maxID go together, and minID must not be above maxID";
        findings.error("N18", "InvalidRange", format!("spec.trunk[{at}]"), text);
    }
    if network::is_vlan_unused(spec) {
        let text = "the trunk counts, and not vlan: remove one of them";
        findings.warning("N20", "VlanNotUsed", "spec.vlan", text);
    }
}

/// N21 to N23. Policies may come later, and others with them: all of these are warnings.
fn resource(kind: NetworkKind, name: &str, facts: &ResourceFacts<'_>, findings: &mut Findings) {
    let policies: Vec<_> = facts.offered_by.iter().filter(|policy| policy.name != IGNORED_POLICY).collect();
    let Some(NamedPolicy { name: first, .. }) = policies.first() else {
        let text = format!("no policy offers the resource {name} yet");
        return findings.warning("N21", "NotOffered", RESOURCE, text);
    };
    let all = |is_so: fn(&NamedPolicy<'_>) -> bool| policies.iter().all(|policy| is_so(policy));
    let needs_switchdev = matches!(kind, NetworkKind::Ovs | NetworkKind::Bridge);
    if needs_switchdev && all(|policy| policy.spec.e_switch_mode != Some(EswitchMode::Switchdev)) {
        let text = format!(
            "policy {first} gives {name} in legacy mode, without representors: set eSwitchMode to switchdev there"
        );
        findings.warning("N22", "LegacyMode", RESOURCE, text);
    }
    let (ports, other) = match kind {
        NetworkKind::InfiniBand if all(is_ethernet) => ("eth", NetworkKind::Sriov),
        NetworkKind::Sriov if all(is_infiniband) => ("ib", NetworkKind::InfiniBand),
        _ => return,
    };
    let text = format!(
        "policy {first} gives {name} on {ports} ports: use a resource of the other kind, or make a {} of it",
        other.name()
    );
    findings.warning("N23", "OtherLinkType", RESOURCE, text);
}

fn is_ethernet(policy: &NamedPolicy<'_>) -> bool {
    matches!(policy.spec.link_type, Some(LinkType::Eth | LinkType::EthLower))
}

fn is_infiniband(policy: &NamedPolicy<'_>) -> bool {
    matches!(policy.spec.link_type, Some(LinkType::Ib | LinkType::IbLower))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn told(kind: NetworkKind, spec: Value) -> Vec<String> {
        let spec = match kind {
            NetworkKind::Sriov => NetworkSpec::Sriov(serde_json::from_value(spec).unwrap()),
            _ => NetworkSpec::Ovs(serde_json::from_value(spec).unwrap()),
        };
        let id = NetworkId { kind, namespace: "home".to_owned(), name: "net".to_owned() };
        let home = Installation { namespace: "home", dev_mode: false };
        let policy = serde_json::from_value(json!({
            "resourceName": "r", "numVfs": 1, "nodeSelector": {}, "nicSelector": {}, "eSwitchMode": "switchdev",
        }))
        .unwrap();
        let facts = ResourceFacts { offered_by: vec![NamedPolicy { name: "p", spec: &policy }] };
        check_network(&id, &spec, &home, Some(&facts)).iter().map(ToString::to_string).collect()
    }

    /// The API server refuses these; here they come from an object that is older than its rules.
    #[test]
    fn what_the_schema_refuses_is_found_in_stored_objects_too() {
        let rates = json!({ "resourceName": "r", "minTxRate": 100, "maxTxRate": 10 });
        assert_eq!(
            told(NetworkKind::Sriov, rates),
            ["spec.minTxRate: minTxRate must not be above maxTxRate"]
        );
        for rates in [json!({ "minTxRate": 100, "maxTxRate": 0 }), json!({ "minTxRate": 100 })] {
            let mut spec = rates;
            spec["resourceName"] = json!("r");
            assert!(told(NetworkKind::Sriov, spec).is_empty());
        }
        let trunk = json!({ "resourceName": "r", "trunk": [{ "id": 1 }, { "minID": 1 }, { "minID": 9, "maxID": 1 }] });
        let text = "minID and maxID go together, and minID must not be above maxID";
        let expected = [format!("spec.trunk[1]: {text}"), format!("spec.trunk[2]: {text}")];
        assert_eq!(told(NetworkKind::Ovs, trunk), expected);
    }
}
