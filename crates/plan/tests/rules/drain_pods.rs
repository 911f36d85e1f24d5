//! Pods that a drain evicts, restarts or keeps, and the budgets that select them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vfleet_api::meta::LabelSelector;
use vfleet_api::node_state::DrainScope::{self, Full, Partial};
use vfleet_plan::drain::PodTreatment::{AwaitTermination, Evict, Keep};
use vfleet_plan::drain::{
    DisruptionBudget, Moment, PodFacts, is_eviction_granted, matching_budgets, needs_restart, treat_pod,
};

const PREFIX: &str = "openshift.io";

fn with_vfs() -> PodFacts {
    PodFacts { resources: vec!["cpu".to_owned(), "openshift.io/fast".to_owned()], ..Default::default() }
}

fn treated(pod: &PodFacts, scope: DrainScope) -> vfleet_plan::drain::PodTreatment {
    treat_pod(pod, scope, PREFIX)
}

#[test]
fn a_partial_drain_evicts_only_pods_with_our_resources() {
    let others = ["cpu", "nvidia.com/gpu", "openshift.io.example/fast", "openshift.iofast"];
    let other = PodFacts { resources: others.map(str::to_owned).to_vec(), ..Default::default() };
    assert_eq!(treated(&with_vfs(), Partial), Evict);
    assert_eq!(treated(&other, Partial), Keep);
    assert_eq!(treated(&PodFacts::default(), Partial), Keep);
    assert_eq!(treated(&other, Full), Evict);
    assert_eq!(treated(&PodFacts::default(), Full), Evict);
}

#[test]
fn static_pods_and_daemon_set_pods_stay() {
    for scope in [Partial, Full] {
        for is_terminating in [false, true] {
            let of_daemon_set = PodFacts { is_daemon_set_pod: true, is_terminating, ..with_vfs() };
            let mirror = PodFacts { is_mirror: true, is_terminating, ..with_vfs() };
            assert_eq!(treated(&of_daemon_set, scope), Keep);
            assert_eq!(treated(&mirror, scope), Keep);
        }
    }
}

#[test]
fn a_terminating_pod_is_awaited_and_not_evicted_again() {
    for scope in [Partial, Full] {
        assert_eq!(treated(&PodFacts { is_terminating: true, ..with_vfs() }, scope), AwaitTermination);
        assert_eq!(
            treated(&PodFacts { is_terminating: true, has_finished: true, ..with_vfs() }, scope),
            AwaitTermination
        );
    }
    assert_eq!(treated(&PodFacts { is_terminating: true, ..Default::default() }, Partial), Keep);
}

#[test]
fn a_finished_pod_holds_no_vfs_but_a_full_drain_evicts_it() {
    let finished = PodFacts { has_finished: true, ..with_vfs() };
    assert_eq!(treated(&finished, Partial), Keep);
    assert_eq!(treated(&finished, Full), Evict);
}

#[test]
fn daemon_set_pods_are_restarted_if_their_vfs_changed() {
    let pod = PodFacts { is_daemon_set_pod: true, ..with_vfs() };
    let kept = |names: &[&str]| names.iter().copied().map(str::to_owned).collect::<Vec<_>>();
    assert!(needs_restart(&pod, &[], PREFIX));
    assert!(needs_restart(&pod, &kept(&["slow"]), PREFIX));
    assert!(!needs_restart(&pod, &kept(&["fast"]), PREFIX), "its VFs did not change");
    let both = PodFacts {
        resources: ["openshift.io/fast", "openshift.io/slow"].map(str::to_owned).to_vec(),
        ..pod.clone()
    };
    assert!(needs_restart(&both, &kept(&["fast"]), PREFIX), "one of its resources changed");
    assert!(!needs_restart(&with_vfs(), &[], PREFIX), "other pods were evicted");
    for other in [
        PodFacts { resources: vec!["cpu".to_owned()], ..pod.clone() },
        PodFacts { is_terminating: true, ..pod.clone() },
        PodFacts { has_finished: true, ..pod.clone() },
        PodFacts { is_mirror: true, ..pod },
    ] {
        assert!(!needs_restart(&other, &[], PREFIX), "{other:?}");
    }
}

fn budgets(selectors: &[(&str, Value)], labels: &[(&str, &str)]) -> Vec<String> {
    let all = selectors.iter().map(|(name, selector)| {
        let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).unwrap();
        DisruptionBudget { name, selector, disrupted_at: None }
    });
    let labels: BTreeMap<_, _> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    matching_budgets(all, &labels).into_iter().map(str::to_owned).collect()
}

#[test]
fn budgets_of_a_pod_are_those_that_select_it() {
    let all = [
        ("z-by-label", json!({ "matchLabels": { "app": "a" } })),
        ("empty-is-all", json!({})),
        ("none", Value::Null),
        ("other", json!({ "matchLabels": { "app": "b" } })),
        ("half", json!({ "matchLabels": { "app": "a", "tier": "x" } })),
        (
            "by-expression",
            json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a", "b"] }] }),
        ),
        ("not-in", json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["a"] }] })),
        ("absent", json!({ "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }] })),
        ("unknown", json!({ "matchExpressions": [{ "key": "app", "operator": "Like", "values": ["a"] }] })),
    ];
    assert_eq!(budgets(&all, &[("app", "a")]), ["absent", "by-expression", "empty-is-all", "z-by-label"]);
    assert_eq!(budgets(&all, &[("tier", "y")]), ["empty-is-all", "not-in"]);
    assert!(budgets(&[], &[("app", "a")]).is_empty());
}

#[test]
fn an_interrupted_eviction_is_found_in_the_budget_of_the_pod() {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let selector = LabelSelector { match_labels: Some(labels.clone()), ..Default::default() };
    let other = LabelSelector {
        match_labels: Some(BTreeMap::from([("app".to_owned(), "db".to_owned())])),
        ..Default::default()
    };
    let budget = |selector: &LabelSelector, disrupted_at| {
        [DisruptionBudget { name: "b", selector: Some(selector.clone()), disrupted_at }]
    };
    let created = Some(Moment(5));
    assert!(is_eviction_granted(&budget(&selector, Some(Moment(6))), &labels, created));
    // An earlier pod of the same name, another budget, no eviction, unknown creation time.
    assert!(!is_eviction_granted(&budget(&selector, Some(Moment(5))), &labels, created));
    assert!(!is_eviction_granted(&budget(&other, Some(Moment(6))), &labels, created));
    assert!(!is_eviction_granted(&budget(&selector, None), &labels, created));
    assert!(!is_eviction_granted(&budget(&selector, Some(Moment(6))), &labels, None));
}
