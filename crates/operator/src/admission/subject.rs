//! An object that somebody is about to write: read as what it is, and judged by the rules.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use vfleet_api::network::{BridgeNetworkSpec, OVSNetworkSpec, SriovIBNetworkSpec, SriovNetworkSpec};
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_api::{PoolConfigView, SriovNetworkNodePolicySpec, SriovNetworkPoolConfig};
use vfleet_plan::admission::{
    Findings, Installation, Operation, Request, check_network, check_operator_config, check_policy,
    check_pool, judge, unreadable,
};
use vfleet_plan::network::{NetworkId, NetworkKind, NetworkSpec};
use vfleet_plan::{NamedPolicy, NamedPool};

use super::index::Cluster;
use super::review::ReviewRequest;

/// What somebody is about to write or delete: all of it that rules look at.
#[derive(Debug)]
pub(super) enum Subject {
    Policy(Box<Versions<SriovNetworkNodePolicySpec>>),
    Pool(Box<Versions<SriovNetworkPoolConfig>>),
    Config(Box<Versions<SriovOperatorConfigSpec>>),
    Network(NetworkKind, Box<Versions<NetworkSpec>>),
    /// Nobody is told to ask about others.
    Other,
}

/// The object as it shall be and as it is.
#[derive(Debug)]
pub(super) struct Versions<T> {
    new: Option<T>,
    old: Option<T>,
}

/// Why no rule was asked: the object cannot be read.
#[derive(Debug)]
pub(super) struct Unread(pub(super) Findings);

/// The part of an object that rules look at, where that is its spec.
#[derive(Deserialize)]
struct OnlySpec<T> {
    spec: T,
}

/// A pool. Its status is read by itself: what another version wrote there must not keep anybody from changing the spec.
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

impl Subject {
    pub(super) fn read(request: &ReviewRequest<'_>) -> Result<Self, Unread> {
        Ok(match request.kind {
            "SriovNetworkNodePolicy" => Self::Policy(Box::new(specs(request)?)),
            "SriovNetworkPoolConfig" => {
                Self::Pool(Box::new(versions::<PoolText>(request)?.map(SriovNetworkPoolConfig::from)))
            }
            "SriovOperatorConfig" => Self::Config(Box::new(specs(request)?)),
            kind => match network_kind(kind) {
                Some(kind) => Self::Network(kind, Box::new(network_specs(kind, request)?)),
                None => Self::Other,
            },
        })
    }

    /// What rules find in it. `cluster` is `None` while that is not known, or does not count.
    pub(super) fn judge(
        &self,
        request: &ReviewRequest<'_>,
        home: &Installation<'_>,
        cluster: Option<&Cluster>,
    ) -> Findings {
        match self {
            Self::Policy(versions) => {
                let facts = cluster
                    .zip(versions.new.as_ref())
                    .map(|(cluster, spec)| cluster.policy_facts(NamedPolicy { name: request.name, spec }));
                check_policy(&versions.asked(request), home, facts.as_ref())
            }
            Self::Pool(versions) => {
                let pool = versions.new.as_ref().or(versions.old.as_ref());
                let facts = cluster.zip(pool).map(|(cluster, pool)| {
                    cluster.pool_facts(&NamedPool { name: request.name, spec: &pool.spec })
                });
                let views = versions.each_ref().map(PoolConfigView::from);
                check_pool(&views.asked(request), home, facts.as_ref())
            }
            Self::Config(versions) => {
                let facts = cluster.map(|cluster| cluster.config_facts(versions.new.as_ref()));
                check_operator_config(&versions.asked(request), home, facts.as_ref())
            }
            Self::Network(kind, versions) => judge_network(*kind, versions, request, home, cluster),
            Self::Other => Findings::default(),
        }
    }
}

impl<T> Versions<T> {
    fn asked<'a>(&'a self, request: &ReviewRequest<'a>) -> Request<'a, T> {
        Request {
            operation: request.operation,
            namespace: request.namespace,
            name: request.name,
            new: self.new.as_ref(),
            old: self.old.as_ref(),
        }
    }

    fn each_ref(&self) -> Versions<&T> {
        Versions { new: self.new.as_ref(), old: self.old.as_ref() }
    }

    fn map<U>(self, to: fn(T) -> U) -> Versions<U> {
        Versions { new: self.new.map(to), old: self.old.map(to) }
    }
}

fn judge_network(
    kind: NetworkKind,
    versions: &Versions<NetworkSpec>,
    request: &ReviewRequest<'_>,
    home: &Installation<'_>,
    cluster: Option<&Cluster>,
) -> Findings {
    let id = NetworkId { kind, namespace: request.namespace.to_owned(), name: request.name.to_owned() };
    let facts = cluster
        .zip(versions.new.as_ref())
        .map(|(cluster, spec)| cluster.resource_facts(spec.resource_name()));
    judge(&versions.asked(request), PartialEq::eq, |asked| {
        let spec = asked.new.filter(|_| asked.operation != Operation::Delete);
        spec.map(|spec| check_network(&id, spec, home, facts.as_ref())).unwrap_or_default()
    })
}

/// An old object that cannot be read excuses nothing, and keeps nobody from putting it right.
fn versions<T: DeserializeOwned>(request: &ReviewRequest<'_>) -> Result<Versions<T>, Unread> {
    let read = |object: &RawValue| serde_json::from_str(object.get());
    let new = request.object.map(read).transpose();
    let new = new.map_err(|error| Unread(unreadable(&said(&error))))?;
    Ok(Versions { new, old: request.old.and_then(|old| read(old).ok()) })
}

fn specs<T: DeserializeOwned>(request: &ReviewRequest<'_>) -> Result<Versions<T>, Unread> {
    Ok(versions::<OnlySpec<T>>(request)?.map(|object| object.spec))
}

/// What is wrong, without the column of a text that nobody sees.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(said, _)| said).to_owned()
}

fn network_kind(name: &str) -> Option<NetworkKind> {
    use NetworkKind::{Bridge, InfiniBand, Ovs, Sriov};
    [Sriov, InfiniBand, Ovs, Bridge].into_iter().find(|kind| kind.name() == name)
}

fn network_specs(kind: NetworkKind, request: &ReviewRequest<'_>) -> Result<Versions<NetworkSpec>, Unread> {
    Ok(match kind {
        NetworkKind::Sriov => specs::<SriovNetworkSpec>(request)?.map(NetworkSpec::Sriov),
        NetworkKind::InfiniBand => specs::<SriovIBNetworkSpec>(request)?.map(NetworkSpec::InfiniBand),
        NetworkKind::Ovs => specs::<OVSNetworkSpec>(request)?.map(NetworkSpec::Ovs),
        NetworkKind::Bridge => specs::<BridgeNetworkSpec>(request)?.map(NetworkSpec::Bridge),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(old: &str, new: &str) -> Result<Vec<&'static str>, Vec<&'static str>> {
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
        let home = Installation { namespace: "home", dev_mode: false };
        let rules = |findings: &Findings| findings.errors().map(|finding| finding.rule).collect();
        match Subject::read(&request) {
            Ok(subject) => Ok(rules(&subject.judge(&request, &home, None))),
            Err(Unread(findings)) => Err(rules(&findings)),
        }
    }

    #[test]
    fn a_status_of_another_version_keeps_nobody_from_changing_a_pool() {
        let limit =
            |limit: u8, status: &str| format!(r#"{{"spec":{{"maxUnavailable":{limit}}},"status":{status}}}"#);
        let two = r#"{"slots":[{"node":"a","requestedAt":"2026-01-02T03:04:05.000000Z"},{"node":"b","requestedAt":"2026-01-02T03:04:05.000000Z"}]}"#;
        assert_eq!(told(&limit(2, two), &limit(1, two)), Ok(vec!["S10"]));
        let odd = r#"{"slots":"all of them","nodes":[]}"#;
        assert_eq!(told(&limit(2, odd), &limit(1, odd)), Ok(Vec::new()));
        let bad = format!(r#"{{"spec":{{"priority":"first"}},"status":{odd}}}"#);
        assert_eq!(told(&limit(2, odd), &bad), Err(vec!["G03"]));
    }
}
