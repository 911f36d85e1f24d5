//! Admission policies that restrict agents and the external Go device plugin to their own node.
//!
//! RBAC cannot do that, since all agents share a service account. But the token of a pod contains the name of its node,
//! which the API server adds to the user info of every request.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation, Variable,
};
use serde_json::Value;
use vfleet_api::keys::{DESIRED_DRAIN_STATE, NODE_DRAIN_STATE, USE_EXTERNAL_DRAINER};
use vfleet_operator::permissions::Account;

use super::rbac::object;
use super::{cluster_wide, to_strings};

/// Key in the user info of a request with the name of the node that the request comes from.
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

/// Resources that a policy restricts.
struct ScopedResource {
    policy: &'static str,
    /// Restricted accounts.
    accounts: &'static [Account],
    group: &'static str,
    version: &'static str,
    resources: &'static [&'static str],
    /// Name of the node that the object belongs to, in CEL.
    node: &'static str,
    /// Description of the object for messages, in CEL.
    description: &'static str,
    /// Annotations of the object that may be changed; `None` allows any change.
    annotations: Option<&'static [&'static str]>,
}

const SCOPED_RESOURCES: [ScopedResource; 3] = [
    ScopedResource {
        policy: "vfleet-agent-node-states",
        accounts: &[Account::Agent],
        group: "sriovnetwork.openshift.io",
        version: "v1",
        resources: &["sriovnetworknodestates", "sriovnetworknodestates/status"],
        node: "variables.touched.metadata.name",
        description: "'the node state '",
        annotations: Some(&[DESIRED_DRAIN_STATE, USE_EXTERNAL_DRAINER]),
    },
    ScopedResource {
        policy: "vfleet-agent-nodes",
        accounts: &[Account::Agent],
        group: "",
        version: "v1",
        resources: &["nodes"],
        node: "variables.touched.metadata.name",
        description: "'the node '",
        annotations: Some(&[DESIRED_DRAIN_STATE, NODE_DRAIN_STATE]),
    },
    ScopedResource {
        policy: "vfleet-agent-pods",
        accounts: &[Account::Agent, Account::DevicePlugin],
        group: "",
        version: "v1",
        resources: &["pods", "pods/status"],
        node: "has(variables.touched.spec.nodeName) ? variables.touched.spec.nodeName : ''",
        description: "'a pod on node '",
        annotations: None,
    },
];

/// Returns the policies and their bindings.
pub(super) fn policies(namespace: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for resource in &SCOPED_RESOURCES {
        objects.push(object(&policy(resource, namespace))?);
        objects.push(object(&binding(resource, namespace))?);
    }
    Ok(objects)
}

fn policy(resource: &ScopedResource, namespace: &str) -> ValidatingAdmissionPolicy {
    let user = |account: &Account| format!("'system:serviceaccount:{namespace}:{}'", account.name());
    let users: Vec<_> = resource.accounts.iter().map(user).collect();
    let mut variables = vec![
        variable("touched", "request.operation == 'CREATE' ? object : oldObject"),
        variable("belongsTo", resource.node),
        variable(
            "asks",
            &format!(
                "'{NODE_OF_TOKEN}' in request.userInfo.extra ? \
                 request.userInfo.extra['{NODE_OF_TOKEN}'][0] : ''"
            ),
        ),
    ];
    let mut validations = own_node_validations(resource);
    if let Some(annotations) = resource.annotations {
        let of = |which| format!("has({which}.metadata.annotations) ? {which}.metadata.annotations : {{}}");
        // Only updates have both objects.
        let of_an_update = |which| format!("request.operation == 'UPDATE' ? ({}) : {{}}", of(which));
        variables.push(variable("before", &of_an_update("oldObject")));
        variables.push(variable("after", &of_an_update("object")));
        validations.extend(annotation_validations(annotations, resource));
    }
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(MatchResources {
            resource_rules: Some(vec![NamedRuleWithOperations {
                api_groups: Some(to_strings(&[resource.group])),
                api_versions: Some(to_strings(&[resource.version])),
                operations: Some(to_strings(&["CREATE", "UPDATE", "DELETE"])),
                resources: Some(to_strings(resource.resources)),
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
        metadata: cluster_wide(resource.policy, namespace),
        spec: Some(spec),
        ..Default::default()
    }
}

fn own_node_validations(resource: &ScopedResource) -> Vec<Validation> {
    let without_node =
        "the agent's token does not contain its node: use a token that is bound to the agent's pod";
    let of_another = format!(
        "'the agent of node ' + variables.asks + ' may not write ' + {} + variables.belongsTo + \
         ': an agent writes only what belongs to its own node'",
        resource.description
    );
    vec![
        Validation { message: Some(without_node.to_owned()), ..validation("variables.asks != ''") },
        Validation {
            message_expression: Some(of_another),
            ..validation("variables.asks == '' || variables.asks == variables.belongsTo")
        },
    ]
}

/// Returns validations that only these annotations of the object are changed.
fn annotation_validations(annotations: &[&str], resource: &ScopedResource) -> Vec<Validation> {
    let names: Vec<_> = annotations.iter().map(|name| format!("'{name}'")).collect();
    let names = names.join(", ");
    let refused = format!(
        "'the agent of node ' + variables.asks + ' may change nothing of ' + {} + variables.belongsTo + \
         ' but its status and the annotations {}'",
        resource.description,
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

fn binding(resource: &ScopedResource, namespace: &str) -> ValidatingAdmissionPolicyBinding {
    let metadata = cluster_wide(resource.policy, namespace);
    ValidatingAdmissionPolicyBinding {
        spec: Some(ValidatingAdmissionPolicyBindingSpec {
            policy_name: metadata.name.clone(),
            validation_actions: Some(to_strings(&["Deny"])),
            ..Default::default()
        }),
        metadata,
    }
}

fn variable(name: &str, expression: &str) -> Variable {
    Variable { name: name.to_owned(), expression: expression.to_owned() }
}
