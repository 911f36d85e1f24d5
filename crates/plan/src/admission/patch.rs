//! Changes of an object before it is stored: JSON patches (RFC 6902).

use serde::Serialize;
use serde_json::Value;

use crate::prelude::*;

/// One operation of a JSON patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOperation {
    /// Adds a member to an object, or replaces the one that is there.
    Add {
        /// Where, as a JSON pointer (RFC 6901).
        path: String,
        /// What.
        value: Value,
    },
}

impl PatchOperation {
    /// Adds `value` as the last of `path`, whose words are names of members and places in lists, as they are.
    pub fn add(path: &[&str], value: impl Into<Value>) -> Self {
        let path = path.iter().flat_map(|word| ["/".to_owned(), escaped(word)]).collect();
        Self::Add { path, value: value.into() }
    }
}

fn escaped(word: &str) -> String {
    word.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_written_as_the_rfc_says() {
        let operation = PatchOperation::add(&["spec", "priority"], 99);
        let text = serde_json::to_string(&operation).unwrap();
        assert_eq!(text, r#"{"op":"add","path":"/spec/priority","value":99}"#);
    }

    #[test]
    fn it_reaches_members_of_any_name() {
        for name in ["plain", "openshift.io/a", "a~b", "~1", "/~0", ""] {
            let operation = PatchOperation::add(&["list", "0", name], "new");
            let patch: json_patch::Patch = serde_json::from_value(json!([operation])).unwrap();
            let mut object = json!({"list": [{"other": 1}]});
            json_patch::patch(&mut object, &patch).unwrap();
            assert_eq!(object, json!({"list": [{"other": 1, name: "new"}]}));
        }
    }
}
