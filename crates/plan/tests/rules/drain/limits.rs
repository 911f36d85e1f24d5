//! How many nodes of a pool may be drained at once.

use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_plan::NamedPool;
use vfleet_plan::drain::{Limit, LimitNote, limit, lowered_below};

fn of(name: &str, spec: &str, total: usize) -> (Limit, Option<LimitNote>) {
    let spec: SriovNetworkPoolConfigSpec = serde_saphyr::from_str(spec).unwrap();
    limit(&NamedPool { name, spec: &spec }, total)
}

#[test]
fn a_limit_is_a_number_a_percentage_or_one() {
    for (spec, total, expected) in [
        ("{drainConfig: {maxParallelNodeConfiguration: 0}}", 9, Limit::None),
        ("{drainConfig: {maxParallelNodeConfiguration: 3}}", 9, Limit::AtMost(3)),
        ("{drainConfig: {maxParallelNodeConfiguration: -2}}", 9, Limit::AtMost(1)),
        ("{maxUnavailable: 2}", 9, Limit::AtMost(2)),
        ("{maxUnavailable: 50%}", 9, Limit::AtMost(4)),
        ("{maxUnavailable: 100%}", 9, Limit::AtMost(9)),
        ("{maxUnavailable: 10%}", 9, Limit::AtMost(1)),
        ("{maxUnavailable: 10%}", 0, Limit::AtMost(1)),
        ("{maxUnavailable: 33%}", 1199, Limit::AtMost(395)),
        ("{maxUnavailable: 100%}", usize::MAX, Limit::AtMost(usize::MAX)),
        ("{maxUnavailable: 5, drainConfig: {maxParallelNodeConfiguration: 2}}", 9, Limit::AtMost(2)),
        ("{maxUnavailable: 2, drainConfig: {maxParallelNodeConfiguration: 5}}", 9, Limit::AtMost(2)),
        ("{maxUnavailable: 2, drainConfig: {maxParallelNodeConfiguration: 0}}", 9, Limit::AtMost(2)),
        ("{maxUnavailable: 2, drainConfig: {timeoutSeconds: 5}}", 9, Limit::AtMost(2)),
    ] {
        assert_eq!(of("p", spec, total), (expected, None), "{spec} of {total}");
    }
}

#[test]
fn what_is_odd_about_a_limit_is_said() {
    assert_eq!(of("p", "{maxUnavailable: 0}", 9), (Limit::AtMost(0), Some(LimitNote::Never)));
    for text in ["0%", "101%", "many", "5", "-1%", "%"] {
        let expected = (Limit::AtMost(1), Some(LimitNote::Unreadable(text.to_owned())));
        assert_eq!(of("p", &format!("{{maxUnavailable: '{text}'}}"), 9), expected);
    }
    assert_eq!(of("p", "{}", 9), (Limit::AtMost(1), Some(LimitNote::NoneGiven)));
    assert_eq!(
        of("p", "{drainConfig: {timeoutSeconds: 5}}", 9),
        (Limit::AtMost(1), Some(LimitNote::NoneGiven))
    );
    assert_eq!(of("default", "{}", 9), (Limit::AtMost(1), None));
}

#[test]
fn a_limit_may_not_be_lowered_below_what_drains() {
    let lowered = |old: &str, new: &str, held| {
        let (old, new): (SriovNetworkPoolConfigSpec, SriovNetworkPoolConfigSpec) =
            (serde_saphyr::from_str(old).unwrap(), serde_saphyr::from_str(new).unwrap());
        let [old, new] = [&old, &new].map(|spec| NamedPool { name: "p", spec });
        lowered_below(&old, &new, 10, held)
    };
    let at_most = |most: u8| format!("{{drainConfig: {{maxParallelNodeConfiguration: {most}}}}}");
    assert!(lowered(&at_most(5), &at_most(2), 3));
    assert!(lowered(&at_most(0), &at_most(2), 3), "0 is no limit");
    assert!(lowered("{maxUnavailable: 50%}", "{maxUnavailable: 20%}", 3));
    assert!(!lowered(&at_most(5), &at_most(3), 3));
    assert!(!lowered(&at_most(5), &at_most(0), 3));
    assert!(!lowered(&at_most(2), &at_most(2), 3), "too many already, but not by this change");
}
