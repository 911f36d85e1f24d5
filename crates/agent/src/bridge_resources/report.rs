//! Report about the resources of bridges: log lines, metrics, the condition of the node state, and Events. Each is repeated
//! only after it changed.

use std::sync::Arc;

use kube::runtime::events::EventType;
use tokio::sync::watch;
use vfleet_api::conditions::{BRIDGE_RESOURCES, ConditionUpdate};
use vfleet_host::format_error_chain;
use vfleet_plan::bridge_resources::{BridgeCapacity, BridgeResourceFault, BridgeResourceMode};

use super::CapacityError;
use crate::metrics::Metrics;
use crate::notice::Notice;
use crate::{Config, ProcessConditions};

/// Report of one agent.
pub(super) struct ResourceReport {
    node: String,
    pub(super) metrics: Arc<Metrics>,
    conditions: watch::Sender<ProcessConditions>,
}

impl ResourceReport {
    pub(super) fn new(config: &Config) -> Self {
        let (metrics, conditions) = (Arc::clone(&config.metrics), config.process_conditions.clone());
        Self { node: config.node.clone(), metrics, conditions }
    }

    /// Reports the resources of the Node after an attempt to write them. Returns what is worth an Event.
    pub(super) fn update(
        &self,
        mode: BridgeResourceMode,
        found: Option<&BridgeCapacity>,
        fault: Option<&BridgeResourceFault>,
        written: &Result<usize, CapacityError>,
    ) -> Vec<Notice> {
        let names = found.map(BridgeCapacity::names).unwrap_or_default();
        self.metrics.record_bridge_resources(names.len());
        if written.is_err() {
            self.metrics.record_bridge_resource_failure();
        }
        let mut notices = Vec::new();
        if matches!(written, Ok(1..)) {
            let names: Vec<_> = names.into_iter().collect();
            notices.push(self.changed_notice(mode, &names.join(", ")));
        }
        notices.extend(self.set_condition(condition(fault, written.as_ref().err())));
        notices
    }

    fn changed_notice(&self, mode: BridgeResourceMode, names: &str) -> Notice {
        let note = match (mode, names) {
            (BridgeResourceMode::Reported, "") => {
                "the Node reports no Open vSwitch bridge as a resource, since there is none any more"
                    .to_owned()
            }
            (BridgeResourceMode::Reported, names) => {
                format!("the Node reports its Open vSwitch bridges as resources: {names}")
            }
            (_, "") => {
                "the resources of Open vSwitch bridges were removed from the Node, since the feature gate \
                 ovsBridgeResources is off"
                    .to_owned()
            }
            (_, names) => format!(
                "the feature gate ovsBridgeResources is off: resources of Open vSwitch bridges that another program \
                 reports stay on the Node: {names}"
            ),
        };
        tracing::info!(node = self.node, "{note}");
        Notice { type_: EventType::Normal, reason: "BridgeResourcesChanged", note }
    }

    /// Sets the condition, or removes it. Returns an Event if there is a new problem.
    fn set_condition(&self, condition: Option<ConditionUpdate>) -> Option<Notice> {
        let is_new = self.conditions.send_if_modified(|conditions| {
            let is_new = conditions.get(BRIDGE_RESOURCES) != condition.as_ref();
            match &condition {
                Some(condition) => _ = conditions.insert(BRIDGE_RESOURCES, condition.clone()),
                None => _ = conditions.remove(BRIDGE_RESOURCES),
            }
            is_new
        });
        let ConditionUpdate { reason, message, .. } = condition.filter(|_| is_new)?;
        tracing::warn!(node = self.node, reason, "{message}");
        Some(Notice { type_: EventType::Warning, reason, note: message })
    }
}

/// Returns the condition about everything that is wrong; `None` if nothing is.
fn condition(
    fault: Option<&BridgeResourceFault>,
    failure: Option<&CapacityError>,
) -> Option<ConditionUpdate> {
    let failure = failure.map(|error| (error.reason(), format!("{}; retrying", format_error_chain(error))));
    let fault = fault.map(|fault| (fault.reason(), fault.to_string()));
    let (reasons, messages): (Vec<_>, Vec<_>) = failure.into_iter().chain(fault).unzip();
    let reason = *reasons.first()?;
    Some(ConditionUpdate { type_: BRIDGE_RESOURCES, status: false, reason, message: messages.join("; ") })
}
