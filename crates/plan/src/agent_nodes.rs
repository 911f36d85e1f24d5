//! Nodes that run an agent.

use vfleet_api::keys::{OS_LABEL, WORKER_LABEL};

use crate::prelude::*;

/// Returns whether a node with these labels runs an agent. `selector` is `configDaemonNodeSelector` of the operator
/// config; if it is empty, Linux workers run an agent.
pub fn runs_agent(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    missing_agent_label(selector, labels).is_none()
}

/// Returns why no node both matches `node_selector` of a policy and has an agent that reported. `agent_selector` is
/// `configDaemonNodeSelector` of the operator config, `nodes` are all nodes of the cluster with their labels.
pub fn explain_no_matching_node<'a>(
    node_selector: &BTreeMap<String, String>,
    agent_selector: &BTreeMap<String, String>,
    nodes: impl Iterator<Item = (&'a str, &'a BTreeMap<String, String>)>,
) -> String {
    let matches = |labels: &BTreeMap<String, String>| {
        node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    // The first by name, so that the message does not depend on the order of `nodes`.
    let matching = nodes.filter(|(_, labels)| matches(labels)).min_by_key(|(node, _)| *node);
    if let Some((node, labels)) = matching {
        return match missing_agent_label(agent_selector, labels) {
            Some(missing) => {
                format!("node {node} matches nodeSelector but lacks label {missing}, so it runs no agent")
            }
            None => format!("node {node} matches nodeSelector but has no node state yet"),
        };
    }
    let missing: Vec<_> = node_selector.iter().map(|(key, value)| label(key, value)).collect();
    match missing.as_slice() {
        [] => "the cluster has no nodes".to_owned(),
        [one] => format!("no node has label {one}: label nodes, or correct nodeSelector"),
        several => {
            format!("no node has all labels {}: label nodes, or correct nodeSelector", several.join(", "))
        }
    }
}

/// Returns the first label that a node with these labels needs in order to run an agent.
fn missing_agent_label(
    selector: &BTreeMap<String, String>,
    labels: &BTreeMap<String, String>,
) -> Option<String> {
    if !selector.is_empty() {
        let missing = selector.iter().find(|(key, value)| labels.get(*key) != Some(*value));
        return missing.map(|(key, value)| label(key, value));
    }
    if !labels.contains_key(WORKER_LABEL) {
        return Some(WORKER_LABEL.to_owned());
    }
    let is_linux = labels.get(OS_LABEL).is_some_and(|os| os == "linux");
    (!is_linux).then(|| label(OS_LABEL, "linux"))
}

fn label(key: &str, value: &str) -> String {
    format!("{key}={value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn explain(selector: &[(&str, &str)], agents: &[(&str, &str)]) -> String {
        let worker = labels(&[(WORKER_LABEL, ""), (OS_LABEL, "linux"), ("rack", "a")]);
        let extra = labels(&[(OS_LABEL, "linux"), ("rack", "b")]);
        let nodes = [("n2", &worker), ("n1", &worker), ("extra", &extra)];
        explain_no_matching_node(&labels(selector), &labels(agents), nodes.into_iter())
    }

    #[test]
    fn names_the_labels_that_no_node_has() {
        assert_eq!(
            explain(&[("sriov", "true")], &[]),
            "no node has label sriov=true: label nodes, or correct nodeSelector"
        );
        assert_eq!(
            explain(&[("rack", "a"), ("sriov", "true")], &[]),
            "no node has all labels rack=a, sriov=true: label nodes, or correct nodeSelector"
        );
    }

    #[test]
    fn names_a_matching_node_that_runs_no_agent() {
        assert_eq!(
            explain(&[("rack", "b")], &[]),
            "node extra matches nodeSelector but lacks label node-role.kubernetes.io/worker, so it runs no agent"
        );
        assert_eq!(
            explain(&[("rack", "b")], &[("sriov", "true")]),
            "node extra matches nodeSelector but lacks label sriov=true, so it runs no agent"
        );
    }

    #[test]
    fn names_a_matching_node_without_a_node_state() {
        assert_eq!(explain(&[("rack", "a")], &[]), "node n1 matches nodeSelector but has no node state yet");
    }
}
