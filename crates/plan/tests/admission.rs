//! Objects at admission: admitted or refused, with these words. Add a file to `admission/cases/` to add a test.
//!
//! The same files are read twice: here, where rules are called with a made-up cluster and nothing else runs, and in
//! `tests/admission.rs` at the top of the repository, where the real API server asks the real operator. A case has:
//!
//! - `world`: the cluster, a file of `admission/worlds/`. Absent: nothing is known of it, as in an operator that has just
//!   started. No such case can be shown to the real API server.
//! - `also`: objects that are in that world besides, or in place of the one of their kind and name.
//! - `operation`: CREATE (when absent), UPDATE or DELETE.
//! - `object`: what somebody is about to write, as users do. Without `metadata.namespace` it is in the operator's, which
//!   has a name of its own in each run: no expected text may contain it.
//! - `old`: what is there, for UPDATE and DELETE.
//! - `by`: who has the last word. `ours` (when absent): the rules. `schema`: the API server refuses it before the rules are
//!   asked, with `errors` in its own words, but after its defaults were added, so that here only `patch` counts.
//!   `not-sent`: the API server does not ask. `look-up`: the operator asks the API server back.
//! - `expect`: `admitted`; `errors` and `warnings`, each with its `field` (exactly) and parts of its text (`contains`), in
//!   any order, and no others; `patch`, when it counts: all operations, in their order.
//!
//! A world has `objects`, as the API server would give them (a node state's `status` is what its agent reported), and may
//! have `devMode`. With `like` it begins as another world, `without` (Kind/name) some of that one's objects.

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
    check_operator_config, check_policy, check_pool, inject, judge, networks_of_pod, policy_defaults,
};
use vfleet_plan::network::{NetworkId, NetworkKind, NetworkSpec};

use case::{By, Case, Outcome};
use world::{HOME, World, text};

type TestResult<T = ()> = Result<T, Box<dyn Error>>;

fn case(file: &Path) -> TestResult {
    let case = Case::read(file)?;
    let worlds = file.with_file_name("../worlds");
    let world = case.world.as_ref().map(|name| World::read(&worlds, name, &case.also)).transpose()?;
    match case.by {
        By::Ours => case.expect.compare(&outcome(&case, world.as_ref())?)?,
        By::Schema if case.expect.patch.is_some() => {
            case.expect.compare_patch(&defaults_of(&case)?)?;
        }
        By::Schema | By::NotSent | By::LookUp => {
            eprintln!("{}: by {:?}, left to the real API server", file.display(), case.by);
        }
    }
    Ok(())
}

fn outcome(case: &Case, world: Option<&World>) -> TestResult<Outcome> {
    if case.kind()? == "Pod" {
        return pod_outcome(case, world.ok_or("a pod needs a world")?);
    }
    let patch = defaults_of(case)?;
    let mut object = case.object.clone();
    if let Some(object) = &mut object {
        // The API server adds defaults before it asks for a verdict.
        let patch: json_patch::Patch = serde_json::from_value(json!(patch))?;
        json_patch::patch(object, &patch)?;
    }
    let findings = findings(case, object.as_ref(), world)?;
    let errors = findings.errors().map(ToString::to_string).collect();
    Ok(Outcome { errors, warnings: findings.warnings(), patch })
}

/// What a policy in the operator's namespace is given.
fn defaults_of(case: &Case) -> TestResult<Vec<PatchOperation>> {
    let is_ours = case.kind()? == "SriovNetworkNodePolicy" && case.namespace()? == HOME;
    Ok(case.object.as_ref().filter(|_| is_ours).map(policy_defaults).unwrap_or_default())
}

fn findings(case: &Case, object: Option<&Value>, world: Option<&World>) -> TestResult<Findings> {
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
    world: Option<&World>,
) -> TestResult<Findings> {
    let kind = network_kind(case.kind()?)?;
    let id = NetworkId { kind, namespace: case.namespace()?.to_owned(), name: case.name()?.to_owned() };
    let new = object.map(|object| network_spec(kind, object)).transpose()?;
    let old = case.old.as_ref().map(|object| network_spec(kind, object)).transpose()?;
    let resource = object.map(|object| text(object, "/spec/resourceName")).unwrap_or_default();
    let facts = world.map(|world| world.resource_facts(resource));
    Ok(judge(&request(case, new.as_ref(), old.as_ref())?, PartialEq::eq, |request| {
        request.new.map(|spec| check_network(&id, spec, home, facts.as_ref())).unwrap_or_default()
    }))
}

fn network_kind(name: &str) -> TestResult<NetworkKind> {
    let kinds = [NetworkKind::Sriov, NetworkKind::InfiniBand, NetworkKind::Ovs, NetworkKind::Bridge];
    let kind = kinds.into_iter().find(|kind| kind.name() == name);
    Ok(kind.ok_or_else(|| format!("{name} is no kind that is looked at"))?)
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

fn pod_outcome(case: &Case, world: &World) -> TestResult<Outcome> {
    let pod = case.object.as_ref().ok_or("a pod is created")?;
    let injection = match networks_of_pod(pod, case.namespace()?) {
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
            inject(pod, &nads?)
        }
    };
    Ok(Outcome { errors: Vec::new(), warnings: injection.warnings, patch: injection.patch })
}

/// The object as it shall be, and as it is.
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
