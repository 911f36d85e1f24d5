//! The parsers of what the API server and Secrets say, for `tests/fuzz/main.rs`. No other code uses them.

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use vfleet_plan::admission::{Installation, NadSight, inject, networks_of_pod};
use vfleet_plan::certificates::KeptTimes;

use super::answer::{admit, answer, is_going, with_defaults};
use super::certificates::{kept, pem};
use super::index;
use super::review::{Answer, Review, ReviewRequest, reply};
use super::subject::{Subject, Unread};

/// The part of a cluster that admission knows.
pub struct Cluster(index::Cluster);

/// Parses the objects of a cluster, a JSON list, as watches do.
pub fn cluster(objects: &[u8]) -> Result<Cluster, String> {
    index::fuzzing::cluster(objects).map(Cluster).map_err(|error| error.to_string())
}

/// Answers the body of a question to the validating webhook.
pub fn validate(body: &[u8], cluster: Option<&Cluster>) -> Result<Vec<u8>, String> {
    answered(body, |request| {
        if request.object.is_some_and(is_going) {
            return admit(Vec::new(), Vec::new());
        }
        let home = Installation { namespace: "vfleet-system", dev_mode: false };
        match Subject::read(request) {
            Ok(subject) => answer(subject.judge(request, &home, cluster.map(|Cluster(cluster)| cluster))),
            Err(Unread(findings)) => Answer::Refuse { code: 400, reason: "BadRequest", findings },
        }
    })
}

/// Answers the body of a question to the mutating webhook.
pub fn mutate(body: &[u8]) -> Result<Vec<u8>, String> {
    answered(body, with_defaults)
}

/// Answers the body of a question about a pod, in a cluster where every network is `nad`.
pub fn pod(body: &[u8], nad: &NadSight) -> Result<Vec<u8>, String> {
    answered(body, |request| {
        let pod = request.object.and_then(|object| serde_json::from_str::<Value>(object.get()).ok());
        let Some(pod) = pod else { return admit(Vec::new(), Vec::new()) };
        match networks_of_pod(&pod, request.namespace) {
            Ok(networks) => {
                let known: Vec<_> = networks.into_iter().map(|named| (named, nad.clone())).collect();
                let injection = inject(&pod, &known);
                admit(injection.warnings, injection.patch)
            }
            Err(bad) => admit(vec![bad.to_string()], Vec::new()),
        }
    })
}

fn answered(body: &[u8], answer: impl Fn(&ReviewRequest<'_>) -> Answer) -> Result<Vec<u8>, String> {
    let review = Review::read(body).map_err(|error| error.to_string())?;
    let request = review.request();
    reply(request.uid, &answer(&request)).map_err(|error| error.to_string())
}

/// Parses a chain and its key, and checks that an API server with `bundle` accepts it as `name`; returns when it ends.
pub fn certificate(
    [chain, key, bundle]: [&[u8]; 3],
    name: &str,
    now: Timestamp,
) -> Result<Option<Timestamp>, String> {
    let pair = pem::pair(chain, key).map_err(|error| error.to_string())?;
    let checked = pem::check(&pair.cert, bundle, name, now).map_err(|error| error.to_string());
    let alone = pem::check_alone(&pair.cert, name, now).map_err(|error| error.to_string());
    checked.and(alone)?;
    Ok(pair.cert.first().and_then(pem::end_of))
}

/// Parses a bundle of authorities; returns each that can be trusted.
pub fn authorities(text: &str) -> Vec<String> {
    pem::blocks(text)
}

/// Parses the Secret of own certificates, given by keys and values; returns when they were made, and whom to trust.
pub fn kept_certificates<'a>(
    data: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    name: &str,
    now: Timestamp,
) -> (KeptTimes, String) {
    let data = data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.to_vec()))).collect();
    let kept = kept::Kept::read(&data, name, now);
    let bundle = kept.bundle();
    (kept.times, bundle)
}
