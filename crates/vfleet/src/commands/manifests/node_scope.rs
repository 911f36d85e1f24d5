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
use vfleet_api::keys::{BRIDGE_RESOURCE_DOMAIN, DESIRED_DRAIN_STATE, NODE_DRAIN_STATE, USE_EXTERNAL_DRAINER};
use vfleet_operator::permissions::Account;

use super::rbac::object;
use super::{cluster_wide, to_strings};

/// Key in the user info of a request with the name of the node that the request comes from.
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

/// Lists of resources in the status of a node, with the variables for them. The API server derives the second list from the
/// first one if the kubelet did not report it.
const RESOURCE_LISTS: [(&str, &str, &str); 2] = [
    ("capacityBefore", "capacityAfter", "capacity"),
    ("allocatableBefore", "allocatableAfter", "allocatable"),
];

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
    /// Parts of the object that may be changed.
    allowed: AllowedParts,
}

/// Parts of an object that an agent may change.
enum AllowedParts {
    /// Everything.
    All,
    /// The status and these annotations.
    StatusAndAnnotations(&'static [&'static str]),
    /// Resources of this domain in the status of a node.
    Resources(&'static str),
}

const SCOPED_RESOURCES: [ScopedResource; 4] = [
    ScopedResource {
        policy: "vfleet-agent-node-states",
        accounts: &[Account::Agent],
        group: "sriovnetwork.openshift.io",
        version: "v1",
        resources: &["sriovnetworknodestates", "sriovnetworknodestates/status"],
        node: "variables.touched.metadata.name",
        description: "'the node state '",
        allowed: AllowedParts::StatusAndAnnotations(&[DESIRED_DRAIN_STATE, USE_EXTERNAL_DRAINER]),
    },
    ScopedResource {
        policy: "vfleet-agent-nodes",
        accounts: &[Account::Agent],
        group: "",
        version: "v1",
        resources: &["nodes"],
        node: "variables.touched.metadata.name",
        description: "'the node '",
        allowed: AllowedParts::StatusAndAnnotations(&[DESIRED_DRAIN_STATE, NODE_DRAIN_STATE]),
    },
    ScopedResource {
        policy: "vfleet-agent-node-capacities",
        accounts: &[Account::Agent],
        group: "",
        version: "v1",
        resources: &["nodes/status"],
        node: "variables.touched.metadata.name",
        description: "'the node '",
        allowed: AllowedParts::Resources(BRIDGE_RESOURCE_DOMAIN),
    },
    ScopedResource {
        policy: "vfleet-agent-pods",
        accounts: &[Account::Agent, Account::DevicePlugin],
        group: "",
        version: "v1",
        resources: &["pods", "pods/status"],
        node: "has(variables.touched.spec.nodeName) ? variables.touched.spec.nodeName : ''",
        description: "'a pod on node '",
        allowed: AllowedParts::All,
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
    match resource.allowed {
        AllowedParts::All => {}
        AllowedParts::StatusAndAnnotations(annotations) => {
            variables.extend(map_variables("before", "after", "metadata.?annotations"));
            validations.extend(annotation_validations(annotations, resource));
        }
        AllowedParts::Resources(domain) => {
            variables.extend(map_variables("before", "after", "?status"));
            for (before, after, field) in RESOURCE_LISTS {
                variables.extend(map_variables(before, after, &format!("?status.?{field}")));
            }
            validations.extend(resource_validations(domain, resource));
        }
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

/// Returns variables with a map of the object before and after an update; empty for another operation, which has only one
/// of these objects.
fn map_variables(before: &str, after: &str, field: &str) -> [Variable; 2] {
    let of_an_update =
        |object| format!("request.operation == 'UPDATE' ? dyn({object}.{field}.orValue({{}})) : {{}}");
    [variable(before, &of_an_update("oldObject")), variable(after, &of_an_update("object"))]
}

/// Returns rules that two maps are the same, except for keys that are `allowed`.
fn same_maps(before: &str, after: &str, allowed: &str) -> [String; 2] {
    let (before, after) = (format!("variables.{before}"), format!("variables.{after}"));
    [
        format!("{after}.all(name, {allowed} || name in {before} && {before}[name] == {after}[name])"),
        format!("{before}.all(name, {allowed} || name in {after})"),
    ]
}

/// Returns the rule that these fields of an object are not changed.
fn same_fields(fields: &[&str]) -> String {
    let same: Vec<_> = fields.iter().map(|field| format!("object.{field} == oldObject.{field}")).collect();
    format!("request.operation != 'UPDATE' || {}", same.join(" && "))
}

/// Returns validations that only these annotations of the object, and its status, are changed.
fn annotation_validations(annotations: &[&str], resource: &ScopedResource) -> Vec<Validation> {
    let names: Vec<_> = annotations.iter().map(|name| format!("'{name}'")).collect();
    let allowed = format!("name in [{}]", names.join(", "));
    let [added, removed] = same_maps("before", "after", &allowed);
    let fields = ["?spec", "metadata.?labels", "metadata.?finalizers", "metadata.?ownerReferences"];
    let parts = format!("its status and the annotations {}", annotations.join(" and "));
    refuse_unless(&[same_fields(&fields), added, removed], &parts, resource)
}

/// Returns validations that only resources of this domain are changed.
fn resource_validations(domain: &str, resource: &ScopedResource) -> Vec<Validation> {
    let fields = ["annotations", "labels", "finalizers", "ownerReferences"];
    let fields = fields.map(|field| format!("metadata.?{field}"));
    let mut rules = vec![same_fields(&fields.each_ref().map(String::as_str))];
    let lists: Vec<_> = RESOURCE_LISTS.iter().map(|(_, _, field)| format!("'{field}'")).collect();
    rules.extend(same_maps("before", "after", &format!("name in [{}]", lists.join(", "))));
    for (before, after, _) in RESOURCE_LISTS {
        rules.extend(same_maps(before, after, &format!("name.startsWith('{domain}/')")));
    }
    refuse_unless(&rules, &format!("the resources {domain}/* of its status"), resource)
}

/// Returns validations that refuse a change of anything but `parts`.
fn refuse_unless(rules: &[String], parts: &str, resource: &ScopedResource) -> Vec<Validation> {
    let refused = format!(
        "'the agent of node ' + variables.asks + ' may change nothing of ' + {} + variables.belongsTo + ' but {parts}'",
        resource.description
    );
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
