//! Stops a drain at a status: the API server refuses to store the next status.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]
#![allow(clippy::missing_panics_doc, reason = "a failed expectation is explained where it fails")]

use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use vfleet_api::node_state::DrainStatus;

use crate::cluster::Cluster;

const DEADLINE: Duration = Duration::from_mins(1);

impl Cluster {
    /// Makes the API server refuse a drain status of a node.
    pub async fn refuse_status(&self, node: &str, status: DrainStatus) {
        let text = status.as_str();
        let is_other = format!(
            "object.metadata.name != '{node}' || !has(object.status) || !has(object.status.drainStatus) \
             || object.status.drainStatus != '{text}'"
        );
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": policy_name(node) },
            "spec": {
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": ["sriovnetwork.openshift.io"], "apiVersions": ["v1"], "operations": ["UPDATE"],
                    "resources": ["sriovnetworknodestates/status"],
                }] },
                "validations": [{ "expression": is_other, "message": "refused by a test" }],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": policy_name(node) },
            "spec": { "policyName": policy_name(node), "validationActions": ["Deny"] },
        });
        for object in [policy, binding] {
            let file = self.write_file("hold.json", &object.to_string());
            self.apply_file(&file);
        }
        self.wait_until_refused(node, status, true).await;
    }

    /// Makes the API server accept the drain status again.
    pub async fn accept_status_again(&self, node: &str, status: DrainStatus) {
        self.kubectl(&["delete", "validatingadmissionpolicybinding", &policy_name(node)]);
        self.kubectl(&["delete", "validatingadmissionpolicy", &policy_name(node)]);
        self.wait_until_refused(node, status, false).await;
    }

    /// Waits until the API server enforces the policy, which it does not announce. Tries with a dry run.
    async fn wait_until_refused(&self, node: &str, status: DrainStatus, expected: bool) {
        let params = PatchParams { dry_run: true, ..Default::default() };
        let patch = Patch::Merge(json!({ "status": { "drainStatus": status } }));
        let since = Instant::now();
        while self.states().patch_status(node, &params, &patch).await.is_err() != expected {
            assert!(since.elapsed() < DEADLINE, "timed out waiting for refused: {expected}");
        }
    }
}

fn policy_name(node: &str) -> String {
    format!("hold-{node}")
}
