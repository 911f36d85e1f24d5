//! Admission requests of the API server, with the responses.

use std::sync::LazyLock;

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use vfleet_operator::fuzzing::{self, Cluster};
use vfleet_plan::admission::NadAnnotations;

use crate::driver::{Target, Verdict};

/// Cluster in which requests are checked.
static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| fuzzing::cluster(include_bytes!("corpus/watched_objects/cluster.json")).unwrap());

/// Admission review, with the fields that the response depends on.
#[derive(Deserialize)]
struct ParsedReview<'a> {
    #[serde(borrow)]
    request: ParsedRequest<'a>,
}

#[derive(Deserialize)]
struct ParsedRequest<'a> {
    uid: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// Asserts that a response matches its request: it has the same UID, gives a reason for a refusal, and its patch
/// applies.
fn check_response(body: &[u8], answer: Result<Vec<u8>, String>) -> Verdict {
    let answer = match answer {
        Ok(answer) => answer,
        Err(reason) => {
            assert!(!reason.is_empty());
            return Verdict::Refused;
        }
    };
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let ParsedReview { request } = serde_json::from_slice(body).expect("only valid reviews are answered");
    let response = &answer["response"];
    assert_eq!(response["uid"], request.uid);
    if response["allowed"] == false {
        let status = &response["status"];
        assert!(status["message"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
        assert!(status["code"].as_u64().is_some_and(|code| (400..500).contains(&code)), "{answer}");
        assert!(response["patch"].is_null());
    } else {
        assert_eq!(response["allowed"], true);
    }
    if !response["patch"].is_null() {
        let ByteString(patch) = serde_json::from_value(response["patch"].clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let object = request.object.expect("only an object can be patched");
        let mut object: Value = serde_json::from_str(object.get()).unwrap();
        json_patch::patch(&mut object, &patch)
            .unwrap_or_else(|error| panic!("the patch does not apply: {error}"));
    }
    Verdict::of(response["allowed"] == true)
}

#[test]
fn admission_validate() {
    Target::new("admission_validate").with_cases(700).run(|body| {
        let alone = check_response(body, fuzzing::validate(body, None));
        check_response(body, fuzzing::validate(body, Some(&CLUSTER)));
        alone
    });
}

#[test]
fn admission_mutate() {
    Target::new("admission_mutate").run(|body| check_response(body, fuzzing::mutate(body)));
}

#[test]
fn admission_pod() {
    let text = |text: &str| Some(text.to_owned());
    let nads = [
        NadAnnotations { resource: text("openshift.io/nics"), node_selector: text("rack=a") },
        NadAnnotations { resource: text("openshift.io/a~b/c"), node_selector: text("example.com/zone=b") },
        NadAnnotations::default(),
    ];
    Target::new("admission_pod").with_cases(700).run(move |body| {
        let verdicts = nads.each_ref().map(|nad| check_response(body, fuzzing::pod(body, nad)));
        verdicts[0]
    });
}

/// Admission requests in a cluster with arbitrary objects.
#[test]
fn watched_objects() {
    const QUESTIONS: [&[u8]; 3] = [
        include_bytes!("corpus/admission_validate/policy.json"),
        include_bytes!("corpus/admission_validate/pool.json"),
        include_bytes!("corpus/admission_validate/config.json"),
    ];
    Target::new("watched_objects").with_cases(500).run(|objects| {
        let Ok(cluster) = fuzzing::cluster(objects) else { return Verdict::Refused };
        for question in QUESTIONS {
            check_response(question, fuzzing::validate(question, Some(&cluster)));
        }
        Verdict::Accepted
    });
}
