//! Network policies of the operator.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use vfleet_operator::permissions::Account;

use super::operator::{METRICS_PORT, WEBHOOK_PORT, selector};
use super::rbac::object;
use super::{named, to_strings};

/// Label with the name of a namespace, which every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Returns the policy for the operator's pods. Pods of the `monitoring` namespaces may read metrics; of all namespaces
/// when there are none.
///
/// Probes need no rule: network policies do not block traffic from the pod's own node. Egress is not restricted: it
/// goes to the API server and to DNS, whose addresses and ports differ between clusters.
pub(super) fn policies(namespace: &str, monitoring: &[String]) -> anyhow::Result<Vec<Value>> {
    let policy = NetworkPolicy {
        metadata: named(Account::Operator.name(), namespace),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector()),
            policy_types: Some(to_strings(&["Ingress"])),
            ingress: Some(vec![
                // API servers are not pods, and have any address.
                NetworkPolicyIngressRule { from: None, ports: Some(vec![tcp(WEBHOOK_PORT)]) },
                NetworkPolicyIngressRule {
                    from: Some(vec![pods_of(monitoring)]),
                    ports: Some(vec![tcp(METRICS_PORT)]),
                },
            ]),
            ..Default::default()
        }),
    };
    Ok(vec![object(&policy)?])
}

fn tcp(port: i32) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(port)),
        protocol: Some("TCP".to_owned()),
        ..Default::default()
    }
}

/// Returns a peer for all pods of these namespaces; of every namespace when there are none.
fn pods_of(namespaces: &[String]) -> NetworkPolicyPeer {
    let by_name = LabelSelectorRequirement {
        key: NAMESPACE_NAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(namespaces.to_vec()),
    };
    NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector {
            match_expressions: (!namespaces.is_empty()).then(|| vec![by_name]),
            ..Default::default()
        }),
        ..Default::default()
    }
}
