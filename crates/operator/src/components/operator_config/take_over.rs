//! Take-over of objects of the Go operator.
//!
//! Server-side apply removes a field only when no field manager owns it any more. The Go operator does not run any more
//! and would own its fields forever. Its ownership is therefore transferred before the first apply, which then removes
//! the fields that are not desired.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::Value;
use vfleet_api::keys::{GO_FIELD_MANAGER, OPERATOR_FIELD_MANAGER};

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";

/// Returns the field managers of an object with the Go operator replaced by this operator. `None` if the Go operator
/// owns no field.
pub(super) fn replace_go_manager(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let (go_entries, mut others): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_go_operator);
    let first = go_entries.first()?.clone();
    let own = others.iter().position(is_own).map(|at| others.remove(at));
    let mut merged = own.unwrap_or_else(|| ManagedFieldsEntry {
        manager: Some(OPERATOR_FIELD_MANAGER.to_owned()),
        operation: Some(APPLY.to_owned()),
        fields_v1: None,
        ..first
    });
    for entry in go_entries {
        merged.fields_v1 = match (merged.fields_v1, entry.fields_v1) {
            (Some(FieldsV1(own)), Some(FieldsV1(other))) => Some(FieldsV1(union(own, other))),
            (own, other) => own.or(other),
        };
    }
    others.push(merged);
    Some(others)
}

fn is_go_operator(entry: &ManagedFieldsEntry) -> bool {
    has_manager(entry, GO_FIELD_MANAGER, UPDATE)
}

fn is_own(entry: &ManagedFieldsEntry) -> bool {
    has_manager(entry, OPERATOR_FIELD_MANAGER, APPLY)
}

fn has_manager(entry: &ManagedFieldsEntry, manager: &str, operation: &str) -> bool {
    entry.manager.as_deref() == Some(manager)
        && entry.operation.as_deref() == Some(operation)
        && entry.subresource.as_deref().is_none_or(str::is_empty)
}

/// Returns the union of two field sets, which are trees of JSON objects.
fn union(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(mut a), Value::Object(b)) => {
            for (field, children) in b {
                let current = a.remove(&field).unwrap_or_else(|| Value::Object(serde_json::Map::new()));
                a.insert(field, union(current, children));
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
    fn fields_of_the_go_operator_are_taken_over_and_others_stay() {
        let user = entry("kubectl-edit", UPDATE, json!({ "f:metadata": { "f:labels": { "f:x": {} } } }));
        let mut status = entry(GO_FIELD_MANAGER, UPDATE, json!({ "f:status": {} }));
        status.subresource = Some("status".to_owned());
        let go = entry(GO_FIELD_MANAGER, UPDATE, json!({ "f:spec": { "f:a": {}, "f:b": { ".": {} } } }));
        let own = entry(OPERATOR_FIELD_MANAGER, APPLY, json!({ "f:spec": { "f:b": { "f:c": {} } } }));

        let alone = replace_go_manager(&[user.clone(), go.clone(), status.clone()]).unwrap();
        let theirs =
            entry(OPERATOR_FIELD_MANAGER, APPLY, json!({ "f:spec": { "f:a": {}, "f:b": { ".": {} } } }));
        assert_eq!(alone, [user.clone(), status.clone(), theirs]);

        let merged = replace_go_manager(&[own.clone(), go]).unwrap();
        let both = json!({ "f:spec": { "f:a": {}, "f:b": { ".": {}, "f:c": {} } } });
        assert_eq!(merged, [entry(OPERATOR_FIELD_MANAGER, APPLY, both)]);

        assert_eq!(replace_go_manager(&[user, status, own]), None);
    }
}
