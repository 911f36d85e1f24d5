//! Accounts and roles, from the one list of rights.

use anyhow::Context;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;
use vfleet_api::keys::INSTALLATION_LABEL;
use vfleet_operator::rights::{
    Account, EXTERNAL_DRAINER_ROLE, FOR_EXTERNAL_DRAINER, OWN_NAMESPACE, RIGHTS, Right, Scope,
};

use super::{cluster_wide, named, words};

/// The namespace, and the accounts that a real cluster needs. The device plugin's account itself is made by the
/// operator, when it is wanted.
pub(super) fn for_installation(namespace: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = vec![object(&home(namespace))?];
    for account in [Account::Operator, Account::Agent] {
        objects.extend(for_account(account, namespace)?);
    }
    objects.extend(usual_roles(Account::DevicePlugin, namespace)?);
    Ok(objects)
}

/// What agents may do as well where somebody else drains nodes.
pub(super) fn for_external_drainer(namespace: &str) -> anyhow::Result<Vec<Value>> {
    roles(EXTERNAL_DRAINER_ROLE, FOR_EXTERNAL_DRAINER, Account::Agent, namespace)
}

/// An account with its rights.
pub(super) fn for_account(account: Account, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let service_account = ServiceAccount { metadata: named(account.name(), namespace), ..Default::default() };
    let mut objects = vec![object(&service_account)?];
    objects.extend(usual_roles(account, namespace)?);
    Ok(objects)
}

/// Agents are privileged: they change the machine that they run on. No other operator judges what is in here.
fn home(namespace: &str) -> Namespace {
    let levels = ["enforce", "audit", "warn"];
    let label = |level| (format!("pod-security.kubernetes.io/{level}"), "privileged".to_owned());
    let installation = (INSTALLATION_LABEL.to_owned(), namespace.to_owned());
    Namespace {
        metadata: ObjectMeta {
            name: Some(namespace.to_owned()),
            labels: Some(levels.map(label).into_iter().chain([installation]).collect()),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn usual_roles(account: Account, namespace: &str) -> anyhow::Result<Vec<Value>> {
    roles(account.role_name(), RIGHTS, account, namespace)
}

/// Roles of this name with those of `rights` that are the account's, and their bindings.
fn roles(name: &str, rights: &[Right], account: Account, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let subjects = Some(vec![Subject {
        kind: "ServiceAccount".to_owned(),
        name: account.name().to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Default::default()
    }]);
    let mut objects = Vec::new();
    if let Some(rules) = rules(rights, account, Scope::Cluster, namespace) {
        let metadata = cluster_wide(name, namespace);
        let role_ref = role_ref("ClusterRole", &metadata);
        objects.push(object(&ClusterRole {
            metadata: metadata.clone(),
            rules: Some(rules),
            ..Default::default()
        })?);
        objects.push(object(&ClusterRoleBinding { metadata, role_ref, subjects: subjects.clone() })?);
    }
    if let Some(rules) = rules(rights, account, Scope::OwnNamespace, namespace) {
        let metadata = named(name, namespace);
        let role_ref = role_ref("Role", &metadata);
        objects.push(object(&Role { metadata: metadata.clone(), rules: Some(rules) })?);
        objects.push(object(&RoleBinding { metadata, role_ref, subjects })?);
    }
    Ok(objects)
}

/// `None` when there are none.
fn rules(rights: &[Right], account: Account, scope: Scope, namespace: &str) -> Option<Vec<PolicyRule>> {
    let given = rights.iter().filter(|right| right.scope == scope && right.accounts.contains(&account));
    let rules: Vec<_> = given.map(|right| rule(right, namespace)).collect();
    (!rules.is_empty()).then_some(rules)
}

fn rule(right: &Right, namespace: &str) -> PolicyRule {
    let named = |name: &&str| name.replace(OWN_NAMESPACE, namespace);
    PolicyRule {
        api_groups: Some(words(&[right.group])),
        resources: Some(words(right.resources)),
        resource_names: (!right.names.is_empty()).then(|| right.names.iter().map(named).collect()),
        verbs: words(right.verbs),
        ..Default::default()
    }
}

fn role_ref(kind: &str, role: &ObjectMeta) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: kind.to_owned(),
        name: role.name.clone().unwrap_or_default(),
    }
}

/// Any object as plain data.
pub(super) fn object(object: &impl Serialize) -> anyhow::Result<Value> {
    serde_json::to_value(object).context("cannot write an object")
}
