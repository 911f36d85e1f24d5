//! Holds a drain where it is: the API server refuses to write what would come next.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]
#![allow(clippy::missing_panics_doc, reason = "what fails a test is said where it fails")]

use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use vfleet_api::node_state::DrainStatus;

use crate::cluster::Cluster;

const DEADLINE: Duration = Duration::from_mins(1);

impl Cluster {
    /// From now on nobody can write this drain status of the node.
    pub async fn refuse_status(&self, node: &str, status: DrainStatus) {
        let text = status.as_str();
        let is_other = format!(
            "object.metadata.name != '{node}' || !has(object.status) || !has(object.status.drainStatus) \
             || object.status.drainStatus != '{text}'"
        );
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": held(node) },
            "spec": {
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": ["sriovnetwork.openshift.io"], "apiVersions": ["v1"], "operations": ["UPDATE"],
                    "resources": ["sriovnetworknodestates/status"],
                }] },
                "validations": [{ "expression": is_other, "message": "held by a test" }],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": held(node) },
            "spec": { "policyName": held(node), "validationActions": ["Deny"] },
        });
        for object in [policy, binding] {
            let file = self.file("hold.json", &object.to_string());
            self.apply_file(&file);
        }
        self.wait_until_refused(node, status, true).await;
    }

    /// Everybody can again.
    pub async fn refuse_no_more(&self, node: &str, status: DrainStatus) {
        self.kubectl(&["delete", "validatingadmissionpolicybinding", &held(node)]);
        self.kubectl(&["delete", "validatingadmissionpolicy", &held(node)]);
        self.wait_until_refused(node, status, false).await;
    }

    /// Nothing announces when the API server heeds a policy: it is asked, and writes nothing.
    async fn wait_until_refused(&self, node: &str, status: DrainStatus, expected: bool) {
        let params = PatchParams { dry_run: true, ..Default::default() };
        let patch = Patch::Merge(json!({ "status": { "drainStatus": status } }));
        let since = Instant::now();
        while self.states().patch_status(node, &params, &patch).await.is_err() != expected {
            assert!(since.elapsed() < DEADLINE, "refused: {expected}, never came");
        }
    }
}

fn held(node: &str) -> String {
    format!("hold-{node}")
}
