//! Questions of the API server to the webhooks, to the answer.

use std::sync::LazyLock;

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use vfleet_operator::fuzzing::{self, Cluster};
use vfleet_plan::admission::NadSight;

use crate::driver::{Target, Verdict};

/// The cluster that questions are about.
static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| fuzzing::cluster(include_bytes!("corpus/watched_objects/cluster.json")).unwrap());

/// A question, as far as its answer depends on it. The rest may be what no parser of ours looks at.
#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    request: AskedRequest<'a>,
}

#[derive(Deserialize)]
struct AskedRequest<'a> {
    uid: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// Asserts that an answer is one to this question: it repeats the uid, says why it refuses, and its patch applies.
fn judge(body: &[u8], answer: Result<Vec<u8>, String>) -> Verdict {
    let answer = match answer {
        Ok(answer) => answer,
        Err(reason) => {
            assert!(!reason.is_empty());
            return Verdict::Refused;
        }
    };
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let Asked { request } = serde_json::from_slice(body).expect("only questions are answered");
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
        let alone = judge(body, fuzzing::validate(body, None));
        judge(body, fuzzing::validate(body, Some(&CLUSTER)));
        alone
    });
}

#[test]
fn admission_mutate() {
    Target::new("admission_mutate").run(|body| judge(body, fuzzing::mutate(body)));
}

#[test]
fn admission_pod() {
    let text = |text: &str| Some(text.to_owned());
    let nads = [
        NadSight { resource: text("openshift.io/nics"), node_selector: text("rack=a") },
        NadSight { resource: text("openshift.io/a~b/c"), node_selector: text("example.com/zone=b") },
        NadSight::default(),
    ];
    Target::new("admission_pod").with_cases(700).run(move |body| {
        let verdicts = nads.each_ref().map(|nad| judge(body, fuzzing::pod(body, nad)));
        verdicts[0]
    });
}

/// Questions to a cluster whose objects may be anything.
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
            judge(question, fuzzing::validate(question, Some(&cluster)));
        }
        Verdict::Accepted
    });
}
