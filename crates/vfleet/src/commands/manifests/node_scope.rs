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
use vfleet_api::keys::{DESIRED_DRAIN_STATE, NODE_DRAIN_STATE, USE_EXTERNAL_DRAINER};
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
    /// Of the object itself, only these annotations may change; anything, when `None`.
    annotations: Option<&'static [&'static str]>,
}

const SUBJECTS: [Subject; 3] = [
    Subject {
        policy: "vfleet-agent-node-states",
        accounts: &[Account::Agent],
        group: "sriovnetwork.openshift.io",
        version: "v1",
        resources: &["sriovnetworknodestates", "sriovnetworknodestates/status"],
        node: "variables.touched.metadata.name",
        what: "'the node state '",
        annotations: Some(&[DESIRED_DRAIN_STATE, USE_EXTERNAL_DRAINER]),
    },
    Subject {
        policy: "vfleet-agent-nodes",
        accounts: &[Account::Agent],
        group: "",
        version: "v1",
        resources: &["nodes"],
        node: "variables.touched.metadata.name",
        what: "'the node '",
        annotations: Some(&[DESIRED_DRAIN_STATE, NODE_DRAIN_STATE]),
    },
    Subject {
        policy: "vfleet-agent-pods",
        accounts: &[Account::Agent, Account::DevicePlugin],
        group: "",
        version: "v1",
        resources: &["pods", "pods/status"],
        node: "has(variables.touched.spec.nodeName) ? variables.touched.spec.nodeName : ''",
        what: "'a pod on node '",
        annotations: None,
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
    let mut variables = vec![
        variable("touched", "request.operation == 'CREATE' ? object : oldObject"),
        variable("belongsTo", subject.node),
        variable(
            "asks",
            &format!(
                "'{NODE_OF_TOKEN}' in request.userInfo.extra ? \
                 request.userInfo.extra['{NODE_OF_TOKEN}'][0] : ''"
            ),
        ),
    ];
    let mut validations = of_its_own_node(subject);
    if let Some(annotations) = subject.annotations {
        let of = |which| format!("has({which}.metadata.annotations) ? {which}.metadata.annotations : {{}}");
        // Both are there only then.
        let of_an_update = |which| format!("request.operation == 'UPDATE' ? ({}) : {{}}", of(which));
        variables.push(variable("before", &of_an_update("oldObject")));
        variables.push(variable("after", &of_an_update("object")));
        validations.extend(nothing_but(annotations, subject));
    }
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
        variables: Some(variables),
        validations: Some(validations),
        ..Default::default()
    };
    ValidatingAdmissionPolicy {
        metadata: cluster_wide(subject.policy, namespace),
        spec: Some(spec),
        ..Default::default()
    }
}

fn of_its_own_node(subject: &Subject) -> Vec<Validation> {
    let without_node = "the agent's token does not say on which node it runs: only a token that is bound to the \
                        agent's pod may write";
    let of_another = format!(
        "'the agent of node ' + variables.asks + ' may not write ' + {} + variables.belongsTo + \
         ': an agent writes only what belongs to its own node'",
        subject.what
    );
    vec![
        Validation { message: Some(without_node.to_owned()), ..validation("variables.asks != ''") },
        Validation {
            message_expression: Some(of_another),
            ..validation("variables.asks == '' || variables.asks == variables.belongsTo")
        },
    ]
}

/// Nothing of the object changes but these annotations.
fn nothing_but(annotations: &[&str], subject: &Subject) -> Vec<Validation> {
    let names: Vec<_> = annotations.iter().map(|name| format!("'{name}'")).collect();
    let names = names.join(", ");
    let refused = format!(
        "'the agent of node ' + variables.asks + ' may change nothing of ' + {} + variables.belongsTo + \
         ' but its status and the annotations {}'",
        subject.what,
        annotations.join(" and ")
    );
    let same = |field: &str| format!("object.{field} == oldObject.{field}");
    let same = ["?spec", "metadata.?labels", "metadata.?finalizers", "metadata.?ownerReferences"].map(same);
    let rules = [
        format!("request.operation != 'UPDATE' || {}", same.join(" && ")),
        format!(
            "variables.after.all(name, name in [{names}] || \
             name in variables.before && variables.before[name] == variables.after[name])"
        ),
        format!("variables.before.all(name, name in [{names}] || name in variables.after)"),
    ];
    let refuse = |rule: &String| Validation { message_expression: Some(refused.clone()), ..validation(rule) };
    rules.iter().map(refuse).collect()
}

fn validation(expression: &str) -> Validation {
    Validation {
        expression: expression.to_owned(),
        reason: Some("Forbidden".to_owned()),
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
