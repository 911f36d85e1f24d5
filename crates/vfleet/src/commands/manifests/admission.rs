//! Objects of the admission webhooks. They are installed empty, and filled in by the operator when webhooks are
//! enabled. So the operator needs no permission to create them, and uninstalling vfleet removes them.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Secret, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use vfleet_api::keys::{ADMISSION_CONFIGURATION, INJECTOR_CONFIGURATION, WEBHOOK_SECRET, WEBHOOK_SERVICE};

use super::operator::{WEBHOOK_PORT_NAME, labels};
use super::rbac::object;
use super::{cluster_wide, named};

/// Returns the Service of the webhooks, the Secret for certificates, and the webhook configurations.
pub(super) fn objects(namespace: &str) -> anyhow::Result<Vec<Value>> {
    let secret = Secret {
        metadata: named(WEBHOOK_SECRET, namespace),
        type_: Some("Opaque".to_owned()),
        ..Default::default()
    };
    let validating = ValidatingWebhookConfiguration {
        metadata: cluster_wide(ADMISSION_CONFIGURATION, namespace),
        ..Default::default()
    };
    let mutating =
        |name| MutatingWebhookConfiguration { metadata: cluster_wide(name, namespace), ..Default::default() };
    Ok(vec![
        object(&service(namespace))?,
        object(&secret)?,
        object(&validating)?,
        object(&mutating(ADMISSION_CONFIGURATION))?,
        object(&mutating(INJECTOR_CONFIGURATION))?,
    ])
}

/// Returns the Service of the webhooks. Every ready replica serves them, also if it does not lead.
fn service(namespace: &str) -> Service {
    Service {
        metadata: named(WEBHOOK_SERVICE, namespace),
        spec: Some(ServiceSpec {
            selector: Some(labels()),
            ports: Some(vec![ServicePort {
                name: Some(WEBHOOK_PORT_NAME.to_owned()),
                port: 443,
                target_port: Some(IntOrString::String(WEBHOOK_PORT_NAME.to_owned())),
                ..Default::default()
            }]),
            ..Default::default()
        }),
        ..Default::default()
    }
}
