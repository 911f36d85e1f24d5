//! Status of objects: conditions, and an Event when they change.

use std::fmt::Debug;

use k8s_openapi::jiff::Timestamp;
use kube::core::Resource;
use kube::runtime::events::EventType;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::conditions::{ConditionUpdate, DEGRADED, LIMIT, READY, update_conditions};
use vfleet_api::meta::Condition;

use crate::events::EventRecorder;
use crate::write::{WriteError, Writer};

/// Object whose status is written, as last read.
pub struct StatusSubject<'a, K> {
    pub api: &'a Api<K>,
    pub object: &'a K,
    /// Conditions in the status of `object`.
    pub conditions: &'a [Condition],
    /// True if the rest of the status is up to date.
    pub rest_is_same: bool,
}

/// Writes `updates` as conditions, and the `rest` of the status (a JSON object), unless the status is up to date.
/// Records an Event for each important change.
pub async fn report<K>(
    writer: &Writer,
    recorder: &EventRecorder,
    subject: &StatusSubject<'_, K>,
    updates: &[ConditionUpdate],
    rest: Value,
) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let old = select_own(subject.conditions, updates);
    let new = update_conditions(&old, updates, subject.object.meta().generation, Timestamp::now());
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
    writer.apply_status(subject.api, &name, &object).await?;
    record_changes(recorder, subject, &old, updates).await;
    Ok(())
}

/// Returns the conditions that this writer owns. Server-side apply leaves those of other writers alone if they are not
/// sent.
fn select_own(conditions: &[Condition], updates: &[ConditionUpdate]) -> Vec<Condition> {
    let is_own = |condition: &&Condition| updates.iter().any(|update| update.type_ == condition.type_);
    conditions.iter().filter(is_own).cloned().collect()
}

async fn record_changes<K>(
    recorder: &EventRecorder,
    subject: &StatusSubject<'_, K>,
    old: &[Condition],
    updates: &[ConditionUpdate],
) where
    K: Resource<DynamicType = ()>,
{
    let object = subject.object.object_ref(&());
    for (type_, update) in select_events(old, updates) {
        recorder.record(&object, type_, "Report", update.reason, &update.message).await;
    }
}

/// Returns the changes that are recorded as Events: those of Ready, and those of the limit of a pool when it becomes
/// false, or true again.
fn select_events<'a>(
    old: &[Condition],
    updates: &'a [ConditionUpdate],
) -> Vec<(EventType, &'a ConditionUpdate)> {
    let previous = |update: &ConditionUpdate| old.iter().find(|condition| condition.type_ == update.type_);
    let is_changed = |update: &&ConditionUpdate| {
        let status = if update.status { "True" } else { "False" };
        previous(update).is_none_or(|previous| previous.status != status || previous.reason != update.reason)
    };
    // Not ready because of work in progress is no Warning. An object without a Degraded condition is ready or failed.
    let degraded = updates.iter().find(|update| update.type_ == DEGRADED).map(|degraded| degraded.status);
    let type_of = |update: &ConditionUpdate| match update.type_ {
        READY if degraded.unwrap_or(!update.status) => Some(EventType::Warning),
        READY => Some(EventType::Normal),
        LIMIT if !update.status => Some(EventType::Warning),
        LIMIT if previous(update).is_some_and(|previous| previous.status == "False") => {
            Some(EventType::Normal)
        }
        _ => None,
    };
    updates.iter().filter(is_changed).filter_map(|update| Some((type_of(update)?, update))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(status: bool, reason: &'static str) -> ConditionUpdate {
        ConditionUpdate { type_: LIMIT, status, reason, message: String::new() }
    }

    #[test]
    fn a_limit_gets_an_event_when_it_is_invalid_and_when_it_is_corrected() {
        let events = |old: &[Condition], update: &ConditionUpdate| -> Vec<_> {
            select_events(old, std::slice::from_ref(update)).iter().map(|(type_, _)| *type_).collect()
        };
        let conditions = |update: &ConditionUpdate| {
            update_conditions(&[], std::slice::from_ref(update), None, Timestamp::UNIX_EPOCH)
        };
        let (given, missing) = (limit(true, "LimitSet"), limit(false, "NoLimitSet"));
        assert_eq!(events(&[], &given), []);
        assert_eq!(events(&[], &missing), [EventType::Warning]);
        assert_eq!(events(&conditions(&missing), &missing), []);
        assert_eq!(events(&conditions(&missing), &limit(false, "MaxUnavailableZero")), [EventType::Warning]);
        assert_eq!(events(&conditions(&missing), &given), [EventType::Normal]);
        assert_eq!(events(&conditions(&given), &limit(true, "OffloadOnly")), []);
    }
}
