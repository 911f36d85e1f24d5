//! Admission cases: one object each, with the expected errors, warnings and patch. Add a file to `admission/cases/` to
//! add a test.
//!
//! The files are used twice: here, where the rules are called with a fake cluster, and in
//! `tests/api_server/admission.rs`, where a real API server calls the real operator. A case has:
//!
//! - `world`: the cluster, a file of `admission/worlds/`. If absent, the cluster has not been read yet, as in an
//!   operator that has just started. The real API server cannot show such a case.
//! - `also`: objects that are added to the world, or replace the one of the same kind and name.
//! - `operation`: CREATE (default), UPDATE or DELETE.
//! - `object`: new object as a user writes it. Without `metadata.namespace` it is in the operator's namespace, which
//!   has a different name in each run, so no expected text may contain it.
//! - `old`: stored object, for UPDATE and DELETE.
//! - `by`: component that decides. `ours` (default): the rules. `schema`: the API server refuses the object before it
//!   calls the rules, with its own `errors`, but after defaults were added, so only `patch` is checked here.
//!   `not-sent`: the API server does not call the webhook. `look-up`: the operator reads from the API server.
//! - `expect`: `admitted`; `errors` and `warnings`, each with its exact `field` and parts of its text (`contains`), in
//!   any order, and no others; `patch`, if it is checked: all operations in their order.
//!
//! A world has `objects` as the API server returns them (`status` of a node state is the report of its agent), and may
//! have `devMode`. With `like` it starts from another world, `without` some objects (Kind/name).

#[path = "admission/case.rs"]
mod case;
#[path = "admission/world.rs"]
mod world;

use std::error::Error;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::{PoolConfigView, SriovNetworkNodePolicy, SriovNetworkPoolConfig, SriovOperatorConfig};
use vfleet_plan::admission::{
    Findings, Installation, NamedNetwork, Operation, PatchOperation, Request, check_network,
    check_operator_config, check_policy, check_pool, evaluate, inject_resources, patch_policy_defaults,
    read_pod_networks,
};
use vfleet_plan::network::{NetworkId, NetworkKind, NetworkSpec};

use case::{Case, DecidedBy, Outcome};
use world::{FakeCluster, HOME, text};

type TestResult<T = ()> = Result<T, Box<dyn Error>>;

fn case(file: &Path) -> TestResult {
    let case = Case::read(file)?;
    let worlds = file.with_file_name("../worlds");
    let world = case.world.as_ref().map(|name| FakeCluster::read(&worlds, name, &case.also)).transpose()?;
    match case.by {
        DecidedBy::Ours => case.expect.compare(&outcome(&case, world.as_ref())?)?,
        DecidedBy::Schema if case.expect.patch.is_some() => {
            case.expect.compare_patch(&policy_defaults(&case)?)?;
        }
        DecidedBy::Schema | DecidedBy::NotSent | DecidedBy::LookUp => {
            eprintln!("{}: decided by {:?}, checked only with the real API server", file.display(), case.by);
        }
    }
    Ok(())
}

fn outcome(case: &Case, world: Option<&FakeCluster>) -> TestResult<Outcome> {
    if case.kind()? == "Pod" {
        return pod_outcome(case, world.ok_or("a pod needs a world")?);
    }
    let patch = policy_defaults(case)?;
    let mut object = case.object.clone();
    if let Some(object) = &mut object {
        // The API server adds defaults before it calls the validating webhook.
        let patch: json_patch::Patch = serde_json::from_value(json!(patch))?;
        json_patch::patch(object, &patch)?;
    }
    let findings = findings(case, object.as_ref(), world)?;
    let errors = findings.errors().map(ToString::to_string).collect();
    Ok(Outcome { errors, warnings: findings.warnings(), patch })
}

/// Returns the defaults that a policy in the operator's namespace gets.
fn policy_defaults(case: &Case) -> TestResult<Vec<PatchOperation>> {
    let is_ours = case.kind()? == "SriovNetworkNodePolicy" && case.namespace()? == HOME;
    Ok(case.object.as_ref().filter(|_| is_ours).map(patch_policy_defaults).unwrap_or_default())
}

fn findings(case: &Case, object: Option<&Value>, world: Option<&FakeCluster>) -> TestResult<Findings> {
    let home = Installation { namespace: HOME, dev_mode: world.is_some_and(|world| world.dev_mode) };
    match case.kind()? {
        "SriovNetworkNodePolicy" => {
            let (new, old) = versions::<SriovNetworkNodePolicy>(case, object)?;
            let new = new.map(|policy| policy.spec);
            let old = old.map(|policy| policy.spec);
            let request = request(case, new.as_ref(), old.as_ref())?;
            let facts = world.zip(new.as_ref()).map(|(world, spec)| world.policy_facts(request.name, spec));
            Ok(check_policy(&request, &home, facts.as_ref()))
        }
        "SriovNetworkPoolConfig" => {
            let (new, old) = versions::<SriovNetworkPoolConfig>(case, object)?;
            let new = new.as_ref().map(PoolConfigView::from);
            let old = old.as_ref().map(PoolConfigView::from);
            let request = request(case, new.as_ref(), old.as_ref())?;
            let facts = world.zip(new.as_ref().or(old.as_ref()));
            let facts = facts.map(|(world, pool)| world.pool_facts(request.name, pool.spec));
            Ok(check_pool(&request, &home, facts.as_ref()))
        }
        "SriovOperatorConfig" => {
            let (new, old) = versions::<SriovOperatorConfig>(case, object)?;
            let new = new.map(|config| config.spec);
            let old = old.map(|config| config.spec);
            let request = request(case, new.as_ref(), old.as_ref())?;
            let facts = world.map(|world| world.config_facts(new.as_ref()));
            Ok(check_operator_config(&request, &home, facts.as_ref()))
        }
        _ => network_findings(case, object, &home, world),
    }
}

fn network_findings(
    case: &Case,
    object: Option<&Value>,
    home: &Installation<'_>,
    world: Option<&FakeCluster>,
) -> TestResult<Findings> {
    let kind = network_kind(case.kind()?)?;
    let id = NetworkId { kind, namespace: case.namespace()?.to_owned(), name: case.name()?.to_owned() };
    let new = object.map(|object| network_spec(kind, object)).transpose()?;
    let old = case.old.as_ref().map(|object| network_spec(kind, object)).transpose()?;
    let resource = object.map(|object| text(object, "/spec/resourceName")).unwrap_or_default();
    let facts = world.map(|world| world.resource_facts(resource));
    Ok(evaluate(&request(case, new.as_ref(), old.as_ref())?, PartialEq::eq, |request| {
        request.new.map(|spec| check_network(&id, spec, home, facts.as_ref())).unwrap_or_default()
    }))
}

fn network_kind(name: &str) -> TestResult<NetworkKind> {
    let kinds = [NetworkKind::Sriov, NetworkKind::InfiniBand, NetworkKind::Ovs, NetworkKind::Bridge];
    let kind = kinds.into_iter().find(|kind| kind.name() == name);
    Ok(kind.ok_or_else(|| format!("{name} is not a kind of network"))?)
}

fn network_spec(kind: NetworkKind, object: &Value) -> TestResult<NetworkSpec> {
    let spec = object["spec"].clone();
    Ok(match kind {
        NetworkKind::Sriov => NetworkSpec::Sriov(serde_json::from_value(spec)?),
        NetworkKind::InfiniBand => NetworkSpec::InfiniBand(serde_json::from_value(spec)?),
        NetworkKind::Ovs => NetworkSpec::Ovs(serde_json::from_value(spec)?),
        NetworkKind::Bridge => NetworkSpec::Bridge(serde_json::from_value(spec)?),
    })
}

fn pod_outcome(case: &Case, world: &FakeCluster) -> TestResult<Outcome> {
    let pod = case.object.as_ref().ok_or("a pod is created")?;
    let injection = match read_pod_networks(pod, case.namespace()?) {
        Err(bad) => {
            return Ok(Outcome { warnings: vec![bad.to_string()], ..Default::default() });
        }
        Ok(networks) => {
            let nads: TestResult<Vec<_>> = networks
                .into_iter()
                .map(|named| {
                    let NamedNetwork { network, .. } = &named;
                    let nad = world.nads.get(network);
                    let nad = nad.ok_or_else(|| format!("{network} is not in the world (by: look-up?)"))?;
                    Ok((named, nad.clone()))
                })
                .collect();
            inject_resources(pod, &nads?)
        }
    };
    Ok(Outcome { errors: Vec::new(), warnings: injection.warnings, patch: injection.patch })
}

/// Returns the new and the stored object.
fn versions<T: DeserializeOwned>(case: &Case, object: Option<&Value>) -> TestResult<(Option<T>, Option<T>)> {
    let read = |object: Option<&Value>| object.cloned().map(serde_json::from_value).transpose();
    Ok((read(object)?, read(case.old.as_ref())?))
}

fn request<'a, T>(case: &'a Case, new: Option<&'a T>, old: Option<&'a T>) -> TestResult<Request<'a, T>> {
    let operation = case.operation.unwrap_or(Operation::Create);
    Ok(Request { operation, namespace: case.namespace()?, name: case.name()?, new, old })
}

datatest_stable::harness! {
    { test = case, root = "tests/admission/cases", pattern = r"\.yaml$" },
}
