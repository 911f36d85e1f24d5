//! What is said about an object: its conditions, and an Event when they change.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::core::Resource;
use kube::runtime::events::EventType;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::conditions::{DEGRADED, READY, Verdict, updated};

use crate::context::Context;
use crate::patch::{WriteError, Writer};

/// An object that is reported on, as last seen.
pub(crate) struct Subject<'a, K> {
    pub(crate) api: &'a Api<K>,
    pub(crate) object: &'a K,
    /// Its conditions.
    pub(crate) conditions: &'a [Condition],
    /// Whether the rest of its status is as it shall be.
    pub(crate) rest_is_same: bool,
}

/// Writes `verdicts`, and the `rest` of the status (a JSON object), unless all of it is there already; announces a Ready
/// condition that changed.
pub(crate) async fn report<K>(
    context: &Context,
    subject: &Subject<'_, K>,
    verdicts: &[Verdict],
    rest: Value,
) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let old = ours(subject.conditions, verdicts);
    let new = updated(&old, verdicts, subject.object.meta().generation, Timestamp::now());
    if old == new && subject.rest_is_same {
        return Ok(());
    }
    let mut status = rest;
    status["conditions"] = json!(new);
    let name = subject.object.name_any();
    let object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": name },
        "status": status,
    });
    Writer::new(context.leadership.clone()).apply_status(subject.api, &name, &object).await?;
    announce_change(context, subject, &old, verdicts).await;
    Ok(())
}

/// In server-side apply, conditions of other writers stay theirs by not being sent.
fn ours(conditions: &[Condition], verdicts: &[Verdict]) -> Vec<Condition> {
    let is_ours = |condition: &&Condition| verdicts.iter().any(|verdict| verdict.type_ == condition.type_);
    conditions.iter().filter(is_ours).cloned().collect()
}

async fn announce_change<K>(
    context: &Context,
    subject: &Subject<'_, K>,
    old: &[Condition],
    verdicts: &[Verdict],
) where
    K: Resource<DynamicType = ()>,
{
    let Some(ready) = verdicts.iter().find(|verdict| verdict.type_ == READY) else { return };
    let known = old.iter().find(|condition| condition.type_ == READY);
    let status = if ready.holds { "True" } else { "False" };
    if known.is_some_and(|known| known.status == status && known.reason == ready.reason) {
        return;
    }
    let degraded = verdicts.iter().find(|verdict| verdict.type_ == DEGRADED);
    // Work that goes on is no cause for alarm; what has no Degraded condition is either ready or in trouble.
    let is_bad = degraded.map_or(!ready.holds, |degraded| degraded.holds);
    let type_ = if is_bad { EventType::Warning } else { EventType::Normal };
    let about = subject.object.object_ref(&());
    context.announcer.announce(&about, type_, "Report", ready.reason, &ready.message).await;
}
