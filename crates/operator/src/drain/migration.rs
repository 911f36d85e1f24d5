//! Migration of unfinished drains of the Go operator from annotations to the status of the node state.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde_json::{Value, json};
use vfleet_api::keys::{
    CORDON, CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, DRAIN_REQUEST, GO_DRAIN_LEASE, NODE_DRAIN_STATE,
};
use vfleet_api::node_state::DrainStatus;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::drain::{MigratedStatus, MigrationStep, Moment};

use super::objects::ResourceVersion;
use super::writes::DrainWriter;
use crate::replica::context::Context;

/// Node to be migrated, with the resource versions of the decision.
pub(super) struct MigrationTarget<'a> {
    pub(super) name: &'a str,
    pub(super) node: &'a ResourceVersion,
    pub(super) state: &'a ResourceVersion,
}

impl DrainWriter {
    /// Executes one step of a migration. The next step is planned from the result.
    pub(super) async fn migrate(
        &self,
        target: MigrationTarget<'_>,
        step: &MigrationStep,
    ) -> Result<(), WriteError> {
        match step {
            MigrationStep::Status(migrated) => {
                let patch = status_patch(*migrated, target.state, Moment::from(Timestamp::now()));
                if self.patch_status(target.name, patch).await? {
                    let (node, status) = (target.name, migrated.status.as_str());
                    tracing::info!("{node}: continuing the drain of the Go operator with status {status}");
                }
            }
            MigrationStep::Node(mark) => {
                let mut annotations = json!({ NODE_DRAIN_STATE: null, DESIRED_DRAIN_STATE: null });
                if let Some(mark) = mark {
                    annotations[CORDON] = json!(mark.cordon.text());
                    annotations[DRAIN_REQUEST] = json!(mark.request_text(&self.namespace));
                }
                self.patch_node(target.name, target.node, annotations, None).await?;
            }
            MigrationStep::State => {
                let annotations = json!({ DESIRED_DRAIN_STATE: null, CURRENT_DRAIN_STATE: null });
                self.annotate_state(target.name, target.state, annotations).await?;
            }
            MigrationStep::UnknownValue { .. } => {}
        }
        Ok(())
    }
}

/// Returns the message about an annotation with an unknown value.
pub(super) fn unknown_value_text(key: &str, value: &str) -> String {
    format!(
        "annotation {key} has the unknown value {value:?} and is ignored: remove it, or set it to Idle, when no drain \
         is in progress"
    )
}

/// Deletes the lease with which old versions of the Go operator drained one node at a time.
pub(super) async fn remove_lease(context: Context) -> Result<(), WriteError> {
    let writer = Writer::new(context.leadership.clone());
    let leases: Api<Lease> = Api::namespaced(context.client.clone(), &context.config.namespace);
    match writer.read(&leases, GO_DRAIN_LEASE).await? {
        Some(lease) => writer.delete(&leases, &lease).await,
        None => Ok(()),
    }
}

fn status_patch(migrated: MigratedStatus, version: &ResourceVersion, now: Moment) -> Value {
    let mut status = json!({
        "drainStatus": migrated.status,
        "drainScope": migrated.scope,
        "drainRequestedAt": migrated.request.to_time(),
    });
    match migrated.status {
        DrainStatus::Draining => status["drainingSince"] = json!(now.to_time()),
        DrainStatus::DrainingComplete => status["drainCompletedAt"] = json!(now.to_time()),
        _ => {}
    }
    json!({ "metadata": { "resourceVersion": version.as_str() }, "status": status })
}

#[cfg(test)]
mod tests {
    use vfleet_api::SriovNetworkNodeState;
    use vfleet_api::node_state::DrainScope;
    use vfleet_plan::drain::StateFacts;

    use super::*;

    #[test]
    fn a_migrated_status_can_be_read_back() {
        let (request, now) = (Moment(1_000_001), Moment(2_000_002));
        for status in [DrainStatus::DrainRequired, DrainStatus::Draining, DrainStatus::DrainingComplete] {
            let migrated = MigratedStatus { status, scope: DrainScope::Full, request };
            let mut object = status_patch(migrated, &ResourceVersion::from("7"), now);
            assert_eq!(object["metadata"]["resourceVersion"], "7");
            object["spec"] = json!({});
            let facts = StateFacts::of(&serde_json::from_value::<SriovNetworkNodeState>(object).unwrap());
            assert_eq!((facts.status, facts.scope, facts.request), (status, DrainScope::Full, Some(request)));
            assert_eq!(facts.draining_since.is_some(), status == DrainStatus::Draining);
            assert_eq!(facts.completed_at.is_some(), status == DrainStatus::DrainingComplete);
        }
    }
}
