//! Parsers of requests and Secrets, exported only for `tests/fuzz/main.rs`.

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use vfleet_plan::admission::{Installation, NadAnnotations, inject_resources, read_pod_networks};
use vfleet_plan::certificates::CertificateGenerations;

use super::certificates::{own, pem};
use super::handler::{add_defaults, allow, is_being_deleted, respond};
use super::index;
use super::object::{ReviewedObject, UnreadableRequest};
use super::review::{AdmissionResponse, Review, ReviewRequest, reply};

/// Index of a cluster.
pub struct Cluster(index::ClusterIndex);

/// Parses the objects of a cluster, given as a JSON list.
pub fn cluster(objects: &[u8]) -> Result<Cluster, String> {
    index::fuzzing::cluster(objects).map(Cluster).map_err(|error| error.to_string())
}

/// Handles the body of a request to the validating webhook.
pub fn validate(body: &[u8], cluster: Option<&Cluster>) -> Result<Vec<u8>, String> {
    handle(body, |request| {
        if request.object.is_some_and(is_being_deleted) {
            return allow(Vec::new(), Vec::new());
        }
        let home = Installation { namespace: "vfleet-system", dev_mode: false };
        match ReviewedObject::parse(request) {
            Ok(object) => respond(object.check(request, &home, cluster.map(|Cluster(cluster)| cluster))),
            Err(UnreadableRequest(findings)) => {
                AdmissionResponse::Deny { code: 400, reason: "BadRequest", findings }
            }
        }
    })
}

/// Handles the body of a request to the mutating webhook.
pub fn mutate(body: &[u8]) -> Result<Vec<u8>, String> {
    handle(body, add_defaults)
}

/// Handles the body of a request about a pod, in a cluster where every network is `nad`.
pub fn pod(body: &[u8], nad: &NadAnnotations) -> Result<Vec<u8>, String> {
    handle(body, |request| {
        let pod = request.object.and_then(|object| serde_json::from_str::<Value>(object.get()).ok());
        let Some(pod) = pod else { return allow(Vec::new(), Vec::new()) };
        match read_pod_networks(&pod, request.namespace) {
            Ok(networks) => {
                let nads: Vec<_> = networks.into_iter().map(|named| (named, nad.clone())).collect();
                let injection = inject_resources(&pod, &nads);
                allow(injection.warnings, injection.patch)
            }
            Err(error) => allow(vec![error.to_string()], Vec::new()),
        }
    })
}

fn handle(body: &[u8], respond: impl Fn(&ReviewRequest<'_>) -> AdmissionResponse) -> Result<Vec<u8>, String> {
    let review = Review::read(body).map_err(|error| error.to_string())?;
    let request = review.request();
    reply(request.uid, &respond(&request)).map_err(|error| error.to_string())
}

/// Parses a chain and its key, and checks that an API server with `bundle` accepts it as `name`. Returns its expiry.
pub fn certificate(
    [chain, key, bundle]: [&[u8]; 3],
    name: &str,
    now: Timestamp,
) -> Result<Option<Timestamp>, String> {
    let pair = pem::parse_pair(chain, key).map_err(|error| error.to_string())?;
    let checked = pem::check(&pair.cert, bundle, name, now).map_err(|error| error.to_string());
    let alone = pem::check_alone(&pair.cert, name, now).map_err(|error| error.to_string());
    checked.and(alone)?;
    Ok(pair.cert.first().and_then(pem::expiry))
}

/// Parses a CA bundle. Returns each certificate that can be trusted.
pub fn authorities(text: &str) -> Vec<String> {
    pem::split_certificates(text)
}

/// Parses the Secret of own certificates. Returns their generations and the CA bundle.
pub fn kept_certificates<'a>(
    data: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    name: &str,
    now: Timestamp,
) -> (CertificateGenerations, String) {
    let data = data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.to_vec()))).collect();
    let own = own::OwnCertificates::parse(&data, name, now);
    let bundle = own.bundle();
    (own.generations, bundle)
}
