use serde_json::{Value, json};

use super::*;

fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1-2", "kind": { "group": "g", "version": "v1", "kind": "Thing" }, "operation": "UPDATE",
            "namespace": "ns", "name": "\u{e4}\"b", "object": { "a": 1 }, "oldObject": null,
            "userInfo": {}, "dryRun": false, "options": null,
        },
    })
}

#[test]
fn a_request_is_parsed() {
    let text = review().to_string();
    let review = Review::read(text.as_bytes()).unwrap();
    let request = review.request();
    assert_eq!((request.uid, request.kind, request.operation), ("1-2", "Thing", Operation::Update));
    assert_eq!((request.namespace, request.name), ("ns", "\u{e4}\"b"));
    assert_eq!(request.object.unwrap().get(), r#"{"a":1}"#);
    assert!(request.old.is_none());
}

/// Deletion of a whole collection.
#[test]
fn a_deletion_without_a_name_gets_the_name_of_the_stored_object() {
    let name = |operation: &str, name: &str, object: Value, old: Value| {
        let mut review = review();
        review["request"]["operation"] = json!(operation);
        review["request"]["name"] = json!(name);
        (review["request"]["object"], review["request"]["oldObject"]) = (object, old);
        let text = review.to_string();
        Review::read(text.as_bytes()).unwrap().request().name.to_owned()
    };
    let stored = json!({ "metadata": { "name": "default", "namespace": "ns" }, "spec": {} });
    assert_eq!(name("DELETE", "", json!(null), stored.clone()), "default");
    assert_eq!(name("DELETE", "x", json!(null), stored.clone()), "x");
    assert_eq!(name("DELETE", "", json!(null), json!({ "metadata": {} })), "");
    assert_eq!(name("DELETE", "", json!(null), json!(null)), "");
    // The API server generates the name later.
    let unnamed = json!({ "metadata": { "generateName": "pool-" } });
    assert_eq!(name("CREATE", "", unnamed, json!(null)), "");
    assert_eq!(name("UPDATE", "", json!({}), stored), "");
}

#[test]
fn invalid_requests_are_errors() {
    let with = |change: fn(&mut Value)| {
        let mut review = review();
        change(&mut review);
        Review::read(review.to_string().as_bytes()).unwrap_err().to_string()
    };
    assert!(with(|review| review["kind"] = json!("Pod")).contains("\"Pod\""));
    assert!(with(|review| review["apiVersion"] = json!("admission.k8s.io/v1beta1")).contains("v1beta1"));
    assert!(with(|review| review["request"] = json!(null)).contains("no request"));
    assert!(with(|review| review["request"]["uid"] = json!("")).contains("no request"));
    assert!(with(|review| review["request"]["operation"] = json!("CONNECT")).contains("CONNECT"));
    assert!(with(|review| review["request"]["kind"] = json!("Pod")).contains("invalid type"));
    assert!(with(|review| *review = json!([])).contains("not an AdmissionReview"));
}

#[test]
fn duplicate_fields_and_invalid_utf8_are_errors() {
    let text = review().to_string();
    let twice = text.replace("\"uid\":\"1-2\"", "\"uid\":\"1-2\",\"uid\":\"3\"");
    assert!(Review::read(twice.as_bytes()).unwrap_err().to_string().contains("duplicate"));
    // Within the object, which is not parsed here.
    let mut bytes = text.replace("{\"a\":1}", "{\"a\":\"?\"}").into_bytes();
    let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[at] = 0xff;
    assert!(matches!(Review::read(&bytes), Err(ReviewError::Unreadable(_))));
}

fn replied(response: &AdmissionResponse) -> Value {
    serde_json::from_slice::<Value>(&reply("u", response).unwrap()).unwrap()
}

#[test]
fn a_patch_is_sent_in_base64_and_absent_fields_are_omitted() {
    let plain = replied(&AdmissionResponse::Allow { warnings: Vec::new(), patch: Vec::new() });
    assert_eq!(
        plain,
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": { "uid": "u", "allowed": true },
        })
    );
    let patch = vec![PatchOperation::add(&["a"], 1)];
    let changed = replied(&AdmissionResponse::Allow { warnings: vec!["w".to_owned()], patch });
    let response = &changed["response"];
    assert_eq!(response["patchType"], "JSONPatch");
    assert_eq!(response["warnings"], json!(["w"]));
    let patch: ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
    assert_eq!(patch.0, br#"[{"op":"add","path":"/a","value":1}]"#);
}

#[test]
fn a_denial_has_all_causes() {
    let mut findings = Findings::default();
    findings.error("T01", "Test", "spec.a", "a is wrong");
    findings.warning("T02", "Test", "spec.b", "b is odd");
    findings.error("T03", "Test", "", "all is wrong");
    let refused = replied(&AdmissionResponse::Deny { code: 422, reason: "Invalid", findings });
    assert_eq!(
        refused["response"],
        json!({
            "uid": "u", "allowed": false, "warnings": ["spec.b: b is odd"],
            "status": {
                "code": 422, "reason": "Invalid", "message": "spec.a: a is wrong; all is wrong",
                "details": { "causes": [
                    { "reason": "FieldValueInvalid", "message": "a is wrong", "field": "spec.a" },
                    { "reason": "FieldValueInvalid", "message": "all is wrong" },
                ] },
            },
        })
    );
}
