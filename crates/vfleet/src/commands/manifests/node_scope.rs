//! Admission policies that keep an agent, and the separate device plugin, to their own node.
//!
//! RBAC cannot do that: it knows names, but not which agent asks. The API server puts the node of a pod into the pod's
//! token, and says so with every request.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation, Variable,
};
use serde_json::Value;
use vfleet_operator::rights::Account;

use super::rbac::object;
use super::{cluster_wide, words};

/// Where the API server says from which node a request comes.
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

/// What a policy is about.
struct Subject {
    policy: &'static str,
    /// Whom it keeps to their nodes.
    accounts: &'static [Account],
    group: &'static str,
    version: &'static str,
    resources: &'static [&'static str],
    /// The name of the node that the object belongs to, in CEL.
    node: &'static str,
    /// What it is called, in CEL.
    what: &'static str,
}

const SUBJECTS: [Subject; 2] = [
    Subject {
        policy: "vfleet-agent-node-states",
        accounts: &[Account::Agent],
        group: "sriovnetwork.openshift.io",
        version: "v1",
        resources: &["sriovnetworknodestates", "sriovnetworknodestates/status"],
        node: "variables.touched.metadata.name",
        what: "'the node state '",
    },
    Subject {
        policy: "vfleet-agent-pods",
        accounts: &[Account::Agent, Account::DevicePlugin],
        group: "",
        version: "v1",
        resources: &["pods", "pods/status"],
        node: "has(variables.touched.spec.nodeName) ? variables.touched.spec.nodeName : ''",
        what: "'a pod on node '",
    },
];

/// The policies and their bindings.
pub(super) fn policies(namespace: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for subject in &SUBJECTS {
        objects.push(object(&policy(subject, namespace))?);
        objects.push(object(&binding(subject, namespace))?);
    }
    Ok(objects)
}

fn policy(subject: &Subject, namespace: &str) -> ValidatingAdmissionPolicy {
    let user = |account: &Account| format!("'system:serviceaccount:{namespace}:{}'", account.name());
    let users: Vec<_> = subject.accounts.iter().map(user).collect();
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(MatchResources {
            resource_rules: Some(vec![NamedRuleWithOperations {
                api_groups: Some(words(&[subject.group])),
                api_versions: Some(words(&[subject.version])),
                operations: Some(words(&["CREATE", "UPDATE", "DELETE"])),
                resources: Some(words(subject.resources)),
                ..Default::default()
            }]),
            ..Default::default()
        }),
        match_conditions: Some(vec![MatchCondition {
            name: "asked-by-an-agent".to_owned(),
            expression: format!("request.userInfo.username in [{}]", users.join(", ")),
        }]),
        variables: Some(vec![
            variable("touched", "request.operation == 'CREATE' ? object : oldObject"),
            variable("belongsTo", subject.node),
            variable(
                "asks",
                &format!(
                    "'{NODE_OF_TOKEN}' in request.userInfo.extra ? \
                     request.userInfo.extra['{NODE_OF_TOKEN}'][0] : ''"
                ),
            ),
        ]),
        validations: Some(vec![
            Validation {
                expression: "variables.asks != ''".to_owned(),
                message: Some(
                    "the agent's token does not say on which node it runs: only a token that is bound to the \
                     agent's pod may write"
                        .to_owned(),
                ),
                reason: Some("Forbidden".to_owned()),
                ..Default::default()
            },
            Validation {
                expression: "variables.asks == '' || variables.asks == variables.belongsTo".to_owned(),
                message_expression: Some(format!(
                    "'the agent of node ' + variables.asks + ' may not write ' + {} + variables.belongsTo + \
                     ': an agent writes only what belongs to its own node'",
                    subject.what
                )),
                reason: Some("Forbidden".to_owned()),
                ..Default::default()
            },
        ]),
        ..Default::default()
    };
    ValidatingAdmissionPolicy {
        metadata: cluster_wide(subject.policy, namespace),
        spec: Some(spec),
        ..Default::default()
    }
}

fn binding(subject: &Subject, namespace: &str) -> ValidatingAdmissionPolicyBinding {
    let metadata = cluster_wide(subject.policy, namespace);
    ValidatingAdmissionPolicyBinding {
        spec: Some(ValidatingAdmissionPolicyBindingSpec {
            policy_name: metadata.name.clone(),
            validation_actions: Some(words(&["Deny"])),
            ..Default::default()
        }),
        metadata,
    }
}

fn variable(name: &str, expression: &str) -> Variable {
    Variable { name: name.to_owned(), expression: expression.to_owned() }
}
