//! Deployment of the operator.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile,
    SecurityContext, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use vfleet_api::keys::agent_environment::{CLUSTER_TYPE, CNI_BIN_PATH};
use vfleet_operator::ClusterType;
use vfleet_operator::permissions::Account;

use super::rbac::object;
use super::{named, to_strings};

pub(super) const METRICS_PORT: i32 = 8080;
const HEALTH_PORT: i32 = 8081;
pub(super) const WEBHOOK_PORT: i32 = 9443;
/// Name of the webhook port.
pub(super) const WEBHOOK_PORT_NAME: &str = "webhook";
/// User and group id of an unprivileged user.
const NOBODY: i64 = 65532;

/// Returns the Deployment, and a disruption budget that keeps one replica during drains.
pub(super) fn deployment(
    namespace: &str,
    image: &str,
    cluster_type: ClusterType,
) -> anyhow::Result<Vec<Value>> {
    let metadata = named(Account::Operator.name(), namespace);
    let deployment = Deployment {
        metadata: ObjectMeta { labels: Some(labels()), ..metadata.clone() },
        spec: Some(DeploymentSpec {
            replicas: Some(2),
            selector: selector(),
            strategy: Some(update_strategy()),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels()), ..Default::default() }),
                spec: Some(pod(image, cluster_type)),
            },
            ..Default::default()
        }),
        ..Default::default()
    };
    let budget = PodDisruptionBudget {
        metadata,
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(selector()),
            // Replicas that wait for a certificate must not block drains of their nodes.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    };
    Ok(vec![object(&deployment)?, object(&budget)?])
}

/// Returns the labels of the operator's pods.
pub(super) fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), Account::Operator.name().to_owned())])
}

/// Returns the selector of the operator's pods.
pub(super) fn selector() -> LabelSelector {
    LabelSelector { match_labels: Some(labels()), ..Default::default() }
}

/// Returns a strategy that replaces one replica after the other, without surge: with two nodes, a third replica would
/// have no node of its own.
fn update_strategy() -> DeploymentStrategy {
    DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: Some(IntOrString::Int(0)),
            max_unavailable: Some(IntOrString::Int(1)),
        }),
    }
}

fn pod(image: &str, cluster_type: ClusterType) -> PodSpec {
    PodSpec {
        service_account_name: Some(Account::Operator.name().to_owned()),
        priority_class_name: Some("system-cluster-critical".to_owned()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NOBODY),
            run_as_group: Some(NOBODY),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        tolerations: Some(
            ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"].map(tolerate).into(),
        ),
        topology_spread_constraints: Some(vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "kubernetes.io/hostname".to_owned(),
            // A cluster with one node runs both replicas there.
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(selector()),
            ..Default::default()
        }]),
        containers: vec![container(image, cluster_type)],
        ..Default::default()
    }
}

fn tolerate(taint: &str) -> Toleration {
    Toleration { key: Some(taint.to_owned()), operator: Some("Exists".to_owned()), ..Default::default() }
}

fn container(image: &str, cluster_type: ClusterType) -> Container {
    Container {
        name: Account::Operator.name().to_owned(),
        image: Some(image.to_owned()),
        command: Some(to_strings(&["/usr/bin/vfleet"])),
        args: Some(to_strings(&["operator"])),
        env: Some(vec![
            field("NAMESPACE", "metadata.namespace"),
            field("POD_NAME", "metadata.name"),
            value(CLUSTER_TYPE, cluster_type.name()),
            value(CNI_BIN_PATH, cluster_type.default_cni_directory()),
        ]),
        ports: Some(vec![
            port("metrics", METRICS_PORT),
            port("health", HEALTH_PORT),
            port(WEBHOOK_PORT_NAME, WEBHOOK_PORT),
        ]),
        liveness_probe: Some(probe("/healthz")),
        readiness_probe: Some(probe("/readyz")),
        resources: Some(ResourceRequirements {
            requests: Some(BTreeMap::from([
                ("cpu".to_owned(), Quantity("50m".to_owned())),
                ("memory".to_owned(), Quantity("64Mi".to_owned())),
            ])),
            ..Default::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(to_strings(&["ALL"])), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn value(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), ..Default::default() }
}

fn field(variable: &str, path: &str) -> EnvVar {
    EnvVar {
        name: variable.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.to_owned(), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort { name: Some(name.to_owned()), container_port: number, ..Default::default() }
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("health".to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    }
}
