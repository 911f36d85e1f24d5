//! Admission: what is wrong with an object that somebody is about to write, and what is added to it before it is stored.
//!
//! The same functions judge at the door (the operator's webhooks), afterwards in status (condition `Valid`), and on one
//! machine without a cluster. So they need no more than is known: facts that are missing are `None`, and a rule that
//! would need them is skipped with a warning. What matches nothing *yet* is a warning; only what contradicts itself, or
//! facts that are known, is an error.

mod classes;
mod defaults;
mod finding;
mod injector;
mod names;
mod network;
mod operator_config;
mod patch;
mod policy;
mod pool;
mod texts;
mod verdict;

use serde::Deserialize;

pub use classes::{Classes, NodeClass, PolicyFacts, largest_classes, same_cards};
pub use defaults::policy_defaults;
pub use finding::{Finding, Findings, Severity};
pub use injector::{BadNetworks, Injection, NadSight, NamedNetwork, NetworkRef, inject, networks_of_pod};
pub use names::{NameFault, resource_name};
pub use network::{ResourceFacts, check_network};
pub use operator_config::{ConfigFacts, FIXED_VARIABLES, check_operator_config};
pub use patch::PatchOperation;
pub use policy::check_policy;
pub use pool::{PoolFacts, PoolRival, check_pool};
pub use verdict::{unreadable, valid};

/// What somebody is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// To create an object.
    Create,
    /// To change one.
    Update,
    /// To delete one.
    Delete,
}

/// What somebody is about to do, and with what. `T` is all of the object that rules look at.
#[derive(Debug)]
pub struct Request<'a, T> {
    /// To create, change or delete it.
    pub operation: Operation,
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// As it shall be; `None` when it is to be deleted.
    pub new: Option<&'a T>,
    /// As it is; `None` when it is to be created.
    pub old: Option<&'a T>,
}

impl<'a, T> Request<'a, T> {
    /// An object as if it were just created: how controllers judge what is there.
    pub fn creation(namespace: &'a str, name: &'a str, object: &'a T) -> Self {
        Self { operation: Operation::Create, namespace, name, new: Some(object), old: None }
    }
}

/// The operator that is asked.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    /// Its namespace: policies, pools and its config count there only.
    pub namespace: &'a str,
    /// Every card is reported, also one that the ConfigMap `supported-nic-ids` does not list.
    pub dev_mode: bool,
}

/// What `check` finds in a request, softened by what was so before. A change that leaves what counts as it is (`is_same`)
/// is not judged: it would keep finalizers from being taken off. What the old object is found to have, under the facts
/// of today, is a warning: it does not keep anybody from changing something else. The old one is checked as if it were
/// created, so that rules about a change are never softened.
pub fn judge<T>(
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
            findings.error("T01", "Negative", "spec", "it is negative");
        }
        if request.new < request.old {
            findings.error("T02", "Lowered", "spec", "it is lowered");
        }
        findings
    }

    fn errors(operation: Operation, new: Option<i32>, old: Option<i32>) -> Vec<&'static str> {
        let request = Request { operation, namespace: "ns", name: "x", new: new.as_ref(), old: old.as_ref() };
        judge(&request, PartialEq::eq, check).errors().map(|finding| finding.rule).collect()
    }

    #[test]
    fn what_is_created_or_deleted_is_judged_as_it_is() {
        assert_eq!(errors(Operation::Create, Some(-1), None), ["T01"]);
        assert_eq!(errors(Operation::Delete, None, Some(-1)), ["T02"]);
    }

    #[test]
    fn a_change_of_nothing_is_not_judged() {
        assert!(errors(Operation::Update, Some(-1), Some(-1)).is_empty());
    }

    #[test]
    fn an_old_fault_is_softened_and_a_rule_about_the_change_is_not() {
        assert_eq!(errors(Operation::Update, Some(-2), Some(-1)), ["T02"]);
        assert!(errors(Operation::Update, Some(-1), Some(-2)).is_empty());
        assert_eq!(errors(Operation::Update, Some(-1), Some(1)), ["T01", "T02"]);
    }
}
