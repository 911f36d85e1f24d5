//! Selection of nodes by pools.

use std::collections::BTreeMap;

use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_plan::pool::selects;
use vfleet_plan::{NamedPool, NodeIdentity, PoolFault, find_pool_of_node};

fn labels() -> BTreeMap<String, String> {
    [("rack", "a"), ("cores", "64"), ("empty", "")]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Returns whether a pool with this spec selects the node `n1` with the labels above.
fn is_selected(spec: &str) -> Result<bool, PoolFault> {
    let spec: SriovNetworkPoolConfigSpec = serde_saphyr::from_str(spec).unwrap();
    selects(&NamedPool { name: "p", spec: &spec }, NodeIdentity { name: "n1", labels: &labels() })
}

/// Returns the pool of the node `n1`, from pools by name and spec.
fn find_pool<'a>(pools: &[(&'a str, &str)]) -> Option<&'a str> {
    let specs: Vec<(&str, SriovNetworkPoolConfigSpec)> =
        pools.iter().map(|(name, spec)| (*name, serde_saphyr::from_str(spec).unwrap())).collect();
    let named: Vec<_> = specs.iter().map(|(name, spec)| NamedPool { name, spec }).collect();
    let found =
        find_pool_of_node(&named, NodeIdentity { name: "n1", labels: &labels() }).map(|pool| pool.name);
    let reversed: Vec<_> = named.iter().rev().copied().collect();
    let again =
        find_pool_of_node(&reversed, NodeIdentity { name: "n1", labels: &labels() }).map(|pool| pool.name);
    assert_eq!(found, again, "the order of the list does not matter");
    pools.iter().map(|(name, _)| *name).find(|name| Some(*name) == found)
}

#[test]
fn selectors_match_as_in_kubernetes() {
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
        assert_eq!(is_selected(spec), Ok(expected), "{spec}");
    }
}

#[test]
fn an_invalid_selector_selects_nothing_and_is_reported() {
    for (spec, expected) in [
        ("{nodeSelector: {matchExpressions: [{key: rack, operator: Gt, values: ['1']}]}}", "\"Gt\" of rack"),
        ("{nodeSelector: {matchExpressions: [{key: rack, operator: in, values: [a]}]}}", "use In, NotIn"),
        ("{nodeSelector: {matchExpressions: [{key: rack, operator: In}]}}", "In of rack needs values"),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: Like, values: [a]}]}]}", "Gt or Lt"),
        (
            "{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Gt, values: [many]}]}]}",
            "[\"many\"]",
        ),
        ("{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Lt}]}]}", "exactly one integer"),
        (
            "{nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Lt, values: ['1', '2']}]}]}",
            "exactly one integer",
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
        let fault = is_selected(spec).unwrap_err();
        assert!(fault.to_string().contains(expected), "{spec}: {fault}");
        assert_eq!(fault.reason(), "InvalidSelector");
        assert_eq!(find_pool(&[("p", spec)]), None, "{spec}");
    }
}

#[test]
fn a_valid_term_next_to_an_invalid_one_counts() {
    let bad = "{matchExpressions: [{key: rack, operator: x}]}";
    let good = "{matchExpressions: [{key: rack, operator: Exists}]}";
    assert_eq!(is_selected(&format!("{{nodeSelectorTerms: [{bad}, {good}]}}")), Ok(true));
    assert_eq!(is_selected(&format!("{{nodeSelectorTerms: [{good}, {bad}]}}")), Ok(true));
}

#[test]
fn the_lowest_priority_number_wins_and_then_the_name() {
    assert_eq!(find_pool(&[("a", "{priority: 20}"), ("b", "{priority: 10}")]), Some("b"));
    assert_eq!(find_pool(&[("a", "{}"), ("b", "{priority: 98}")]), Some("b"));
    assert_eq!(find_pool(&[("b", "{priority: 0}"), ("a", "{}"), ("c", "{priority: 0}")]), Some("b"));
    assert_eq!(find_pool(&[("b", "{}"), ("a", "{priority: 99}")]), Some("a"));
    assert_eq!(
        find_pool(&[("a", "{priority: 1, nodeSelector: {matchLabels: {rack: b}}}"), ("b", "{}")]),
        Some("b")
    );
    assert_eq!(find_pool(&[]), None);
}

#[test]
fn the_pool_named_default_is_for_nodes_that_no_other_selects() {
    assert_eq!(find_pool(&[("default", "{priority: 0}"), ("z", "{priority: 99}")]), Some("z"));
    assert_eq!(
        find_pool(&[("default", "{}"), ("z", "{nodeSelector: {matchLabels: {rack: b}}}")]),
        Some("default")
    );
    assert_eq!(find_pool(&[("default", "{nodeSelector: {matchLabels: {rack: b}}}")]), None);
}

#[test]
fn a_pool_for_offload_only_has_no_nodes() {
    let offload = |more: &str| format!("{{ovsHardwareOffloadConfig: {{name: worker}}{more}}}");
    assert_eq!(is_selected(&offload("")), Ok(false));
    assert_eq!(is_selected(&offload(", rdmaMode: shared, nodeSelectorTerms: []")), Ok(false));
    assert_eq!(is_selected(&offload(", maxUnavailable: 1")), Ok(true));
    assert_eq!(is_selected(&offload(", drainConfig: {maxParallelNodeConfiguration: 0}")), Ok(true));
    assert_eq!(is_selected(&offload(", nodeSelector: {matchLabels: {rack: a}}")), Ok(true));
    assert_eq!(
        is_selected(&offload(", nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: Exists}]}]")),
        Ok(true)
    );
    assert_eq!(is_selected("{ovsHardwareOffloadConfig: {name: ''}}"), Ok(true));
}
