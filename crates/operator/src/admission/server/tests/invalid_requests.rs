//! Bodies that are not admission requests.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

/// Small JSON values of any type.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(
                prop_oneof![Just("request".to_owned()), Just("uid".to_owned()), ".{0,6}"],
                inner,
                0..4
            )
            .prop_map(|members| json!(members)),
        ]
    })
}

/// Bodies that a client may send.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    const MEMBERS: [&str; 10] = [
        "/apiVersion",
        "/kind",
        "/request",
        "/request/uid",
        "/request/kind",
        "/request/kind/kind",
        "/request/operation",
        "/request/namespace",
        "/request/name",
        "/request/object",
    ];
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    let nested = (1usize..20_000, any::<bool>()).prop_map(|(depth, is_object)| {
        let (open, close) = if is_object { ("{\"a\":", "}") } else { ("[", "]") };
        let text = review("u1", "good").to_string();
        let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
        text.replace("{\"metadata\":{\"name\":\"good\"}}", &deep).into_bytes()
    });
    let changed =
        (prop::sample::select(&MEMBERS[..]), prop::option::of(any_json())).prop_map(|(at, value)| {
            let mut review = review("u1", "good");
            let (parent, member) = at.rsplit_once('/').unwrap();
            let parent = review.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
            match value {
                Some(value) => parent.insert(member.to_owned(), value),
                None => parent.remove(member),
            };
            review.to_string().into_bytes()
        });
    let cut = (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| {
        let mut text = review("u1", "good").to_string().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        text
    });
    prop_oneof![
        bytes,
        any_json().prop_map(|json| json.to_string().into_bytes()),
        nested,
        changed,
        cut.clone(),
        (cut, 0usize..100).prop_map(|(mut text, length)| {
            text.truncate(length);
            text
        }),
    ]
}

#[test]
fn invalid_requests_are_never_admitted() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let service = service(&CancellationToken::new());
    let default = ProptestConfig::default();
    let mut runner = TestRunner::new(ProptestConfig { cases: default.cases.max(2000), ..default });
    let (answered, refused) = (Cell::new(0), Cell::new(0));
    runner
        .run(&any_body(), |body| {
            let (status, text) = runtime.block_on(respond(&service, body.clone()));
            if status == StatusCode::BAD_REQUEST {
                refused.set(refused.get() + 1);
                return Ok(());
            }
            answered.set(answered.get() + 1);
            prop_assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&text));
            let reply: Value = serde_json::from_slice(&text).unwrap();
            // A generic JSON parser must find the same request.
            let sent: Value =
                serde_json::from_slice(&body).unwrap_or_else(|_| json!({ "request": { "uid": "u1" } }));
            prop_assert_eq!(&reply["response"]["uid"], &sent["request"]["uid"]);
            prop_assert!(reply["response"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
            Ok(())
        })
        .unwrap();
    let (answered, refused) = (answered.get(), refused.get());
    assert!(answered > 100 && refused > 100, "{answered} answered, {refused} refused");
}
