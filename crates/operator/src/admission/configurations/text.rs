//! What the webhook configurations shall say.
//!
//! All of it was tried on a real API server (1.36): the conditions in CEL with `object` null on DELETE and `oldObject`
//! null on CREATE, and with an object that has no spec at all. A condition that failed would count as the failure policy
//! says, so each guards what may not be there.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, RuleWithOperations, ServiceReference, ValidatingWebhook,
    WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use vfleet_api::keys::{INSTALLATION_LABEL, POD_DEFAULT_NETWORK, POD_NETWORKS, WEBHOOK_SERVICE};

use crate::admission::config::WebhookUrl;
use crate::admission::server::{MUTATE, PODS, VALIDATE};
use crate::components::rights::Account;

const GROUP: &str = "sriovnetwork.openshift.io";
const POLICIES: &[&str] = &["sriovnetworknodepolicies"];
const NETWORKS: &[&str] = &["sriovnetworks", "sriovibnetworks", "ovsnetworks", "bridgenetworks"];
/// Deletion of these is judged, too.
const POOLS: &[&str] = &["sriovnetworkpoolconfigs"];
const SETTINGS: &[&str] = &["sriovoperatorconfigs"];

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const WRITES_AND_DELETION: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// The label that the API server puts on each namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Who empties a namespace that goes, and deletes what belongs to something that is gone.
const CLEANERS: &[&str] = &[
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:kube-controller-manager",
];

/// What all of them need.
pub(crate) struct Frame<'a> {
    /// The operator's namespace.
    pub(crate) namespace: &'a str,
    /// Where the API server finds us, when not by our Service.
    pub(crate) url: Option<&'a WebhookUrl>,
    /// Whom it shall trust, in PEM. `None` when somebody else tells it: what is not said here is not touched.
    pub(crate) bundle: Option<&'a str>,
    /// Whether the API server finds us, and accepts the certificate that it is shown. Nothing is refused for want of an
    /// answer before an answer can come.
    pub(crate) is_answered: bool,
    /// Whether a pod that names a network is refused while nobody can give it its resource.
    pub(crate) pods_need_us: bool,
}

/// What is done when nobody answers.
#[derive(Clone, Copy)]
enum Failure {
    /// The write is refused.
    Refuse,
    /// It goes through.
    LetThrough,
}

impl Failure {
    fn policy(self) -> String {
        match self {
            Self::Refuse => "Fail",
            Self::LetThrough => "Ignore",
        }
        .to_owned()
    }
}

impl Frame<'_> {
    /// Those that judge our objects. At home nobody answering is a refusal: that holds up nobody but the operator's own
    /// namespace, and there only changes of what is wanted. Elsewhere it holds up nothing, and nowhere the settings:
    /// whoever switched admission on where the API server cannot reach us must be able to switch it off again.
    pub(crate) fn validating(&self) -> Vec<ValidatingWebhook> {
        let mut not_at_home = self.conditions();
        not_at_home.push(condition("not-at-home", format!("request.namespace != '{}'", self.namespace)));
        let home = vec![
            rule(GROUP, &[POLICIES, NETWORKS].concat(), WRITES),
            rule(GROUP, POOLS, WRITES_AND_DELETION),
        ];
        let elsewhere = vec![rule(GROUP, &[POLICIES, NETWORKS, POOLS, SETTINGS].concat(), WRITES)];
        vec![
            ValidatingWebhook {
                rules: Some(home),
                namespace_selector: Some(self.at_home()),
                match_conditions: Some(self.conditions()),
                failure_policy: Some(self.where_answered(Failure::Refuse).policy()),
                timeout_seconds: Some(5),
                ..self.validating_webhook("home")
            },
            ValidatingWebhook {
                rules: Some(vec![rule(GROUP, SETTINGS, WRITES_AND_DELETION)]),
                namespace_selector: Some(self.at_home()),
                match_conditions: Some(self.conditions()),
                failure_policy: Some(Failure::LetThrough.policy()),
                timeout_seconds: Some(3),
                ..self.validating_webhook("settings")
            },
            ValidatingWebhook {
                rules: Some(elsewhere),
                namespace_selector: Some(selector(INSTALLATION_LABEL, "DoesNotExist", None)),
                match_conditions: Some(not_at_home),
                failure_policy: Some(Failure::LetThrough.policy()),
                timeout_seconds: Some(3),
                ..self.validating_webhook("elsewhere")
            },
        ]
    }

    /// Those that add defaults to our objects.
    pub(crate) fn defaults(&self) -> Vec<MutatingWebhook> {
        vec![MutatingWebhook {
            rules: Some(vec![rule(GROUP, POLICIES, WRITES)]),
            namespace_selector: Some(self.at_home()),
            match_conditions: Some(vec![the_spec_changes(), it_is_not_going_away()]),
            failure_policy: Some(Failure::LetThrough.policy()),
            ..self.mutating_webhook(format!("defaults.operator-webhook.{GROUP}"), MUTATE)
        }]
    }

    /// Those that add resources to pods. Only pods that name a network are ever sent.
    pub(crate) fn injector(&self) -> Vec<MutatingWebhook> {
        let failure = if self.pods_need_us { Failure::Refuse } else { Failure::LetThrough };
        let others = vec!["kube-system".to_owned(), self.namespace.to_owned()];
        vec![MutatingWebhook {
            rules: Some(vec![rule("", &["pods"], &["CREATE"])]),
            namespace_selector: Some(selector(NAMESPACE_NAME, "NotIn", Some(others))),
            match_conditions: Some(vec![names_a_network()]),
            failure_policy: Some(self.where_answered(failure).policy()),
            ..self.mutating_webhook("network-resources-injector-config.k8s.io".to_owned(), PODS)
        }]
    }

    fn where_answered(&self, failure: Failure) -> Failure {
        if self.is_answered { failure } else { Failure::LetThrough }
    }

    fn validating_webhook(&self, name: &str) -> ValidatingWebhook {
        ValidatingWebhook {
            name: format!("{name}.operator-webhook.{GROUP}"),
            client_config: self.client(VALIDATE),
            admission_review_versions: vec!["v1".to_owned()],
            match_policy: Some("Equivalent".to_owned()),
            object_selector: Some(LabelSelector::default()),
            side_effects: "None".to_owned(),
            ..Default::default()
        }
    }

    fn mutating_webhook(&self, name: String, path: &str) -> MutatingWebhook {
        MutatingWebhook {
            name,
            client_config: self.client(path),
            admission_review_versions: vec!["v1".to_owned()],
            match_policy: Some("Equivalent".to_owned()),
            object_selector: Some(LabelSelector::default()),
            reinvocation_policy: Some("Never".to_owned()),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(3),
            ..Default::default()
        }
    }

    /// By its Service the API server asks as `vfleet-webhook.<namespace>.svc`. Where nothing forwards to Services, as in
    /// tests, it asks by URL. (It also resolves a Service of type ExternalName itself, with the port that is said here.)
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

    fn at_home(&self) -> LabelSelector {
        selector(NAMESPACE_NAME, "In", Some(vec![self.namespace.to_owned()]))
    }

    fn conditions(&self) -> Vec<MatchCondition> {
        let operator = format!("system:serviceaccount:{}:{}", self.namespace, Account::Operator.name());
        let cleaners: Vec<_> = CLEANERS.iter().map(|name| format!("'{name}'")).collect();
        vec![
            the_spec_changes(),
            it_is_not_going_away(),
            // Its own writes must not wait for itself.
            condition("not-by-the-operator", format!("request.userInfo.username != '{operator}'")),
            // A namespace can always go.
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

/// Finalizers, labels and annotations can always be changed.
fn the_spec_changes() -> MatchCondition {
    condition("the-spec-changes", "request.operation != 'UPDATE' || object.?spec != oldObject.?spec")
}

fn it_is_not_going_away() -> MatchCondition {
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

/// Never a subresource: whoever writes a status is not asked about.
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

    fn frame(pods_need_us: bool) -> Frame<'static> {
        Frame { namespace: "home", url: None, bundle: Some("pem"), is_answered: true, pods_need_us }
    }

    /// One webhook, by what decides whom it can hold up.
    fn reach(
        rules: Option<&Vec<RuleWithOperations>>,
        selector: Option<&LabelSelector>,
        failure: Option<&String>,
    ) -> (bool, bool, bool) {
        let only_ours =
            rules.into_iter().flatten().all(|rule| rule.api_groups == Some(vec![GROUP.to_owned()]));
        let only_home = selector == Some(&frame(false).at_home());
        (only_ours, only_home, failure.map(String::as_str) == Some("Fail"))
    }

    fn resources(webhook: &ValidatingWebhook) -> impl Iterator<Item = &str> {
        let rules = webhook.rules.iter().flatten();
        rules.flat_map(|rule| rule.resources.iter().flatten()).map(String::as_str)
    }

    /// How each webhook of ours fails, the one about our objects at home first.
    fn failures(frame: &Frame<'_>) -> Vec<String> {
        let judging = frame.validating().into_iter().map(|webhook| webhook.failure_policy);
        let adding =
            [frame.defaults(), frame.injector()].concat().into_iter().map(|webhook| webhook.failure_policy);
        judging.chain(adding).flatten().collect()
    }

    #[test]
    fn nothing_is_refused_for_want_of_an_answer_before_the_certificate_is_trusted() {
        assert_eq!(failures(&frame(true)), ["Fail", "Ignore", "Ignore", "Ignore", "Fail"]);
        let not_yet = Frame { is_answered: false, ..frame(true) };
        assert!(failures(&not_yet).iter().all(|failure| failure == "Ignore"));
    }

    #[test]
    fn every_kind_is_judged_once_at_home() {
        let at_home = frame(false).at_home();
        let webhooks = frame(false).validating();
        let home = webhooks.iter().filter(|webhook| webhook.namespace_selector.as_ref() == Some(&at_home));
        let mut judged: Vec<_> = home.flat_map(resources).collect();
        judged.sort_unstable();
        let mut all = [POLICIES, NETWORKS, POOLS, SETTINGS].concat();
        all.sort_unstable();
        assert_eq!(judged, all);
    }

    #[test]
    fn a_dead_operator_holds_up_nothing_but_its_own_namespace() {
        for webhook in frame(false).validating() {
            let reach = reach(
                webhook.rules.as_ref(),
                webhook.namespace_selector.as_ref(),
                webhook.failure_policy.as_ref(),
            );
            let holds_up_settings =
                reach.2 && resources(&webhook).any(|resource| SETTINGS.contains(&resource));
            assert!(reach.0 && (reach.1 || !reach.2) && !holds_up_settings, "{webhook:?}");
        }
        for webhook in [frame(false).defaults(), frame(false).injector()].concat() {
            assert_eq!(webhook.failure_policy.as_deref(), Some("Ignore"), "{webhook:?}");
        }
        // Unless somebody asks for it, and then pods that name a network.
        let injector = frame(true).injector().remove(0);
        assert_eq!(injector.failure_policy.as_deref(), Some("Fail"));
        assert_eq!(injector.match_conditions.unwrap().len(), 1);
    }

    #[test]
    fn everything_is_said_that_the_api_server_would_fill_in() {
        let webhook = frame(false).validating().remove(0);
        let service = webhook.client_config.service.unwrap();
        assert_eq!((service.port, service.path.as_deref()), (Some(443), Some(VALIDATE)));
        assert!(webhook.object_selector.is_some() && webhook.match_policy.is_some());
        let url = "https://127.0.0.1:9443".parse().unwrap();
        let by_url = Frame { url: Some(&url), bundle: None, ..frame(false) }.defaults().remove(0);
        assert_eq!(
            by_url.client_config.url.as_deref(),
            Some("https://127.0.0.1:9443/mutating-custom-resource")
        );
        assert!(by_url.client_config.service.is_none() && by_url.client_config.ca_bundle.is_none());
    }
}
