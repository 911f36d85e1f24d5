//! Which pool a node belongs to.

use std::collections::BTreeMap;

use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_plan::pool::selects;
use vfleet_plan::{NamedPool, NodeIdentity, PoolFault, pool_of};

fn labels() -> BTreeMap<String, String> {
    [("rack", "a"), ("cores", "64"), ("empty", "")]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Whether a pool with this spec selects the node `n1` with the labels above.
fn selected(spec: &str) -> Result<bool, PoolFault> {
    let spec: SriovNetworkPoolConfigSpec = serde_saphyr::from_str(spec).unwrap();
    selects(&NamedPool { name: "p", spec: &spec }, NodeIdentity { name: "n1", labels: &labels() })
}

/// The pool of that node, of pools by name and spec.
fn pool<'a>(pools: &[(&'a str, &str)]) -> Option<&'a str> {
    let specs: Vec<(&str, SriovNetworkPoolConfigSpec)> =
        pools.iter().map(|(name, spec)| (*name, serde_saphyr::from_str(spec).unwrap())).collect();
    let named: Vec<_> = specs.iter().map(|(name, spec)| NamedPool { name, spec }).collect();
    let found = pool_of(&named, NodeIdentity { name: "n1", labels: &labels() }).map(|pool| pool.name);
    let reversed: Vec<_> = named.iter().rev().copied().collect();
    let again = pool_of(&reversed, NodeIdentity { name: "n1", labels: &labels() }).map(|pool| pool.name);
    assert_eq!(found, again, "the order of the list does not matter");
    pools.iter().map(|(name, _)| *name).find(|name| Some(*name) == found)
}

#[test]
fn selectors_select_what_kubernetes_says() {
    for (spec, expected) in [
        ("{}", true),
        ("{nodeSelector: {}}", true),
        ("{nodeSelector: {matchLabels: {rack: a}}}", true),
        ("{nodeSelector: {matchLabels: {rack: a, zone: x}}}", false),
        ("{nodeSelector: {matchLabels: {empty: ''}}}", true),
        ("{nodeSelector: {matchLabels: {absent: ''}}}", false),
        ("{nodeSelector: {matchExpressions: [{key: rack, operator: In, values: [a, b]}]}}", true),
        ("{nodeSelector: {matchExpressions: [{key: zone, operator: In, values: [a]}]}}", false),
        ("{nodeSelector: {matchExpressions: [{key: rack, operator: NotIn, values: [a]}]}}", false),
        ("{nodeSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}}", true),
        ("{nodeSelector: {matchExpressions: [{key: rack, operator: Exists}]}}", true),
        ("{nodeSelector: {matchExpressions: [{key: zone, operator: DoesNotExist}]}}", true),
        (
            "{nodeSelector: {matchLabels: {rack: a}, matchExpressions: [{key: zone, operator: Exists}]}}",
            false,
        ),
        ("{nodeSelectorTerms: []}", true),
        ("{nodeSelectorTerms: [{}]}", false),
        ("{nodeSelectorTerms: [{matchExpressions: []}]}", false),
        ("{nodeSelectorTerms: [{}, {matchExpressions: [{key: rack, operator: Exists}]}]}", true),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Gt, values: ['63']}]}]}", true),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Gt, values: ['64']}]}]}", false),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Lt, values: ['65']}]}]}", true),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Lt, values: ['-1']}]}]}", false),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: Gt, values: ['1']}]}]}", false),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Lt, values: ['1']}]}]}", false),
        ("{nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}", true),
        (
            "{nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}]}",
            false,
        ),
        (
            "{nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n1]}],
               matchExpressions: [{key: zone, operator: Exists}]}]}",
            false,
        ),
        (
            "{nodeSelector: {matchLabels: {rack: a}}, nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}]}]}",
            false,
        ),
    ] {
        assert_eq!(selected(spec), Ok(expected), "{spec}");
    }
}

#[test]
fn what_cannot_be_understood_selects_nothing_and_is_named() {
    for (spec, said) in [
        ("{nodeSelector: {matchExpressions: [{key: rack, operator: Gt, values: ['1']}]}}", "\"Gt\" of rack"),
        ("{nodeSelector: {matchExpressions: [{key: rack, operator: in, values: [a]}]}}", "use In, NotIn"),
        ("{nodeSelector: {matchExpressions: [{key: rack, operator: In}]}}", "In of rack needs values"),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: Like, values: [a]}]}]}", "Gt or Lt"),
        (
            "{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Gt, values: [many]}]}]}",
            "[\"many\"]",
        ),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Lt}]}]}", "one whole number"),
        (
            "{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Lt, values: ['1', '2']}]}]}",
            "one whole",
        ),
        (
            "{nodeSelectorTerms: [{matchFields: [{key: metadata.uid, operator: In, values: [x]}]}]}",
            "metadata.uid",
        ),
        ("{nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: Exists}]}]}", "use In or NotIn"),
        (
            "{nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}, {key: rack, operator: x}]}]}",
            "\"x\" of rack",
        ),
    ] {
        let fault = selected(spec).unwrap_err();
        assert!(fault.to_string().contains(said), "{spec}: {fault}");
        assert_eq!(fault.reason(), "InvalidSelector");
        assert_eq!(pool(&[("p", spec)]), None, "{spec}");
    }
}

#[test]
fn a_good_term_beside_a_bad_one_counts() {
    let bad = "{matchExpressions: [{key: rack, operator: x}]}";
    let good = "{matchExpressions: [{key: rack, operator: Exists}]}";
    assert_eq!(selected(&format!("{{nodeSelectorTerms: [{bad}, {good}]}}")), Ok(true));
    assert_eq!(selected(&format!("{{nodeSelectorTerms: [{good}, {bad}]}}")), Ok(true));
}

#[test]
fn the_lowest_priority_number_wins_and_then_the_name() {
    assert_eq!(pool(&[("a", "{priority: 20}"), ("b", "{priority: 10}")]), Some("b"));
    assert_eq!(pool(&[("a", "{}"), ("b", "{priority: 98}")]), Some("b"));
    assert_eq!(pool(&[("b", "{priority: 0}"), ("a", "{}"), ("c", "{priority: 0}")]), Some("b"));
    assert_eq!(pool(&[("b", "{}"), ("a", "{priority: 99}")]), Some("a"));
    assert_eq!(
        pool(&[("a", "{priority: 1, nodeSelector: {matchLabels: {rack: b}}}"), ("b", "{}")]),
        Some("b")
    );
    assert_eq!(pool(&[]), None);
}

#[test]
fn the_pool_named_default_is_for_nodes_that_no_other_selects() {
    assert_eq!(pool(&[("default", "{priority: 0}"), ("z", "{priority: 99}")]), Some("z"));
    assert_eq!(
        pool(&[("default", "{}"), ("z", "{nodeSelector: {matchLabels: {rack: b}}}")]),
        Some("default")
    );
    assert_eq!(pool(&[("default", "{nodeSelector: {matchLabels: {rack: b}}}")]), None);
}

#[test]
fn a_pool_that_only_switches_offload_on_has_no_nodes() {
    let offload = |more: &str| format!("{{ovsHardwareOffloadConfig: {{name: worker}}{more}}}");
    assert_eq!(selected(&offload("")), Ok(false));
    assert_eq!(selected(&offload(", rdmaMode: shared, nodeSelectorTerms: []")), Ok(false));
    assert_eq!(selected(&offload(", maxUnavailable: 1")), Ok(true));
    assert_eq!(selected(&offload(", drainConfig: {maxParallelNodeConfiguration: 0}")), Ok(true));
    assert_eq!(selected(&offload(", nodeSelector: {matchLabels: {rack: a}}")), Ok(true));
    assert_eq!(
        selected(&offload(", nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: Exists}]}]")),
        Ok(true)
    );
    assert_eq!(selected("{ovsHardwareOffloadConfig: {name: ''}}"), Ok(true));
}
