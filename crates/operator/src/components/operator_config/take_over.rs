//! Taking over objects of the Go operator.
//!
//! In server-side apply, a field goes away when everybody who owned it lets it go. The Go operator never will: it is not
//! there any more. So its part becomes ours before we first apply, and what we do not want goes with that.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::Value;
use vfleet_api::keys::{GO_FIELD_MANAGER, OPERATOR_FIELD_MANAGER};

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";

/// The owners of an object's fields with us in the Go operator's place. `None` when it owns nothing there.
pub(super) fn with_us_as_owner(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let (theirs, mut others): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_theirs);
    let first = theirs.first()?.clone();
    let ours = others.iter().position(is_ours).map(|at| others.remove(at));
    let mut merged = ours.unwrap_or_else(|| ManagedFieldsEntry {
        manager: Some(OPERATOR_FIELD_MANAGER.to_owned()),
        operation: Some(APPLY.to_owned()),
        fields_v1: None,
        ..first
    });
    for entry in theirs {
        merged.fields_v1 = match (merged.fields_v1, entry.fields_v1) {
            (Some(FieldsV1(ours)), Some(FieldsV1(theirs))) => Some(FieldsV1(union(ours, theirs))),
            (ours, theirs) => ours.or(theirs),
        };
    }
    others.push(merged);
    Some(others)
}

fn is_theirs(entry: &ManagedFieldsEntry) -> bool {
    is_by(entry, GO_FIELD_MANAGER, UPDATE)
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    is_by(entry, OPERATOR_FIELD_MANAGER, APPLY)
}

fn is_by(entry: &ManagedFieldsEntry, manager: &str, operation: &str) -> bool {
    entry.manager.as_deref() == Some(manager)
        && entry.operation.as_deref() == Some(operation)
        && entry.subresource.as_deref().is_none_or(str::is_empty)
}

/// Sets of fields are trees of objects.
fn union(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(mut a), Value::Object(b)) => {
            for (field, below) in b {
                let known = a.remove(&field).unwrap_or_else(|| Value::Object(serde_json::Map::new()));
                a.insert(field, union(known, below));
            }
            Value::Object(a)
        }
        (a, _) => a,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            api_version: Some("apps/v1".to_owned()),
            fields_type: Some("FieldsV1".to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..Default::default()
        }
    }

    #[test]
    fn what_is_the_go_operators_becomes_ours_and_the_rest_stays() {
        let user = entry("kubectl-edit", UPDATE, json!({ "f:metadata": { "f:labels": { "f:x": {} } } }));
        let mut status = entry(GO_FIELD_MANAGER, UPDATE, json!({ "f:status": {} }));
        status.subresource = Some("status".to_owned());
        let go = entry(GO_FIELD_MANAGER, UPDATE, json!({ "f:spec": { "f:a": {}, "f:b": { ".": {} } } }));
        let ours = entry(OPERATOR_FIELD_MANAGER, APPLY, json!({ "f:spec": { "f:b": { "f:c": {} } } }));

        let alone = with_us_as_owner(&[user.clone(), go.clone(), status.clone()]).unwrap();
        let theirs =
            entry(OPERATOR_FIELD_MANAGER, APPLY, json!({ "f:spec": { "f:a": {}, "f:b": { ".": {} } } }));
        assert_eq!(alone, [user.clone(), status.clone(), theirs]);

        let merged = with_us_as_owner(&[ours.clone(), go]).unwrap();
        let both = json!({ "f:spec": { "f:a": {}, "f:b": { ".": {}, "f:c": {} } } });
        assert_eq!(merged, [entry(OPERATOR_FIELD_MANAGER, APPLY, both)]);

        assert_eq!(with_us_as_owner(&[user, status, ours]), None);
    }
}
