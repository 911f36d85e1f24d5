//! Service accounts and roles, from the list of permissions in the operator.

use anyhow::Context;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;
use vfleet_api::keys::INSTALLATION_LABEL;
use vfleet_operator::permissions::{
    Account, BRIDGE_RESOURCE_PERMISSIONS, BRIDGE_RESOURCE_ROLE, EXTERNAL_DRAINER_PERMISSIONS,
    EXTERNAL_DRAINER_ROLE, OWN_NAMESPACE, PERMISSIONS, Permission, Scope,
};

use super::{cluster_wide, named, to_strings};

/// Returns the namespace, and the accounts that a real cluster needs. The operator creates the account of the device
/// plugin when it deploys it.
pub(super) fn for_installation(namespace: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = vec![object(&namespace_object(namespace))?];
    for account in [Account::Operator, Account::Agent] {
        objects.extend(for_account(account, namespace)?);
    }
    objects.extend(account_roles(Account::DevicePlugin, namespace)?);
    Ok(objects)
}

/// Returns the additional roles of agents for an external drainer.
pub(super) fn for_external_drainer(namespace: &str) -> anyhow::Result<Vec<Value>> {
    roles(EXTERNAL_DRAINER_ROLE, EXTERNAL_DRAINER_PERMISSIONS, Account::Agent, namespace)
}

/// Returns the additional role of agents that report Open vSwitch bridges as resources of their nodes.
pub(super) fn for_bridge_resources(namespace: &str) -> anyhow::Result<Vec<Value>> {
    roles(BRIDGE_RESOURCE_ROLE, BRIDGE_RESOURCE_PERMISSIONS, Account::Agent, namespace)
}

/// Returns an account with its roles.
pub(super) fn for_account(account: Account, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let service_account = ServiceAccount { metadata: named(account.name(), namespace), ..Default::default() };
    let mut objects = vec![object(&service_account)?];
    objects.extend(account_roles(account, namespace)?);
    Ok(objects)
}

/// Returns the namespace. Agents are privileged, since they change the machine. The label makes webhooks of other
/// installations ignore the namespace.
fn namespace_object(namespace: &str) -> Namespace {
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

fn account_roles(account: Account, namespace: &str) -> anyhow::Result<Vec<Value>> {
    roles(account.role_name(), PERMISSIONS, account, namespace)
}

/// Returns roles with those of `permissions` that belong to the account, and their bindings.
fn roles(
    name: &str,
    permissions: &[Permission],
    account: Account,
    namespace: &str,
) -> anyhow::Result<Vec<Value>> {
    let subjects = Some(vec![Subject {
        kind: "ServiceAccount".to_owned(),
        name: account.name().to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Default::default()
    }]);
    let mut objects = Vec::new();
    if let Some(rules) = rules(permissions, account, Scope::Cluster, namespace) {
        let metadata = cluster_wide(name, namespace);
        let role_ref = role_ref("ClusterRole", &metadata);
        objects.push(object(&ClusterRole {
            metadata: metadata.clone(),
            rules: Some(rules),
            ..Default::default()
        })?);
        objects.push(object(&ClusterRoleBinding { metadata, role_ref, subjects: subjects.clone() })?);
    }
    if let Some(rules) = rules(permissions, account, Scope::OwnNamespace, namespace) {
        let metadata = named(name, namespace);
        let role_ref = role_ref("Role", &metadata);
        objects.push(object(&Role { metadata: metadata.clone(), rules: Some(rules) })?);
        objects.push(object(&RoleBinding { metadata, role_ref, subjects })?);
    }
    Ok(objects)
}

/// Returns the rules for the account and scope; `None` when there are none.
fn rules(
    permissions: &[Permission],
    account: Account,
    scope: Scope,
    namespace: &str,
) -> Option<Vec<PolicyRule>> {
    let given = permissions
        .iter()
        .filter(|permission| permission.scope == scope && permission.accounts.contains(&account));
    let rules: Vec<_> = given.map(|permission| rule(permission, namespace)).collect();
    (!rules.is_empty()).then_some(rules)
}

fn rule(permission: &Permission, namespace: &str) -> PolicyRule {
    let named = |name: &&str| name.replace(OWN_NAMESPACE, namespace);
    PolicyRule {
        api_groups: Some(to_strings(&[permission.group])),
        resources: Some(to_strings(permission.resources)),
        resource_names: (!permission.names.is_empty()).then(|| permission.names.iter().map(named).collect()),
        verbs: to_strings(permission.verbs),
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

/// Returns an object as JSON.
pub(super) fn object(object: &impl Serialize) -> anyhow::Result<Value> {
    serde_json::to_value(object).context("cannot serialize an object")
}
