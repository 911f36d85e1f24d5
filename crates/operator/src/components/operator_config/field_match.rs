//! Comparison of a stored object with its desired fields.

use serde_json::Value;

/// Returns whether `current` has all fields of `desired`. Other fields are defaults, or belong to other field managers.
/// A list of plain values, such as a command line, is compared as a whole.
pub(crate) fn has_fields(current: &Value, desired: &Value) -> bool {
    match (current, desired) {
        (Value::Object(current), Value::Object(desired)) => desired
            .iter()
            .all(|(key, value)| current.get(key).is_some_and(|current| has_fields(current, value))),
        (Value::Array(current), Value::Array(desired)) if desired.iter().any(Value::is_object) => {
            desired.iter().all(|value| current.iter().any(|current| has_fields(current, value)))
        }
        (current, desired) => current == desired,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn additional_fields_are_no_difference_but_missing_ones_are() {
        let desired = json!({ "a": 1, "list": [{ "name": "x", "value": "1" }] });
        let more =
            json!({ "a": 1, "b": 2, "list": [{ "name": "y" }, { "name": "x", "value": "1", "z": 0 }] });
        assert!(has_fields(&more, &desired));
        assert!(!has_fields(&json!({ "a": 2, "list": [{ "name": "x", "value": "1" }] }), &desired));
        assert!(!has_fields(&json!({ "a": 1, "list": [{ "name": "x", "value": "2" }] }), &desired));
        assert!(!has_fields(&json!({ "a": 1 }), &desired));
    }

    #[test]
    fn a_list_of_plain_values_is_compared_as_a_whole() {
        let desired = json!({ "args": ["agent", "--host-root"] });
        assert!(has_fields(&desired, &desired));
        assert!(!has_fields(&json!({ "args": ["agent", "--host-root", "--more"] }), &desired));
        assert!(!has_fields(&json!({ "args": ["--host-root", "agent"] }), &desired));
    }
}
