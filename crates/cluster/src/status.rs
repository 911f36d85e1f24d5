//! What is said about an object: its conditions, and an Event when they change.

use std::fmt::Debug;

use k8s_openapi::jiff::Timestamp;
use kube::core::Resource;
use kube::runtime::events::EventType;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vfleet_api::conditions::{DEGRADED, LIMIT, READY, Verdict, updated};
use vfleet_api::meta::Condition;

use crate::events::Announcer;
use crate::write::{WriteError, Writer};

/// An object that is reported on, as last seen.
pub struct Subject<'a, K> {
    pub api: &'a Api<K>,
    pub object: &'a K,
    /// Its conditions.
    pub conditions: &'a [Condition],
    /// Whether the rest of its status is as it shall be.
    pub rest_is_same: bool,
}

/// Writes `verdicts`, and the `rest` of the status (a JSON object), unless all of it is there already; announces what
/// changed.
pub async fn report<K>(
    writer: &Writer,
    announcer: &Announcer,
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
    writer.apply_status(subject.api, &name, &object).await?;
    announce_change(announcer, subject, &old, verdicts).await;
    Ok(())
}

/// In server-side apply, conditions of other writers stay theirs by not being sent.
fn ours(conditions: &[Condition], verdicts: &[Verdict]) -> Vec<Condition> {
    let is_ours = |condition: &&Condition| verdicts.iter().any(|verdict| verdict.type_ == condition.type_);
    conditions.iter().filter(is_ours).cloned().collect()
}

async fn announce_change<K>(
    announcer: &Announcer,
    subject: &Subject<'_, K>,
    old: &[Condition],
    verdicts: &[Verdict],
) where
    K: Resource<DynamicType = ()>,
{
    let about = subject.object.object_ref(&());
    for (type_, verdict) in worth_an_event(old, verdicts) {
        announcer.announce(&about, type_, "Report", verdict.reason, &verdict.message).await;
    }
}

/// A Ready condition that changed, and one about a limit that is not as it should be, or is again.
fn worth_an_event<'a>(old: &[Condition], verdicts: &'a [Verdict]) -> Vec<(EventType, &'a Verdict)> {
    let known = |verdict: &Verdict| old.iter().find(|condition| condition.type_ == verdict.type_);
    let is_news = |verdict: &&Verdict| {
        let status = if verdict.holds { "True" } else { "False" };
        known(verdict).is_none_or(|known| known.status != status || known.reason != verdict.reason)
    };
    // Work that goes on is no cause for alarm; what has no Degraded condition is either ready or in trouble.
    let degraded = verdicts.iter().find(|verdict| verdict.type_ == DEGRADED).map(|degraded| degraded.holds);
    let type_of = |verdict: &Verdict| match verdict.type_ {
        READY if degraded.unwrap_or(!verdict.holds) => Some(EventType::Warning),
        READY => Some(EventType::Normal),
        LIMIT if !verdict.holds => Some(EventType::Warning),
        LIMIT if known(verdict).is_some_and(|known| known.status == "False") => Some(EventType::Normal),
        _ => None,
    };
    verdicts.iter().filter(is_news).filter_map(|verdict| Some((type_of(verdict)?, verdict))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(holds: bool, reason: &'static str) -> Verdict {
        Verdict { type_: LIMIT, holds, reason, message: String::new() }
    }

    #[test]
    fn a_limit_is_worth_an_event_when_it_is_odd_and_when_it_is_put_right() {
        let events = |old: &[Condition], verdict: &Verdict| -> Vec<_> {
            worth_an_event(old, std::slice::from_ref(verdict)).iter().map(|(type_, _)| *type_).collect()
        };
        let conditions =
            |verdict: &Verdict| updated(&[], std::slice::from_ref(verdict), None, Timestamp::UNIX_EPOCH);
        let (given, missing) = (limit(true, "Given"), limit(false, "NoLimitGiven"));
        assert_eq!(events(&[], &given), []);
        assert_eq!(events(&[], &missing), [EventType::Warning]);
        assert_eq!(events(&conditions(&missing), &missing), []);
        assert_eq!(events(&conditions(&missing), &limit(false, "NeverDrained")), [EventType::Warning]);
        assert_eq!(events(&conditions(&missing), &given), [EventType::Normal]);
        assert_eq!(events(&conditions(&given), &limit(true, "OffloadOnly")), []);
    }
}
