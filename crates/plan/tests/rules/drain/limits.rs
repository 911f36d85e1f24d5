//! Limits of pools.

use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_plan::NamedPool;
use vfleet_plan::drain::{DrainLimit, LimitNote, drain_limit, lowers_limit_below};

fn limit_of(name: &str, spec: &str, total: usize) -> (DrainLimit, Option<LimitNote>) {
    let spec: SriovNetworkPoolConfigSpec = serde_saphyr::from_str(spec).unwrap();
    drain_limit(&NamedPool { name, spec: &spec }, total)
}

#[test]
fn a_limit_is_a_number_a_percentage_or_one() {
    for (spec, total, expected) in [
        ("{drainConfig: {maxParallelNodeConfiguration: 0}}", 9, DrainLimit::Unlimited),
        ("{drainConfig: {maxParallelNodeConfiguration: 3}}", 9, DrainLimit::AtMost(3)),
        ("{drainConfig: {maxParallelNodeConfiguration: -2}}", 9, DrainLimit::AtMost(1)),
        ("{maxUnavailable: 2}", 9, DrainLimit::AtMost(2)),
        ("{maxUnavailable: 50%}", 9, DrainLimit::AtMost(4)),
        ("{maxUnavailable: 100%}", 9, DrainLimit::AtMost(9)),
        ("{maxUnavailable: 10%}", 9, DrainLimit::AtMost(1)),
        ("{maxUnavailable: 10%}", 0, DrainLimit::AtMost(1)),
        ("{maxUnavailable: 33%}", 1199, DrainLimit::AtMost(395)),
        ("{maxUnavailable: 100%}", usize::MAX, DrainLimit::AtMost(usize::MAX)),
        ("{maxUnavailable: 5, drainConfig: {maxParallelNodeConfiguration: 2}}", 9, DrainLimit::AtMost(2)),
        ("{maxUnavailable: 2, drainConfig: {maxParallelNodeConfiguration: 5}}", 9, DrainLimit::AtMost(2)),
        ("{maxUnavailable: 2, drainConfig: {maxParallelNodeConfiguration: 0}}", 9, DrainLimit::AtMost(2)),
        ("{maxUnavailable: 2, drainConfig: {timeoutSeconds: 5}}", 9, DrainLimit::AtMost(2)),
    ] {
        assert_eq!(limit_of("p", spec, total), (expected, None), "{spec} of {total}");
    }
}

#[test]
fn odd_limits_give_notes() {
    assert_eq!(limit_of("p", "{maxUnavailable: 0}", 9), (DrainLimit::AtMost(0), Some(LimitNote::Zero)));
    for text in ["0%", "101%", "many", "5", "-1%", "%"] {
        let expected = (DrainLimit::AtMost(1), Some(LimitNote::Invalid(text.to_owned())));
        assert_eq!(limit_of("p", &format!("{{maxUnavailable: '{text}'}}"), 9), expected);
    }
    assert_eq!(limit_of("p", "{}", 9), (DrainLimit::AtMost(1), Some(LimitNote::Missing)));
    assert_eq!(
        limit_of("p", "{drainConfig: {timeoutSeconds: 5}}", 9),
        (DrainLimit::AtMost(1), Some(LimitNote::Missing))
    );
    assert_eq!(limit_of("default", "{}", 9), (DrainLimit::AtMost(1), None));
}

#[test]
fn a_limit_lowered_below_the_number_of_draining_nodes_is_found() {
    let lowered = |old: &str, new: &str, held| {
        let (old, new): (SriovNetworkPoolConfigSpec, SriovNetworkPoolConfigSpec) =
            (serde_saphyr::from_str(old).unwrap(), serde_saphyr::from_str(new).unwrap());
        let [old, new] = [&old, &new].map(|spec| NamedPool { name: "p", spec });
        lowers_limit_below(&old, &new, 10, held)
    };
    let at_most = |most: u8| format!("{{drainConfig: {{maxParallelNodeConfiguration: {most}}}}}");
    assert!(lowered(&at_most(5), &at_most(2), 3));
    assert!(lowered(&at_most(0), &at_most(2), 3), "0 is no limit");
    assert!(lowered("{maxUnavailable: 50%}", "{maxUnavailable: 20%}", 3));
    assert!(!lowered(&at_most(5), &at_most(3), 3));
    assert!(!lowered(&at_most(5), &at_most(0), 3));
    assert!(!lowered(&at_most(2), &at_most(2), 3), "exceeded before, but not by this change");
}
