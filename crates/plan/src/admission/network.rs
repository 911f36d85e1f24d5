//! Admission rules of networks of all four kinds.

use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::node_policy::{EswitchMode, LinkType};

use super::messages::NOT_CHECKED;
use super::{Findings, Installation, NameFault};
use crate::NamedPolicy;
use crate::network::{self, NetworkFault, NetworkId, NetworkKind, NetworkSpec};
use crate::prelude::*;

const RESOURCE: &str = "spec.resourceName";

/// Cluster facts that network rules use.
#[derive(Clone, Debug)]
pub struct ResourceFacts<'a> {
    /// Policies that offer the resource of the network.
    pub offered_by: Vec<NamedPolicy<'a>>,
}

/// Returns the findings about a network. `facts` is `None` until the cluster has been read.
pub fn check_network(
    id: &NetworkId,
    spec: &NetworkSpec,
    home: &Installation<'_>,
    facts: Option<&ResourceFacts<'_>>,
) -> Findings {
    let mut findings = Findings::default();
    for (field, fault) in network::find_faults(id, spec, home.namespace) {
        findings.error(rule(&fault), fault.reason(), field, fault.to_string());
    }
    if network::has_ipam_without_type(spec) {
        let text = r#"ipam has no type, so pods get no address: set type, such as {"type": "dhcp"}"#;
        findings.warning("N05", "NoIpamType", "spec.ipam", text);
    }
    check_rates(spec, &mut findings);
    check_trunk(spec, &mut findings);
    let has_resource = findings.iter().all(|finding| finding.field != RESOURCE);
    match facts {
        None => findings.warning("G02", "NotChecked", "", NOT_CHECKED),
        Some(facts) if has_resource => check_resource(id.kind, spec.resource_name(), facts, &mut findings),
        Some(_) => {}
    }
    findings
}

fn rule(fault: &NetworkFault) -> &'static str {
    match fault {
        NetworkFault::NamespaceNotAllowed { .. } => "N01",
        NetworkFault::NoResource | NetworkFault::ResourceName(NameFault::Empty) => "N02",
        NetworkFault::ResourceName(NameFault::TooLong { .. } | NameFault::Characters { .. }) => "N03",
        NetworkFault::Json { field: "capabilities", .. } => "N06",
        NetworkFault::Json { field: "metaPlugins", .. } => "N08",
        NetworkFault::Json { .. } => "N04",
        NetworkFault::Capability { .. } => "N07",
        NetworkFault::PluginWithoutType { .. } => "N09",
        NetworkFault::TooLong { .. } => "N10",
        NetworkFault::QosWithoutVlan => "N14",
        NetworkFault::ProtocolWithoutVlan => "N15",
        NetworkFault::VlanOutOfRange { .. } => "N11",
        NetworkFault::EmptyTrunk => "N19",
        NetworkFault::Unreadable { .. } => "G03",
    }
}

/// Checks N16. The schema has the same rule, but an object may be older than the rule.
fn check_rates(spec: &NetworkSpec, findings: &mut Findings) {
    let NetworkSpec::Sriov(spec) = spec else { return };
    let (min, max) = (spec.min_tx_rate.unwrap_or(0), spec.max_tx_rate.unwrap_or(0));
    if max != 0 && min > max {
        let text = "minTxRate is above maxTxRate: lower minTxRate or raise maxTxRate";
        findings.error("N16", "RatesReversed", "spec.minTxRate", text);
    }
}

/// Checks N18 and N20. Other faults of trunks are in [`network::find_faults`].
fn check_trunk(spec: &NetworkSpec, findings: &mut Findings) {
    for index in network::find_bad_ranges(spec) {
        let text = "invalid VLAN range: set both minID and maxID, with minID not above maxID";
        findings.error("N18", "InvalidRange", format!("spec.trunk[{index}]"), text);
    }
    if network::is_vlan_unused(spec) {
        let text = "vlan has no effect beside trunk: remove one of them";
        findings.warning("N20", "VlanNotUsed", "spec.vlan", text);
    }
}

/// Checks N21 to N23. All are warnings, because policies may be created later.
fn check_resource(kind: NetworkKind, name: &str, facts: &ResourceFacts<'_>, findings: &mut Findings) {
    let policies: Vec<_> = facts.offered_by.iter().filter(|policy| policy.name != IGNORED_POLICY).collect();
    let Some(NamedPolicy { name: first, .. }) = policies.first() else {
        let text = format!("no policy offers resource {name} yet");
        return findings.warning("N21", "NotOffered", RESOURCE, text);
    };
    let all = |matches: fn(&NamedPolicy<'_>) -> bool| policies.iter().all(|policy| matches(policy));
    let needs_switchdev = matches!(kind, NetworkKind::Ovs | NetworkKind::Bridge);
    if needs_switchdev && all(|policy| policy.spec.e_switch_mode != Some(EswitchMode::Switchdev)) {
        let text = format!(
            "policy {first} offers resource {name} in legacy mode, without representors: set eSwitchMode to switchdev in the policy"
        );
        findings.warning("N22", "LegacyMode", RESOURCE, text);
    }
    let (ports, other) = match kind {
        NetworkKind::InfiniBand if all(is_ethernet) => ("eth", NetworkKind::Sriov),
        NetworkKind::Sriov if all(is_infiniband) => ("ib", NetworkKind::InfiniBand),
        _ => return,
    };
    let text = format!(
        "policy {first} offers resource {name} on {ports} ports: use another resource, or create a {} instead",
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

    fn findings(kind: NetworkKind, spec: Value) -> Vec<String> {
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

    /// Objects may be older than the rules of the schema.
    #[test]
    fn rules_of_the_schema_are_also_applied_to_stored_objects() {
        let rates = json!({ "resourceName": "r", "minTxRate": 100, "maxTxRate": 10 });
        assert_eq!(
            findings(NetworkKind::Sriov, rates),
            ["spec.minTxRate: minTxRate is above maxTxRate: lower minTxRate or raise maxTxRate"]
        );
        for rates in [json!({ "minTxRate": 100, "maxTxRate": 0 }), json!({ "minTxRate": 100 })] {
            let mut spec = rates;
            spec["resourceName"] = json!("r");
            assert!(findings(NetworkKind::Sriov, spec).is_empty());
        }
        let trunk = json!({ "resourceName": "r", "trunk": [{ "id": 1 }, { "minID": 1 }, { "minID": 9, "maxID": 1 }] });
        let text = "invalid VLAN range: set both minID and maxID, with minID not above maxID";
        let expected = [format!("spec.trunk[1]: {text}"), format!("spec.trunk[2]: {text}")];
        assert_eq!(findings(NetworkKind::Ovs, trunk), expected);
    }
}
