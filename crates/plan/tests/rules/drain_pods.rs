//! Which pods of a node are evicted, started again or left alone, and which budgets they count for.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vfleet_api::meta::LabelSelector;
use vfleet_api::node_state::DrainScope::{self, Full, Partial};
use vfleet_plan::drain::Treatment::{Evict, Leave, WaitFor};
use vfleet_plan::drain::{Budget, Moment, PodFacts, budgets_of, is_let_go, restarts_with, treatment};

const PREFIX: &str = "openshift.io";

fn with_vfs() -> PodFacts {
    PodFacts { resources: vec!["cpu".to_owned(), "openshift.io/fast".to_owned()], ..Default::default() }
}

fn treated(pod: &PodFacts, scope: DrainScope) -> vfleet_plan::drain::Treatment {
    treatment(pod, scope, PREFIX)
}

#[test]
fn a_partial_drain_is_for_users_of_our_resources_only() {
    let others = ["cpu", "nvidia.com/gpu", "openshift.io.example/fast", "openshift.iofast"];
    let other = PodFacts { resources: others.map(str::to_owned).to_vec(), ..Default::default() };
    assert_eq!(treated(&with_vfs(), Partial), Evict);
    assert_eq!(treated(&other, Partial), Leave);
    assert_eq!(treated(&PodFacts::default(), Partial), Leave);
    assert_eq!(treated(&other, Full), Evict);
    assert_eq!(treated(&PodFacts::default(), Full), Evict);
}

#[test]
fn static_pods_and_those_of_daemon_sets_stay() {
    for scope in [Partial, Full] {
        for is_ending in [false, true] {
            let of_daemon_set = PodFacts { is_of_daemon_set: true, is_ending, ..with_vfs() };
            let mirror = PodFacts { is_mirror: true, is_ending, ..with_vfs() };
            assert_eq!(treated(&of_daemon_set, scope), Leave);
            assert_eq!(treated(&mirror, scope), Leave);
        }
    }
}

#[test]
fn a_pod_that_ends_is_waited_for_and_not_told_twice() {
    for scope in [Partial, Full] {
        assert_eq!(treated(&PodFacts { is_ending: true, ..with_vfs() }, scope), WaitFor);
        assert_eq!(treated(&PodFacts { is_ending: true, is_over: true, ..with_vfs() }, scope), WaitFor);
    }
    assert_eq!(treated(&PodFacts { is_ending: true, ..Default::default() }, Partial), Leave);
}

#[test]
fn a_pod_that_is_over_holds_no_vfs_but_a_full_drain_removes_it() {
    let over = PodFacts { is_over: true, ..with_vfs() };
    assert_eq!(treated(&over, Partial), Leave);
    assert_eq!(treated(&over, Full), Evict);
}

#[test]
fn pods_of_daemon_sets_start_again_where_their_vfs_changed() {
    let pod = PodFacts { is_of_daemon_set: true, ..with_vfs() };
    let kept = |names: &[&str]| names.iter().copied().map(str::to_owned).collect::<Vec<_>>();
    assert!(restarts_with(&pod, &[], PREFIX));
    assert!(restarts_with(&pod, &kept(&["slow"]), PREFIX));
    assert!(!restarts_with(&pod, &kept(&["fast"]), PREFIX), "its VFs are as they were");
    let both = PodFacts {
        resources: ["openshift.io/fast", "openshift.io/slow"].map(str::to_owned).to_vec(),
        ..pod.clone()
    };
    assert!(restarts_with(&both, &kept(&["fast"]), PREFIX), "one of its resources changed");
    assert!(!restarts_with(&with_vfs(), &[], PREFIX), "others were evicted");
    for other in [
        PodFacts { resources: vec!["cpu".to_owned()], ..pod.clone() },
        PodFacts { is_ending: true, ..pod.clone() },
        PodFacts { is_over: true, ..pod.clone() },
        PodFacts { is_mirror: true, ..pod },
    ] {
        assert!(!restarts_with(&other, &[], PREFIX), "{other:?}");
    }
}

fn budgets(selectors: &[(&str, Value)], labels: &[(&str, &str)]) -> Vec<String> {
    let all = selectors.iter().map(|(name, selector)| {
        let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).unwrap();
        Budget { name, selector, let_go: None }
    });
    let labels: BTreeMap<_, _> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    budgets_of(all, &labels).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_pod_counts_for_the_budgets_that_select_it() {
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
fn a_pod_that_was_let_go_is_the_one_that_its_budget_means() {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let selector = LabelSelector { match_labels: Some(labels.clone()), ..Default::default() };
    let other = LabelSelector {
        match_labels: Some(BTreeMap::from([("app".to_owned(), "db".to_owned())])),
        ..Default::default()
    };
    let budget =
        |selector: &LabelSelector, let_go| [Budget { name: "b", selector: Some(selector.clone()), let_go }];
    let made = Some(Moment(5));
    assert!(is_let_go(&budget(&selector, Some(Moment(6))), &labels, made));
    // One of its name that came before it, another's budget, one that is counted, one of which nothing is known.
    assert!(!is_let_go(&budget(&selector, Some(Moment(5))), &labels, made));
    assert!(!is_let_go(&budget(&other, Some(Moment(6))), &labels, made));
    assert!(!is_let_go(&budget(&selector, None), &labels, made));
    assert!(!is_let_go(&budget(&selector, Some(Moment(6))), &labels, None));
}
