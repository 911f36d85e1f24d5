//! Admission rules: findings about an object before it is stored, and fields that are added to it.
//!
//! The same functions are called by the operator's webhooks, by the controllers that write condition `Valid`, and by
//! `vfleet node` without a cluster. Missing facts are `None`: a rule that needs them is skipped with a warning. An
//! object that matches nothing *yet* gets a warning. Only a contradiction within the object, or with observed facts, is
//! an error.

mod classes;
mod condition;
mod defaults;
mod finding;
mod injector;
mod messages;
mod names;
mod network;
mod operator_config;
mod patch;
mod policy;
mod pool;

use serde::Deserialize;

pub use classes::{NodeClass, NodeClasses, PolicyFacts, cards_match, keep_largest_classes};
pub use condition::{unreadable_finding, valid_condition};
pub use defaults::patch_policy_defaults;
pub use finding::{Finding, Findings, Severity};
pub use injector::{
    Injection, NadAnnotations, NamedNetwork, NetworkAnnotationError, NetworkRef, inject_resources,
    read_pod_networks,
};
pub(crate) use names::is_extended_resource;
pub use names::{NameFault, check_resource_name};
pub use network::{ResourceFacts, check_network};
pub use operator_config::{ConfigFacts, FIXED_VARIABLES, check_operator_config};
pub use patch::PatchOperation;
pub use policy::check_policy;
pub use pool::{PoolFacts, PoolRival, check_pool};

/// Operation of an admission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is changed.
    Update,
    /// The object is deleted.
    Delete,
}

/// Admission request. `T` is the part of the object that rules check.
#[derive(Debug)]
pub struct Request<'a, T> {
    /// Operation that is requested.
    pub operation: Operation,
    /// Namespace of the object.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// New object; `None` for a deletion.
    pub new: Option<&'a T>,
    /// Stored object; `None` for a creation.
    pub old: Option<&'a T>,
}

impl<'a, T> Request<'a, T> {
    /// Returns a request that creates `object`. Controllers check stored objects with it.
    pub fn creation(namespace: &'a str, name: &'a str, object: &'a T) -> Self {
        Self { operation: Operation::Create, namespace, name, new: Some(object), old: None }
    }
}

/// Operator that checks an object.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    /// Namespace of the operator. Policies, pools and the operator config are used only there.
    pub namespace: &'a str,
    /// True if agents also report cards that the ConfigMap `supported-nic-ids` does not list.
    pub dev_mode: bool,
}

/// Runs `check` with ratcheting: errors that the stored object has too become warnings, so that other fields can still
/// be changed. The stored object is checked as if it were created, so errors about the change itself stay errors.
///
/// An update that changes nothing relevant (`is_same`) is not checked: finalizers can always be removed.
pub fn evaluate<T>(
    request: &Request<'_, T>,
    is_same: impl FnOnce(&T, &T) -> bool,
    check: impl Fn(&Request<'_, T>) -> Findings,
) -> Findings {
    let (Operation::Update, Some(new), Some(old)) = (request.operation, request.new, request.old) else {
        return check(request);
    };
    if is_same(new, old) {
        return Findings::default();
    }
    let findings = check(request);
    if findings.errors().next().is_none() {
        return findings;
    }
    findings.ratcheted(&check(&Request::creation(request.namespace, request.name, old)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    fn check(request: &Request<'_, i32>) -> Findings {
        let mut findings = Findings::default();
        if request.new.is_some_and(|number| *number < 0) {
            findings.error("T01", "Negative", "spec", "the number is negative");
        }
        if request.new < request.old {
            findings.error("T02", "Lowered", "spec", "the number was lowered");
        }
        findings
    }

    fn errors(operation: Operation, new: Option<i32>, old: Option<i32>) -> Vec<&'static str> {
        let request = Request { operation, namespace: "ns", name: "x", new: new.as_ref(), old: old.as_ref() };
        evaluate(&request, PartialEq::eq, check).errors().map(|finding| finding.rule).collect()
    }

    #[test]
    fn creations_and_deletions_are_checked_without_ratcheting() {
        assert_eq!(errors(Operation::Create, Some(-1), None), ["T01"]);
        assert_eq!(errors(Operation::Delete, None, Some(-1)), ["T02"]);
    }

    #[test]
    fn an_update_that_changes_nothing_is_not_checked() {
        assert!(errors(Operation::Update, Some(-1), Some(-1)).is_empty());
    }

    #[test]
    fn old_errors_become_warnings_but_errors_about_the_change_do_not() {
        assert_eq!(errors(Operation::Update, Some(-2), Some(-1)), ["T02"]);
        assert!(errors(Operation::Update, Some(-1), Some(-2)).is_empty());
        assert_eq!(errors(Operation::Update, Some(-1), Some(1)), ["T01", "T02"]);
    }
}
