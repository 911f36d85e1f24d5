//! Object of an admission request: parsed by its kind and checked by the rules.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use vfleet_api::network::{BridgeNetworkSpec, OVSNetworkSpec, SriovIBNetworkSpec, SriovNetworkSpec};
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_api::{PoolConfigView, SriovNetworkNodePolicySpec, SriovNetworkPoolConfig};
use vfleet_plan::admission::{
    Findings, Installation, Operation, Request, check_network, check_operator_config, check_policy,
    check_pool, evaluate, unreadable_finding,
};
use vfleet_plan::network::{NetworkId, NetworkKind, NetworkSpec};
use vfleet_plan::{NamedPolicy, NamedPool};

use super::index::ClusterIndex;
use super::review::ReviewRequest;

/// Object of an admission request, with the fields that rules check.
#[derive(Debug)]
pub(super) enum ReviewedObject {
    Policy(Box<ObjectVersions<SriovNetworkNodePolicySpec>>),
    Pool(Box<ObjectVersions<SriovNetworkPoolConfig>>),
    Config(Box<ObjectVersions<SriovOperatorConfigSpec>>),
    Network(NetworkKind, Box<ObjectVersions<NetworkSpec>>),
    /// Kind without rules: no webhook is configured for it.
    Other,
}

/// New and stored version of an object.
#[derive(Debug)]
pub(super) struct ObjectVersions<T> {
    new: Option<T>,
    old: Option<T>,
}

/// Findings about an object that cannot be parsed.
#[derive(Debug)]
pub(super) struct UnreadableRequest(pub(super) Findings);

/// Object with only its spec.
#[derive(Deserialize)]
struct OnlySpec<T> {
    spec: T,
}

/// Pool with an unparsed status: a status of another version must not block changes of the spec.
#[derive(Deserialize)]
struct PoolText {
    spec: SriovNetworkPoolConfigSpec,
    status: Option<Box<RawValue>>,
}

impl From<PoolText> for SriovNetworkPoolConfig {
    fn from(text: PoolText) -> Self {
        let status = text.status.and_then(|status| serde_json::from_str(status.get()).ok());
        Self { status, ..Self::new("", text.spec) }
    }
}

impl ReviewedObject {
    /// Parses the object of a request.
    pub(super) fn parse(request: &ReviewRequest<'_>) -> Result<Self, UnreadableRequest> {
        Ok(match request.kind {
            "SriovNetworkNodePolicy" => Self::Policy(Box::new(parse_specs(request)?)),
            "SriovNetworkPoolConfig" => {
                Self::Pool(Box::new(parse_versions::<PoolText>(request)?.map(SriovNetworkPoolConfig::from)))
            }
            "SriovOperatorConfig" => Self::Config(Box::new(parse_specs(request)?)),
            kind => match network_kind(kind) {
                Some(kind) => Self::Network(kind, Box::new(parse_network_specs(kind, request)?)),
                None => Self::Other,
            },
        })
    }

    /// Runs the rules. `cluster` is `None` to skip rules that need cluster facts.
    pub(super) fn check(
        &self,
        request: &ReviewRequest<'_>,
        installation: &Installation<'_>,
        cluster: Option<&ClusterIndex>,
    ) -> Findings {
        match self {
            Self::Policy(versions) => {
                let facts = cluster
                    .zip(versions.new.as_ref())
                    .map(|(cluster, spec)| cluster.policy_facts(NamedPolicy { name: request.name, spec }));
                check_policy(&versions.to_request(request), installation, facts.as_ref())
            }
            Self::Pool(versions) => {
                let pool = versions.new.as_ref().or(versions.old.as_ref());
                let facts = cluster.zip(pool).map(|(cluster, pool)| {
                    cluster.pool_facts(&NamedPool { name: request.name, spec: &pool.spec })
                });
                let views = versions.each_ref().map(PoolConfigView::from);
                check_pool(&views.to_request(request), installation, facts.as_ref())
            }
            Self::Config(versions) => {
                let facts = cluster.map(|cluster| cluster.config_facts(versions.new.as_ref()));
                check_operator_config(&versions.to_request(request), installation, facts.as_ref())
            }
            Self::Network(kind, versions) => {
                check_network_versions(*kind, versions, request, installation, cluster)
            }
            Self::Other => Findings::default(),
        }
    }
}

impl<T> ObjectVersions<T> {
    fn to_request<'a>(&'a self, request: &ReviewRequest<'a>) -> Request<'a, T> {
        Request {
            operation: request.operation,
            namespace: request.namespace,
            name: request.name,
            new: self.new.as_ref(),
            old: self.old.as_ref(),
        }
    }

    fn each_ref(&self) -> ObjectVersions<&T> {
        ObjectVersions { new: self.new.as_ref(), old: self.old.as_ref() }
    }

    fn map<U>(self, to: fn(T) -> U) -> ObjectVersions<U> {
        ObjectVersions { new: self.new.map(to), old: self.old.map(to) }
    }
}

fn check_network_versions(
    kind: NetworkKind,
    versions: &ObjectVersions<NetworkSpec>,
    request: &ReviewRequest<'_>,
    installation: &Installation<'_>,
    cluster: Option<&ClusterIndex>,
) -> Findings {
    let id = NetworkId { kind, namespace: request.namespace.to_owned(), name: request.name.to_owned() };
    let facts = cluster
        .zip(versions.new.as_ref())
        .map(|(cluster, spec)| cluster.resource_facts(spec.resource_name()));
    evaluate(&versions.to_request(request), PartialEq::eq, |checked| {
        let spec = checked.new.filter(|_| checked.operation != Operation::Delete);
        spec.map(|spec| check_network(&id, spec, installation, facts.as_ref())).unwrap_or_default()
    })
}

/// Parses both versions. A stored object that cannot be parsed is ignored, so that it can be corrected.
fn parse_versions<T: DeserializeOwned>(
    request: &ReviewRequest<'_>,
) -> Result<ObjectVersions<T>, UnreadableRequest> {
    let read = |object: &RawValue| serde_json::from_str(object.get());
    let new = request.object.map(read).transpose();
    let new = new.map_err(|error| UnreadableRequest(unreadable_finding(&describe_error(&error))))?;
    Ok(ObjectVersions { new, old: request.old.and_then(|old| read(old).ok()) })
}

fn parse_specs<T: DeserializeOwned>(
    request: &ReviewRequest<'_>,
) -> Result<ObjectVersions<T>, UnreadableRequest> {
    Ok(parse_versions::<OnlySpec<T>>(request)?.map(|object| object.spec))
}

/// Returns the error without the position, because the user does not see the JSON.
fn describe_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned()
}

fn network_kind(name: &str) -> Option<NetworkKind> {
    use NetworkKind::{Bridge, InfiniBand, Ovs, Sriov};
    [Sriov, InfiniBand, Ovs, Bridge].into_iter().find(|kind| kind.name() == name)
}

fn parse_network_specs(
    kind: NetworkKind,
    request: &ReviewRequest<'_>,
) -> Result<ObjectVersions<NetworkSpec>, UnreadableRequest> {
    Ok(match kind {
        NetworkKind::Sriov => parse_specs::<SriovNetworkSpec>(request)?.map(NetworkSpec::Sriov),
        NetworkKind::InfiniBand => parse_specs::<SriovIBNetworkSpec>(request)?.map(NetworkSpec::InfiniBand),
        NetworkKind::Ovs => parse_specs::<OVSNetworkSpec>(request)?.map(NetworkSpec::Ovs),
        NetworkKind::Bridge => parse_specs::<BridgeNetworkSpec>(request)?.map(NetworkSpec::Bridge),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(old: &str, new: &str) -> Result<Vec<&'static str>, Vec<&'static str>> {
        let [old, new] = [old, new].map(|text| serde_json::from_str::<&RawValue>(text).unwrap());
        let request = ReviewRequest {
            uid: "u",
            kind: "SriovNetworkPoolConfig",
            operation: Operation::Update,
            namespace: "home",
            name: "p",
            object: Some(new),
            old: Some(old),
        };
        let installation = Installation { namespace: "home", dev_mode: false };
        let rules = |findings: &Findings| findings.errors().map(|finding| finding.rule).collect();
        match ReviewedObject::parse(&request) {
            Ok(object) => Ok(rules(&object.check(&request, &installation, None))),
            Err(UnreadableRequest(findings)) => Err(rules(&findings)),
        }
    }

    #[test]
    fn a_pool_with_an_unreadable_status_can_be_changed() {
        let limit =
            |limit: u8, status: &str| format!(r#"{{"spec":{{"maxUnavailable":{limit}}},"status":{status}}}"#);
        let two = r#"{"slots":[{"node":"a","requestedAt":"2026-01-02T03:04:05.000000Z"},{"node":"b","requestedAt":"2026-01-02T03:04:05.000000Z"}]}"#;
        assert_eq!(errors(&limit(2, two), &limit(1, two)), Ok(vec!["S10"]));
        let odd = r#"{"slots":"all of them","nodes":[]}"#;
        assert_eq!(errors(&limit(2, odd), &limit(1, odd)), Ok(Vec::new()));
        let bad = format!(r#"{{"spec":{{"priority":"first"}},"status":{odd}}}"#);
        assert_eq!(errors(&limit(2, odd), &bad), Err(vec!["G03"]));
    }
}
