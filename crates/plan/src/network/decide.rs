//! What to do for a network: it, and the NADs and namespaces around it => steps and what to say.

use vfleet_api::conditions::{READY, Verdict};
use vfleet_api::keys::NETWORK_FINALIZER;

use super::{Nad, NetworkFault, NetworkId};
use crate::prelude::*;

/// Reasons of a network's Ready condition.
pub mod reasons {
    /// The NAD is there, as it shall be.
    pub const READY: &str = "NetworkReady";
    /// The NAD is not there.
    pub const NOT_FOUND: &str = "NetworkAttachmentDefinitionNotFound";
    /// The NAD cannot be made of this network.
    pub const INVALID: &str = "NetworkAttachmentDefinitionInvalid";
    /// The namespace of the NAD is not there.
    pub const NAMESPACE_NOT_FOUND: &str = "NamespaceNotFound";
    /// Another operator looks after the network.
    pub const LEFT_TO_ANOTHER: &str = "LeftToAnotherOperator";
}

/// What counts of a network beside what it wants.
#[derive(Clone, Copy, Debug)]
pub struct NetworkFacts<'a> {
    /// Which one.
    pub id: &'a NetworkId,
    /// Its UID.
    pub uid: &'a str,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it carries [`vfleet_api::keys::NETWORK_FINALIZER`].
    pub has_finalizer: bool,
    /// Where its NAD was put last, see [`remembered_namespace`].
    pub remembered: Option<&'a str>,
}

/// Where a network's NAD was put last, by its annotation [`vfleet_api::keys::LAST_NETWORK_NAMESPACE`]. The Go operator
/// leaves an empty one behind. On a network that may not reach into other namespaces it cannot name one: whoever may
/// write such a network could otherwise have NADs deleted anywhere.
pub fn remembered_namespace<'a>(
    id: &NetworkId,
    annotation: Option<&'a str>,
    operator_namespace: &str,
) -> Option<&'a str> {
    annotation.filter(|namespace| {
        !namespace.is_empty() && (id.namespace == operator_namespace || id.namespace == **namespace)
    })
}

/// What counts of a NAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NadFacts {
    /// Its namespace.
    pub namespace: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its annotation [`vfleet_api::keys::NAD_OWNER`], unless that is empty.
    pub owner: Option<String>,
    /// Its annotation [`vfleet_api::keys::NAD_RESOURCE`].
    pub resource: Option<String>,
    /// Its owner references.
    pub owner_references: Vec<OwnerFacts>,
    /// Its `spec.config`.
    pub config: Option<String>,
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerFacts {
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID.
    pub uid: String,
}

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceFacts {
    /// It is not there.
    Missing,
    /// It is being deleted: nothing can be created in it.
    Ending,
    /// It is there.
    There,
}

/// What is around a network.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The namespace of the operator.
    pub operator_namespace: &'a str,
    /// The namespace that the NAD shall be in.
    pub target: NamespaceFacts,
    /// The NADs of the network's name in the namespace where it shall be and in the remembered one. `None` when the
    /// cluster does not know the kind.
    pub nads: Option<&'a [&'a NadFacts]>,
}

/// Something to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkStep {
    /// Note on the network where its NAD will be, before there is something to clean up.
    Prepare {
        /// Whether to put the finalizer on it.
        add_finalizer: bool,
        /// The namespace of the NAD.
        namespace: String,
    },
    /// Create the NAD.
    Create(Nad),
    /// Set the parts of the NAD that are ours.
    Update(Nad),
    /// Delete the NAD in this namespace.
    Delete {
        /// The namespace.
        namespace: String,
    },
    /// Let the network go.
    RemoveFinalizer,
}

/// What to do for a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to write, one after the other. Each may be the last one: what is left is then decided again.
    pub steps: Vec<NetworkStep>,
    /// What holds once that is written; nothing about a network that is about to go.
    pub verdict: Option<Verdict>,
}

impl Decision {
    fn only(verdict: Verdict) -> Self {
        Self { steps: Vec::new(), verdict: Some(verdict) }
    }
}

/// What to do for a network that shall have the NAD `wanted`.
///
/// At any time the network's NAD is nowhere else than where the network remembers it to be. So a move deletes the old
/// one, remembers the new place, and makes the new one; whoever is cut off in between finds all that is left to do.
///
/// Nothing of that begins before the new place is free: a slip of the pen in `networkNamespace` must not take the
/// network away from pods.
pub fn decide(
    network: &NetworkFacts<'_>,
    wanted: &Result<Nad, Vec<NetworkFault>>,
    around: &Surroundings<'_>,
) -> Decision {
    if belongs_to_another_operator(network, around) {
        return Decision { steps: Vec::new(), verdict: network.deleting.then(|| left_to_another(network)) };
    }
    if network.deleting {
        return farewell(network, around);
    }
    match wanted {
        Err(faults) => Decision::only(faulty(network, faults, around)),
        Ok(nad) => place(network, nad, around),
    }
}

/// Only the operator of the namespace that a network is in puts the finalizer on it. Another one does not know where its
/// NAD is, and would let it go too early.
fn belongs_to_another_operator(network: &NetworkFacts<'_>, around: &Surroundings<'_>) -> bool {
    network.has_finalizer && network.id.namespace != around.operator_namespace
}

fn left_to_another(network: &NetworkFacts<'_>) -> Verdict {
    let message = format!(
        "it goes when the operator in {} has cleaned up; if there is none any more, delete its \
         NetworkAttachmentDefinition and remove the finalizer {NETWORK_FINALIZER}",
        network.id.namespace
    );
    failing(reasons::LEFT_TO_ANOTHER, message)
}

/// All NADs of the network go, then the network may.
fn farewell(network: &NetworkFacts<'_>, around: &Surroundings<'_>) -> Decision {
    if !network.has_finalizer {
        return Decision { steps: Vec::new(), verdict: None };
    }
    let nads = around.nads.unwrap_or_default();
    let ours: Vec<_> = nads.iter().filter(|nad| is_ours(network, nad)).collect();
    if ours.is_empty() {
        return Decision { steps: vec![NetworkStep::RemoveFinalizer], verdict: None };
    }
    let held = ours.iter().find(|nad| nad.deleting).map(|nad| {
        let place = place_of(network, &nad.namespace);
        failing(reasons::NOT_FOUND, format!("{place} is being deleted, but a finalizer on it holds it"))
    });
    let steps = ours.iter().filter(|nad| !nad.deleting).map(|nad| deletion(nad)).collect();
    Decision { steps, verdict: held }
}

fn faulty(network: &NetworkFacts<'_>, faults: &[NetworkFault], around: &Surroundings<'_>) -> Verdict {
    let texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
    let message = and_what_stays(texts.join("; "), network, around.nads.unwrap_or_default());
    failing(reasons::INVALID, message)
}

/// The NAD is made, or set right.
fn place(network: &NetworkFacts<'_>, wanted: &Nad, around: &Surroundings<'_>) -> Decision {
    let place = place_of(network, &wanted.namespace);
    let Some(nads) = around.nads else {
        return Decision::only(failing(
            reasons::NOT_FOUND,
            "this cluster has no NetworkAttachmentDefinitions; install Multus or their CustomResourceDefinition".into(),
        ));
    };
    let found = nads.iter().find(|nad| nad.namespace == wanted.namespace);
    let write = match found {
        Some(nad) if let Some(owner) = other_owner(network, nad) => {
            let message = format!(
                "{place} belongs to {owner} and is left alone; rename one of the two, or delete what is not needed"
            );
            return Decision::only(failing(reasons::INVALID, message));
        }
        Some(nad) if nad.deleting => {
            let message = format!("{place} is being deleted and will be made again when it is gone");
            return Decision::only(failing(reasons::NOT_FOUND, message));
        }
        Some(nad) if is_as_wanted(network, nad, wanted) => None,
        Some(_) => Some(NetworkStep::Update(wanted.clone())),
        None => match around.target {
            NamespaceFacts::There => Some(NetworkStep::Create(wanted.clone())),
            missing => return Decision::only(no_namespace(network, &wanted.namespace, missing, nads)),
        },
    };
    let add_finalizer = !network.has_finalizer && network.id.namespace == around.operator_namespace;
    let must_prepare = add_finalizer || network.remembered != Some(wanted.namespace.as_str());
    let old = nads
        .iter()
        .filter(|nad| nad.namespace != wanted.namespace && !nad.deleting && is_ours(network, nad))
        .map(|nad| deletion(nad));
    let prepare =
        must_prepare.then(|| NetworkStep::Prepare { add_finalizer, namespace: wanted.namespace.clone() });
    let steps = old.chain(prepare).chain(write).collect();
    let verdict =
        Verdict { type_: READY, holds: true, reason: reasons::READY, message: format!("{place} is there") };
    Decision { steps, verdict: Some(verdict) }
}

fn no_namespace(
    network: &NetworkFacts<'_>,
    namespace: &str,
    facts: NamespaceFacts,
    nads: &[&NadFacts],
) -> Verdict {
    let state = if facts == NamespaceFacts::Ending { "is being deleted" } else { "does not exist" };
    let message = format!("the namespace {namespace} {state}; create it, or correct networkNamespace");
    let message = and_what_stays(message, network, nads);
    failing(reasons::NAMESPACE_NOT_FOUND, message)
}

fn and_what_stays(message: String, network: &NetworkFacts<'_>, nads: &[&NadFacts]) -> String {
    match nads.iter().find(|nad| is_ours(network, nad)) {
        Some(nad) => {
            format!("{message}. {} stays as it is until then", place_of(network, &nad.namespace))
        }
        None => message,
    }
}

/// Whether the network made this NAD: it says so itself, or, if it is older than that annotation, its owner reference or
/// the network's own note does.
fn is_ours(network: &NetworkFacts<'_>, nad: &NadFacts) -> bool {
    match &nad.owner {
        Some(owner) => *owner == network.id.to_string(),
        None if has_reference(network, nad) => true,
        None => other_owner(network, nad).is_none() && network.remembered == Some(nad.namespace.as_str()),
    }
}

/// Who else it belongs to. A NAD that belongs to nobody may be taken.
fn other_owner(network: &NetworkFacts<'_>, nad: &NadFacts) -> Option<String> {
    match &nad.owner {
        Some(owner) => (*owner != network.id.to_string()).then(|| owner.clone()),
        None if has_reference(network, nad) => None,
        // One of the same name is the network itself, before it was deleted and created again.
        None => nad
            .owner_references
            .iter()
            .find(|owner| owner.kind != network.id.kind.name() || owner.name != network.id.name)
            .map(|owner| format!("{} {}", owner.kind, owner.name)),
    }
}

fn is_as_wanted(network: &NetworkFacts<'_>, nad: &NadFacts, wanted: &Nad) -> bool {
    nad.owner.as_ref() == Some(&wanted.owner)
        && nad.resource.as_ref() == Some(&wanted.resource)
        && nad.config.as_ref() == Some(&wanted.config)
        && (!wanted.owner_reference || has_reference(network, nad))
}

fn has_reference(network: &NetworkFacts<'_>, nad: &NadFacts) -> bool {
    nad.owner_references.iter().any(|owner| owner.uid == network.uid)
}

fn deletion(nad: &NadFacts) -> NetworkStep {
    NetworkStep::Delete { namespace: nad.namespace.clone() }
}

fn place_of(network: &NetworkFacts<'_>, namespace: &str) -> String {
    format!("NetworkAttachmentDefinition {namespace}/{}", network.id.name)
}

fn failing(reason: &'static str, message: String) -> Verdict {
    Verdict { type_: READY, holds: false, reason, message }
}
