//! JSON patches (RFC 6902) of objects before they are stored.

use serde::Serialize;
use serde_json::Value;

use crate::prelude::*;

/// One operation of a JSON patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOperation {
    /// Adds a member to an object, or replaces it.
    Add {
        /// JSON pointer (RFC 6901) of the member.
        path: String,
        /// Value of the member.
        value: Value,
    },
}

impl PatchOperation {
    /// Returns an operation that adds `value` at `path`, given as unescaped member names and list indexes.
    pub fn add(path: &[&str], value: impl Into<Value>) -> Self {
        let path = path.iter().flat_map(|word| ["/".to_owned(), escape(word)]).collect();
        Self::Add { path, value: value.into() }
    }
}

fn escape(word: &str) -> String {
    word.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_are_written_as_in_the_rfc() {
        let operation = PatchOperation::add(&["spec", "priority"], 99);
        let text = serde_json::to_string(&operation).unwrap();
        assert_eq!(text, r#"{"op":"add","path":"/spec/priority","value":99}"#);
    }

    #[test]
    fn members_of_any_name_are_reached() {
        for name in ["plain", "openshift.io/a", "a~b", "~1", "/~0", ""] {
            let operation = PatchOperation::add(&["list", "0", name], "new");
            let patch: json_patch::Patch = serde_json::from_value(json!([operation])).unwrap();
            let mut object = json!({"list": [{"other": 1}]});
            json_patch::patch(&mut object, &patch).unwrap();
            assert_eq!(object, json!({"list": [{"other": 1, name: "new"}]}));
        }
    }
}
