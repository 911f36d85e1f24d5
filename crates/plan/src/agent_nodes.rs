//! Which nodes run an agent.

use vfleet_api::keys::{OS_LABEL, WORKER_LABEL};

use crate::prelude::*;

/// Whether a node with these labels runs an agent. `selector` is `configDaemonNodeSelector` of the operator config; with
/// an empty one Linux workers do.
pub fn runs_agent(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    if selector.is_empty() {
        labels.contains_key(WORKER_LABEL) && labels.get(OS_LABEL).is_some_and(|os| os == "linux")
    } else {
        selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}
