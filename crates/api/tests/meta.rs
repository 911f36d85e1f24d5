//! Plain types of `meta` compared with their counterparts in `k8s-openapi`: same serialization, same schema.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failed expectation is the point")]

use std::fmt::Debug;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::apimachinery::pkg::util::intstr;
use proptest::prelude::*;
use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::meta::{Condition, IntOrString, LabelSelector, MicroTime, NodeSelectorTerm, Time, Timestamp};

/// Deserializes `value` as both types: both succeed or both fail, and they serialize to the same text.
fn compare<Plain, Counterpart>(value: &Value) -> bool
where
    Plain: Serialize + DeserializeOwned + Debug,
    Counterpart: Serialize + DeserializeOwned + Debug,
{
    let plain = serde_json::from_value::<Plain>(value.clone());
    let counterpart = serde_json::from_value::<Counterpart>(value.clone());
    match (&plain, &counterpart) {
        (Ok(plain), Ok(counterpart)) => {
            assert_eq!(text(plain), text(counterpart), "{value}");
        }
        (Err(_), Err(_)) => {}
        _ => panic!("{value}: {plain:?}, but {counterpart:?}"),
    }
    plain.is_ok()
}

/// Returns variants of `base`: each field omitted, and each field replaced by other values.
fn variants(base: &Value) -> Vec<Value> {
    let mut variants = vec![base.clone(), json!({}), json!(null), json!([]), json!("x")];
    for field in base.as_object().unwrap().keys() {
        let mut without = base.clone();
        without.as_object_mut().unwrap().remove(field);
        variants.push(without);
        for other in [json!(null), json!(""), json!(7), json!([]), json!({}), json!([null])] {
            let mut with = base.clone();
            with[field] = other;
            variants.push(with);
        }
    }
    variants
}

/// Compares all variants: some are valid and some are not.
fn compare_all<Plain, Counterpart>(base: &Value)
where
    Plain: Serialize + DeserializeOwned + Debug,
    Counterpart: Serialize + DeserializeOwned + Debug,
{
    let read: Vec<bool> = variants(base).iter().map(compare::<Plain, Counterpart>).collect();
    assert!(read[0], "{base}");
    assert!(read.contains(&false), "{base}");
}

#[test]
fn conditions() {
    compare_all::<Condition, meta::Condition>(&json!({
        "type": "Ready", "status": "True", "reason": "Done", "message": "all is well", "unknown": 1,
        "observedGeneration": 3, "lastTransitionTime": "2026-08-06T10:00:00Z",
    }));
}

#[test]
fn selectors() {
    let requirement = json!({ "key": "rack", "operator": "In", "values": ["a", "b"] });
    let requirements = Value::Array(variants(&requirement).into_iter().filter(Value::is_object).collect());
    for requirements in [requirements, json!([requirement]), json!([{}])] {
        let selector = json!({ "matchLabels": { "app": "a" }, "matchExpressions": requirements });
        compare::<LabelSelector, meta::LabelSelector>(&selector);
        let term = json!({ "matchFields": requirements, "matchExpressions": requirements });
        compare::<NodeSelectorTerm, core::NodeSelectorTerm>(&term);
    }
    compare_all::<LabelSelector, meta::LabelSelector>(
        &json!({ "matchLabels": { "app": "a" }, "matchExpressions": [requirement] }),
    );
    compare_all::<NodeSelectorTerm, core::NodeSelectorTerm>(
        &json!({ "matchFields": [requirement], "matchExpressions": [requirement] }),
    );
}

#[test]
fn a_selector_of_a_client_selects_the_same() {
    let value = json!({
        "matchLabels": { "app": "a" },
        "matchExpressions": [{ "key": "rack", "operator": "In", "values": ["a"] }, { "key": "x", "operator": "Exists" }],
    });
    let client: meta::LabelSelector = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(LabelSelector::from(client), serde_json::from_value(value).unwrap());
}

#[test]
fn numbers_or_texts() {
    let values =
        [json!(0), json!(-3), json!("10%"), json!(""), json!(i32::MAX), json!(i64::from(i32::MAX) + 1)];
    let others = [json!(-9e9), json!(1.5), json!(true), json!(null), json!([]), json!({}), json!(u64::MAX)];
    let read: Vec<bool> =
        values.iter().chain(&others).map(compare::<IntOrString, intstr::IntOrString>).collect();
    assert!(read[..5].iter().all(|read| *read) && !read[5..].contains(&true), "{read:?}");
}

#[test]
fn texts_that_are_times() {
    for text in ["2026-08-06T10:00:00Z", "2026-08-06T10:00:00.123456789+02:00", "2026-08-06 10:00:00Z"] {
        assert!(compare::<Time, meta::Time>(&json!(text)));
        assert!(compare::<MicroTime, meta::MicroTime>(&json!(text)));
    }
    for value in [json!("2026-08-06"), json!("2026-08-06T10:00:00"), json!(""), json!(1), json!(null)] {
        assert!(!compare::<Time, meta::Time>(&value));
        assert!(!compare::<MicroTime, meta::MicroTime>(&value));
    }
}

proptest! {
    #[test]
    fn all_times(nanosecond in Timestamp::MIN.as_nanosecond()..=Timestamp::MAX.as_nanosecond()) {
        let time = Timestamp::from_nanosecond(nanosecond).unwrap();
        prop_assert_eq!(text(&Time(time)), text(&meta::Time(time)));
        prop_assert_eq!(text(&MicroTime(time)), text(&meta::MicroTime(time)));
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn schemas() {
    fn same<Plain: JsonSchema, Counterpart: JsonSchema>() {
        assert_eq!(schema_for!(Plain), schema_for!(Counterpart));
    }
    same::<Condition, meta::Condition>();
    same::<MicroTime, meta::MicroTime>();
    same::<LabelSelector, meta::LabelSelector>();
    same::<NodeSelectorTerm, core::NodeSelectorTerm>();
    same::<IntOrString, intstr::IntOrString>();
}
