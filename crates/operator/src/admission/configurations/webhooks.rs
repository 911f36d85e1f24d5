//! Desired webhooks.
//!
//! The CEL conditions were tested with an API server (1.36), also with `object` null on DELETE, `oldObject` null on
//! CREATE, and objects without a spec. A condition that fails counts as the failure policy says, so each guards absent
//! fields.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, RuleWithOperations, ServiceReference, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::{Value, json};
use vfleet_api::keys::{INSTALLATION_LABEL, POD_DEFAULT_NETWORK, POD_NETWORKS, WEBHOOK_SERVICE};

use super::ConfigurationKind;
use crate::admission::config::WebhookUrl;
use crate::admission::server::{MUTATE, PODS, VALIDATE};
use crate::components::permissions::Account;

const GROUP: &str = "sriovnetwork.openshift.io";
const POLICIES: &[&str] = &["sriovnetworknodepolicies"];
const NETWORKS: &[&str] = &["sriovnetworks", "sriovibnetworks", "ovsnetworks", "bridgenetworks"];
const POOLS: &[&str] = &["sriovnetworkpoolconfigs"];
const OPERATOR_CONFIGS: &[&str] = &["sriovoperatorconfigs"];

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const WRITES_AND_DELETION: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// Label that the API server sets on each namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Users that delete the contents of a namespace, and dependents of deleted objects.
const CLEANERS: &[&str] = &[
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:kube-controller-manager",
];

/// Values that the webhooks depend on.
pub(crate) struct WebhookSettings<'a> {
    /// Namespace of the operator.
    pub(crate) namespace: &'a str,
    /// URL of the webhooks if the API server does not use the Service.
    pub(crate) url: Option<&'a WebhookUrl>,
    /// CA bundle in PEM; `None` if cert-manager sets it.
    pub(crate) bundle: Option<&'a str>,
    /// True if the API server reaches the server and accepts its certificate. Until then no webhook refuses requests
    /// that are not answered.
    pub(crate) is_reachable: bool,
    /// True if pods that name a network are refused while no operator answers.
    pub(crate) injector_required: bool,
}

/// Failure policy of a webhook.
#[derive(Clone, Copy)]
enum FailurePolicy {
    Fail,
    Ignore,
}

impl WebhookSettings<'_> {
    /// Returns the webhooks of a configuration.
    pub(super) fn webhooks(&self, kind: ConfigurationKind) -> Vec<Value> {
        let webhooks = match kind {
            ConfigurationKind::Validating => self.validating(),
            ConfigurationKind::Defaults => vec![self.defaults()],
            ConfigurationKind::Injector => vec![self.injector()],
        };
        webhooks.iter().map(|webhook| json!(webhook)).collect()
    }

    /// Returns the webhooks that check objects of this operator. Only in the operator's namespace is a request refused
    /// if no operator answers, and only if a spec changes. The operator config is never refused, so that admission can
    /// be disabled where the API server cannot reach the operator.
    fn validating(&self) -> Vec<MutatingWebhook> {
        let mut not_at_home = self.conditions();
        not_at_home.push(condition("not-at-home", format!("request.namespace != '{}'", self.namespace)));
        let home = vec![
            rule(GROUP, &[POLICIES, NETWORKS].concat(), WRITES),
            rule(GROUP, POOLS, WRITES_AND_DELETION),
        ];
        let elsewhere = vec![rule(GROUP, &[POLICIES, NETWORKS, POOLS, OPERATOR_CONFIGS].concat(), WRITES)];
        let webhook = |name: &str, failure_policy| {
            self.webhook(format!("{name}.operator-webhook.{GROUP}"), VALIDATE, failure_policy)
        };
        vec![
            MutatingWebhook {
                rules: Some(home),
                namespace_selector: Some(self.own_namespace()),
                match_conditions: Some(self.conditions()),
                timeout_seconds: Some(5),
                ..webhook("home", FailurePolicy::Fail)
            },
            MutatingWebhook {
                rules: Some(vec![rule(GROUP, OPERATOR_CONFIGS, WRITES_AND_DELETION)]),
                namespace_selector: Some(self.own_namespace()),
                match_conditions: Some(self.conditions()),
                ..webhook("settings", FailurePolicy::Ignore)
            },
            MutatingWebhook {
                rules: Some(elsewhere),
                namespace_selector: Some(selector(INSTALLATION_LABEL, "DoesNotExist", None)),
                match_conditions: Some(not_at_home),
                ..webhook("elsewhere", FailurePolicy::Ignore)
            },
        ]
    }

    /// Returns the webhook that adds defaults to policies.
    fn defaults(&self) -> MutatingWebhook {
        let name = format!("defaults.operator-webhook.{GROUP}");
        MutatingWebhook {
            rules: Some(vec![rule(GROUP, POLICIES, WRITES)]),
            namespace_selector: Some(self.own_namespace()),
            match_conditions: Some(vec![spec_changes(), not_being_deleted()]),
            reinvocation_policy: Some("Never".to_owned()),
            ..self.webhook(name, MUTATE, FailurePolicy::Ignore)
        }
    }

    /// Returns the webhook that adds resources to pods. Only pods that name a network are sent.
    fn injector(&self) -> MutatingWebhook {
        let failure_policy = if self.injector_required { FailurePolicy::Fail } else { FailurePolicy::Ignore };
        let excluded = vec!["kube-system".to_owned(), self.namespace.to_owned()];
        let name = "network-resources-injector-config.k8s.io".to_owned();
        MutatingWebhook {
            rules: Some(vec![rule("", &["pods"], &["CREATE"])]),
            namespace_selector: Some(selector(NAMESPACE_NAME, "NotIn", Some(excluded))),
            match_conditions: Some(vec![names_a_network()]),
            reinvocation_policy: Some("Never".to_owned()),
            ..self.webhook(name, PODS, failure_policy)
        }
    }

    /// Returns the common fields of a webhook. All fields with a default of the API server are set, so that the stored
    /// object compares as equal. `MutatingWebhook` has all fields of `ValidatingWebhook`, and is used for both.
    fn webhook(&self, name: String, path: &str, failure_policy: FailurePolicy) -> MutatingWebhook {
        let failure_policy = match failure_policy {
            FailurePolicy::Fail if self.is_reachable => "Fail",
            FailurePolicy::Fail | FailurePolicy::Ignore => "Ignore",
        };
        MutatingWebhook {
            name,
            client_config: self.client(path),
            admission_review_versions: vec!["v1".to_owned()],
            failure_policy: Some(failure_policy.to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            object_selector: Some(LabelSelector::default()),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(3),
            ..Default::default()
        }
    }

    /// Returns the address of the webhook. The URL is for clusters in which nothing forwards to Services, as in tests.
    fn client(&self, path: &str) -> WebhookClientConfig {
        let service = ServiceReference {
            name: WEBHOOK_SERVICE.to_owned(),
            namespace: self.namespace.to_owned(),
            path: Some(path.to_owned()),
            port: Some(443),
        };
        WebhookClientConfig {
            ca_bundle: self.bundle.map(|bundle| ByteString(bundle.as_bytes().to_vec())),
            service: self.url.is_none().then_some(service),
            url: self.url.map(|url| format!("{}{path}", url.text)),
        }
    }

    fn own_namespace(&self) -> LabelSelector {
        selector(NAMESPACE_NAME, "In", Some(vec![self.namespace.to_owned()]))
    }

    fn conditions(&self) -> Vec<MatchCondition> {
        let operator = format!("system:serviceaccount:{}:{}", self.namespace, Account::Operator.name());
        let cleaners: Vec<_> = CLEANERS.iter().map(|name| format!("'{name}'")).collect();
        vec![
            spec_changes(),
            not_being_deleted(),
            // The operator must not wait for itself.
            condition("not-by-the-operator", format!("request.userInfo.username != '{operator}'")),
            // Namespaces can always be deleted.
            condition(
                "not-by-cleaners",
                format!(
                    "request.operation != 'DELETE' || !(request.userInfo.username in [{}])",
                    cleaners.join(", ")
                ),
            ),
        ]
    }
}

/// Excludes changes of finalizers, labels and annotations.
fn spec_changes() -> MatchCondition {
    condition("the-spec-changes", "request.operation != 'UPDATE' || object.?spec != oldObject.?spec")
}

fn not_being_deleted() -> MatchCondition {
    condition(
        "it-is-not-going-away",
        "request.operation == 'DELETE' || !has(object.metadata.deletionTimestamp)",
    )
}

fn names_a_network() -> MatchCondition {
    let names = |annotation| {
        format!(
            "('{annotation}' in object.metadata.annotations && object.metadata.annotations['{annotation}'] != '')"
        )
    };
    let (networks, default) = (names(POD_NETWORKS), names(POD_DEFAULT_NETWORK));
    condition("names-a-network", format!("has(object.metadata.annotations) && ({networks} || {default})"))
}

fn condition(name: &str, expression: impl Into<String>) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression: expression.into() }
}

/// Returns a rule without subresources: status writes are never sent.
fn rule(group: &str, resources: &[&str], operations: &[&str]) -> RuleWithOperations {
    let words = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect());
    RuleWithOperations {
        api_groups: words(&[group]),
        api_versions: words(&["v1"]),
        operations: words(operations),
        resources: words(resources),
        scope: Some("Namespaced".to_owned()),
    }
}

fn selector(label: &str, operator: &str, values: Option<Vec<String>>) -> LabelSelector {
    let requirement =
        LabelSelectorRequirement { key: label.to_owned(), operator: operator.to_owned(), values };
    LabelSelector { match_expressions: Some(vec![requirement]), match_labels: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(injector_required: bool) -> WebhookSettings<'static> {
        WebhookSettings {
            namespace: "home",
            url: None,
            bundle: Some("pem"),
            is_reachable: true,
            injector_required,
        }
    }

    fn resources(webhook: &MutatingWebhook) -> impl Iterator<Item = &str> {
        let rules = webhook.rules.iter().flatten();
        rules.flat_map(|rule| rule.resources.iter().flatten()).map(String::as_str)
    }

    fn is_for_own_namespace(webhook: &MutatingWebhook) -> bool {
        webhook.namespace_selector == Some(settings(false).own_namespace())
    }

    fn failure_policies(settings: &WebhookSettings<'_>) -> Vec<Value> {
        let webhooks = ConfigurationKind::ALL.into_iter().flat_map(|kind| settings.webhooks(kind));
        webhooks.map(|webhook| webhook["failurePolicy"].clone()).collect()
    }

    #[test]
    fn no_webhook_refuses_unanswered_requests_before_it_is_reachable() {
        assert_eq!(failure_policies(&settings(false)), ["Fail", "Ignore", "Ignore", "Ignore", "Ignore"]);
        assert_eq!(failure_policies(&settings(true)), ["Fail", "Ignore", "Ignore", "Ignore", "Fail"]);
        let unreachable = WebhookSettings { is_reachable: false, ..settings(true) };
        assert_eq!(failure_policies(&unreachable), ["Ignore"; 5]);
    }

    #[test]
    fn every_kind_is_checked_once_in_the_operators_namespace() {
        let webhooks = settings(false).validating();
        let own = webhooks.iter().filter(|webhook| is_for_own_namespace(webhook));
        let mut checked: Vec<_> = own.flat_map(resources).collect();
        checked.sort_unstable();
        let mut all = [POLICIES, NETWORKS, POOLS, OPERATOR_CONFIGS].concat();
        all.sort_unstable();
        assert_eq!(checked, all);
    }

    #[test]
    fn a_dead_operator_blocks_only_specs_in_its_own_namespace() {
        for webhook in settings(false).validating() {
            let can_refuse = webhook.failure_policy.as_deref() == Some("Fail");
            let groups = webhook.rules.iter().flatten().flat_map(|rule| rule.api_groups.iter().flatten());
            assert!(groups.into_iter().all(|group| group == GROUP), "{webhook:?}");
            let has_config = resources(&webhook).any(|resource| OPERATOR_CONFIGS.contains(&resource));
            assert!(!can_refuse || (is_for_own_namespace(&webhook) && !has_config), "{webhook:?}");
        }
        // With the feature gate also pods, but only those that name a network.
        let conditions = settings(true).injector().match_conditions.unwrap();
        assert_eq!(conditions, [names_a_network()]);
    }

    #[test]
    fn all_fields_with_defaults_are_set() {
        let webhook = settings(false).validating().remove(0);
        let service = webhook.client_config.service.unwrap();
        assert_eq!((service.port, service.path.as_deref()), (Some(443), Some(VALIDATE)));
        assert!(webhook.object_selector.is_some() && webhook.match_policy.is_some());
        assert!(webhook.reinvocation_policy.is_none(), "a validating webhook has no such field");
        let url = "https://127.0.0.1:9443".parse().unwrap();
        let client = WebhookSettings { url: Some(&url), bundle: None, ..settings(false) }.client(MUTATE);
        assert_eq!(client.url.as_deref(), Some("https://127.0.0.1:9443/mutating-custom-resource"));
        assert!(client.service.is_none() && client.ca_bundle.is_none());
    }
}
