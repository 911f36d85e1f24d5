//! Reconciliation of a network: network, NADs and namespaces => steps and the condition Ready.

use vfleet_api::conditions::{ConditionUpdate, READY};
use vfleet_api::keys::NETWORK_FINALIZER;

use super::{DesiredNad, NetworkFault, NetworkId};
use crate::prelude::*;

/// Reasons of the condition Ready of networks.
pub mod reasons {
    /// The NAD exists and is up to date.
    pub const READY: &str = "NetworkReady";
    /// The NAD does not exist.
    pub const NOT_FOUND: &str = "NetworkAttachmentDefinitionNotFound";
    /// No NAD can be created for the network.
    pub const INVALID: &str = "NetworkAttachmentDefinitionInvalid";
    /// The namespace of the NAD does not exist.
    pub const NAMESPACE_NOT_FOUND: &str = "NamespaceNotFound";
    /// Another operator manages the network.
    pub const MANAGED_BY_ANOTHER: &str = "ManagedByAnotherOperator";
}

/// Facts of a network besides its spec.
#[derive(Clone, Copy, Debug)]
pub struct NetworkFacts<'a> {
    /// Identity of the network.
    pub id: &'a NetworkId,
    /// UID of the network.
    pub uid: &'a str,
    /// The network is being deleted.
    pub deleting: bool,
    /// The network has [`vfleet_api::keys::NETWORK_FINALIZER`].
    pub has_finalizer: bool,
    /// Last namespace of the NAD, see [`last_nad_namespace`].
    pub last_namespace: Option<&'a str>,
}

/// Returns the last namespace of the NAD of a network, from its annotation
/// [`vfleet_api::keys::LAST_NETWORK_NAMESPACE`]. The Go operator leaves an empty annotation behind. A network outside
/// the namespace of the operator can only name its own namespace: otherwise its author could have NADs deleted
/// anywhere.
pub fn last_nad_namespace<'a>(
    id: &NetworkId,
    annotation: Option<&'a str>,
    operator_namespace: &str,
) -> Option<&'a str> {
    annotation.filter(|namespace| {
        !namespace.is_empty() && (id.namespace == operator_namespace || id.namespace == **namespace)
    })
}

/// Facts of a NAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NadFacts {
    /// Namespace of the NAD.
    pub namespace: String,
    /// The NAD is being deleted.
    pub deleting: bool,
    /// Annotation [`vfleet_api::keys::NAD_OWNER`], unless it is empty.
    pub owner: Option<String>,
    /// Annotation [`vfleet_api::keys::NAD_RESOURCE`].
    pub resource: Option<String>,
    /// Owner references of the NAD.
    pub owner_references: Vec<OwnerReferenceFacts>,
    /// `spec.config` of the NAD.
    pub config: Option<String>,
}

/// Owner reference of a NAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerReferenceFacts {
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// UID of the owner.
    pub uid: String,
}

/// State of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetNamespace {
    /// The namespace does not exist.
    Missing,
    /// The namespace is being deleted: nothing can be created in it.
    Terminating,
    /// The namespace exists.
    Active,
}

/// Objects that decide about a network besides the network itself.
#[derive(Clone, Copy, Debug)]
pub struct NetworkEnvironment<'a> {
    /// Namespace of the operator.
    pub operator_namespace: &'a str,
    /// State of the desired namespace of the NAD.
    pub target: TargetNamespace,
    /// NADs with the name of the network, in the desired and in the last namespace. `None` if the cluster has no CRD
    /// for NADs.
    pub nads: Option<&'a [&'a NadFacts]>,
}

/// Write to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkStep {
    /// Record the namespace of the NAD on the network before the NAD is created.
    Prepare {
        /// Add the finalizer, too.
        add_finalizer: bool,
        /// Namespace of the NAD.
        namespace: String,
    },
    /// Create the NAD.
    Create(DesiredNad),
    /// Update the fields of the NAD that vfleet manages.
    Update(DesiredNad),
    /// Delete the NAD.
    Delete {
        /// Namespace of the NAD.
        namespace: String,
    },
    /// Remove the finalizer from the network.
    RemoveFinalizer,
}

/// Steps for a network, and its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkDecision {
    /// Steps in order. If a step fails, the network is decided again.
    pub steps: Vec<NetworkStep>,
    /// Condition Ready after the steps; `None` for a network that is about to be deleted.
    pub condition: Option<ConditionUpdate>,
}

impl NetworkDecision {
    fn without_steps(condition: ConditionUpdate) -> Self {
        Self { steps: Vec::new(), condition: Some(condition) }
    }
}

/// Decides the steps for a network whose desired NAD is `desired`.
///
/// The NAD of a network is never in another namespace than the one that the network records. So a move deletes the old
/// NAD, records the new namespace, and creates the new NAD; after an interruption the next pass finds the remaining
/// steps.
///
/// No step is planned before the NAD can be created in the new namespace: a typing mistake in `networkNamespace` must
/// not delete the NAD that pods use.
pub fn decide(
    network: &NetworkFacts<'_>,
    desired: &Result<DesiredNad, Vec<NetworkFault>>,
    environment: &NetworkEnvironment<'_>,
) -> NetworkDecision {
    if belongs_to_another_operator(network, environment) {
        return NetworkDecision {
            steps: Vec::new(),
            condition: network.deleting.then(|| managed_by_another(network)),
        };
    }
    if network.deleting {
        return clean_up(network, environment);
    }
    match desired {
        Err(faults) => NetworkDecision::without_steps(faulty_condition(network, faults, environment)),
        Ok(nad) => reconcile_nad(network, nad, environment),
    }
}

/// Returns whether another operator manages the network: only the operator in the namespace of a network sets the
/// finalizer. This operator does not know the NAD of such a network and would remove the finalizer too early.
fn belongs_to_another_operator(network: &NetworkFacts<'_>, environment: &NetworkEnvironment<'_>) -> bool {
    network.has_finalizer && network.id.namespace != environment.operator_namespace
}

fn managed_by_another(network: &NetworkFacts<'_>) -> ConditionUpdate {
    let message = format!(
        "waiting for the operator in namespace {} to clean up; if that operator no longer exists, delete the \
         NetworkAttachmentDefinition of the network and remove finalizer {NETWORK_FINALIZER}",
        network.id.namespace
    );
    not_ready(reasons::MANAGED_BY_ANOTHER, message)
}

/// Decides the steps for a network that is being deleted: first its NADs are deleted, then its finalizer is removed.
fn clean_up(network: &NetworkFacts<'_>, environment: &NetworkEnvironment<'_>) -> NetworkDecision {
    if !network.has_finalizer {
        return NetworkDecision { steps: Vec::new(), condition: None };
    }
    let nads = environment.nads.unwrap_or_default();
    let ours: Vec<_> = nads.iter().filter(|nad| is_ours(network, nad)).collect();
    if ours.is_empty() {
        return NetworkDecision { steps: vec![NetworkStep::RemoveFinalizer], condition: None };
    }
    let blocked = ours.iter().find(|nad| nad.deleting).map(|nad| {
        let nad = describe_nad(network, &nad.namespace);
        not_ready(
            reasons::NOT_FOUND,
            format!("{nad} is being deleted, but a finalizer on it blocks the deletion"),
        )
    });
    let steps = ours.iter().filter(|nad| !nad.deleting).map(|nad| delete(nad)).collect();
    NetworkDecision { steps, condition: blocked }
}

fn faulty_condition(
    network: &NetworkFacts<'_>,
    faults: &[NetworkFault],
    environment: &NetworkEnvironment<'_>,
) -> ConditionUpdate {
    let texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
    let message = add_kept_nad(texts.join("; "), network, environment.nads.unwrap_or_default());
    not_ready(reasons::INVALID, message)
}

/// Decides the steps that create the NAD, move it or update it.
fn reconcile_nad(
    network: &NetworkFacts<'_>,
    desired: &DesiredNad,
    environment: &NetworkEnvironment<'_>,
) -> NetworkDecision {
    let name = describe_nad(network, &desired.namespace);
    let Some(nads) = environment.nads else {
        return NetworkDecision::without_steps(not_ready(
            reasons::NOT_FOUND,
            "the cluster has no CustomResourceDefinition NetworkAttachmentDefinition: install Multus".into(),
        ));
    };
    let found = nads.iter().find(|nad| nad.namespace == desired.namespace);
    let write = match found {
        Some(nad) if let Some(owner) = other_owner(network, nad) => {
            let message = format!(
                "{name} belongs to {owner} and is not changed: rename the network, or delete the NetworkAttachmentDefinition"
            );
            return NetworkDecision::without_steps(not_ready(reasons::INVALID, message));
        }
        Some(nad) if nad.deleting => {
            let message = format!("{name} is being deleted and will be created again afterwards");
            return NetworkDecision::without_steps(not_ready(reasons::NOT_FOUND, message));
        }
        Some(nad) if is_up_to_date(network, nad, desired) => None,
        Some(_) => Some(NetworkStep::Update(desired.clone())),
        None => match environment.target {
            TargetNamespace::Active => Some(NetworkStep::Create(desired.clone())),
            missing => {
                return NetworkDecision::without_steps(no_namespace(
                    network,
                    &desired.namespace,
                    missing,
                    nads,
                ));
            }
        },
    };
    let add_finalizer = !network.has_finalizer && network.id.namespace == environment.operator_namespace;
    let must_prepare = add_finalizer || network.last_namespace != Some(desired.namespace.as_str());
    let old = nads
        .iter()
        .filter(|nad| nad.namespace != desired.namespace && !nad.deleting && is_ours(network, nad))
        .map(|nad| delete(nad));
    let prepare =
        must_prepare.then(|| NetworkStep::Prepare { add_finalizer, namespace: desired.namespace.clone() });
    let steps = old.chain(prepare).chain(write).collect();
    let condition = ConditionUpdate {
        type_: READY,
        status: true,
        reason: reasons::READY,
        message: format!("{name} is up to date"),
    };
    NetworkDecision { steps, condition: Some(condition) }
}

fn no_namespace(
    network: &NetworkFacts<'_>,
    namespace: &str,
    facts: TargetNamespace,
    nads: &[&NadFacts],
) -> ConditionUpdate {
    let state = if facts == TargetNamespace::Terminating { "is being deleted" } else { "does not exist" };
    let message = format!("namespace {namespace} {state}: create it, or correct networkNamespace");
    let message = add_kept_nad(message, network, nads);
    not_ready(reasons::NAMESPACE_NOT_FOUND, message)
}

fn add_kept_nad(message: String, network: &NetworkFacts<'_>, nads: &[&NadFacts]) -> String {
    match nads.iter().find(|nad| is_ours(network, nad)) {
        Some(nad) => {
            format!("{message}. {} is not changed until then", describe_nad(network, &nad.namespace))
        }
        None => message,
    }
}

/// Returns whether the NAD belongs to the network: by its owner annotation, or for a NAD without one by its owner
/// reference or by the last namespace that the network records.
fn is_ours(network: &NetworkFacts<'_>, nad: &NadFacts) -> bool {
    match &nad.owner {
        Some(owner) => *owner == network.id.to_string(),
        None if has_owner_reference(network, nad) => true,
        None => other_owner(network, nad).is_none() && network.last_namespace == Some(nad.namespace.as_str()),
    }
}

/// Returns another owner of the NAD. A NAD without owner may be adopted.
fn other_owner(network: &NetworkFacts<'_>, nad: &NadFacts) -> Option<String> {
    match &nad.owner {
        Some(owner) => (*owner != network.id.to_string()).then(|| owner.clone()),
        None if has_owner_reference(network, nad) => None,
        // An owner of the same name is this network before it was deleted and created again.
        None => nad
            .owner_references
            .iter()
            .find(|owner| owner.kind != network.id.kind.name() || owner.name != network.id.name)
            .map(|owner| format!("{} {}", owner.kind, owner.name)),
    }
}

fn is_up_to_date(network: &NetworkFacts<'_>, nad: &NadFacts, desired: &DesiredNad) -> bool {
    nad.owner.as_ref() == Some(&desired.owner)
        && nad.resource.as_ref() == Some(&desired.resource)
        && nad.config.as_ref() == Some(&desired.config)
        && (!desired.owner_reference || has_owner_reference(network, nad))
}

fn has_owner_reference(network: &NetworkFacts<'_>, nad: &NadFacts) -> bool {
    nad.owner_references.iter().any(|owner| owner.uid == network.uid)
}

fn delete(nad: &NadFacts) -> NetworkStep {
    NetworkStep::Delete { namespace: nad.namespace.clone() }
}

fn describe_nad(network: &NetworkFacts<'_>, namespace: &str) -> String {
    format!("NetworkAttachmentDefinition {namespace}/{}", network.id.name)
}

fn not_ready(reason: &'static str, message: String) -> ConditionUpdate {
    ConditionUpdate { type_: READY, status: false, reason, message }
}
