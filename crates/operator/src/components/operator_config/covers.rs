//! Whether an object is as we want it.

use serde_json::Value;

/// Whether `found` has all of `wanted`. What else it has is the API server's, or somebody else's. A list of plain values,
/// such as a command line, is one value: it has an owner as a whole, and one word more means something else.
pub(crate) fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|found| covers(found, value)))
        }
        (Value::Array(found), Value::Array(wanted)) if wanted.iter().any(Value::is_object) => {
            wanted.iter().all(|value| found.iter().any(|found| covers(found, value)))
        }
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_and_additions_of_others_are_no_difference_but_lacking_something_is() {
        let wanted = json!({ "a": 1, "list": [{ "name": "x", "value": "1" }] });
        let more =
            json!({ "a": 1, "b": 2, "list": [{ "name": "y" }, { "name": "x", "value": "1", "z": 0 }] });
        assert!(covers(&more, &wanted));
        assert!(!covers(&json!({ "a": 2, "list": [{ "name": "x", "value": "1" }] }), &wanted));
        assert!(!covers(&json!({ "a": 1, "list": [{ "name": "x", "value": "2" }] }), &wanted));
        assert!(!covers(&json!({ "a": 1 }), &wanted));
    }

    #[test]
    fn a_list_of_words_has_these_and_no_others_in_this_order() {
        let wanted = json!({ "args": ["agent", "--host-root"] });
        assert!(covers(&wanted, &wanted));
        assert!(!covers(&json!({ "args": ["agent", "--host-root", "--more"] }), &wanted));
        assert!(!covers(&json!({ "args": ["--host-root", "agent"] }), &wanted));
    }
}
