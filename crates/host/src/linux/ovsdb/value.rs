//! Values of OVSDB columns in JSON (RFC 7047, section 5.1).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Encodes the UUID of a row.
pub(in crate::linux) fn uuid(uuid: &str) -> Value {
    json!(["uuid", uuid])
}

/// Encodes the name of a row that the same transaction inserts.
pub(in crate::linux) fn named_uuid(name: &str) -> Value {
    json!(["named-uuid", name])
}

/// Encodes a set.
pub(in crate::linux) fn set(members: impl IntoIterator<Item = Value>) -> Value {
    json!(["set", members.into_iter().collect::<Vec<_>>()])
}

/// Encodes a column that may be empty.
pub(in crate::linux) fn optional<T: Into<Value>>(value: Option<T>) -> Value {
    set(value.map(Into::into))
}

/// Encodes a map of texts.
pub(in crate::linux) fn map(entries: &BTreeMap<String, String>) -> Value {
    json!(["map", entries.iter().collect::<Vec<_>>()])
}

/// Returns the tagged content of an array such as `["set", [...]]`.
fn tagged<'v>(value: &'v Value, tag: &str) -> Option<&'v Value> {
    match value.as_array()?.as_slice() {
        [found, content] if found == tag => Some(content),
        _ => None,
    }
}

/// Returns the members of a set. A set with one member may be encoded as that member.
fn members(value: &Value) -> Vec<&Value> {
    match tagged(value, "set").and_then(Value::as_array) {
        Some(members) => members.iter().collect(),
        None => vec![value],
    }
}

/// Parses a UUID.
pub(in crate::linux) fn parse_uuid(value: &Value) -> Option<String> {
    tagged(value, "uuid")?.as_str().map(str::to_owned)
}

/// Parses a set of UUIDs.
pub(in crate::linux) fn parse_uuids(value: &Value) -> Option<BTreeSet<String>> {
    parse_set(value, parse_uuid)
}

/// Parses a set.
pub(in crate::linux) fn parse_set<T: Ord>(
    value: &Value,
    parse: impl Fn(&Value) -> Option<T>,
) -> Option<BTreeSet<T>> {
    members(value).into_iter().map(parse).collect()
}

/// Parses a map of texts.
pub(in crate::linux) fn parse_map(value: &Value) -> Option<BTreeMap<String, String>> {
    let entry = |pair: &Value| match pair.as_array()?.as_slice() {
        [key, value] => Some((key.as_str()?.to_owned(), value.as_str()?.to_owned())),
        _ => None,
    };
    tagged(value, "map")?.as_array()?.iter().map(entry).collect()
}

/// Value of a column has another type than expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::linux) struct WrongType;

/// Parses a column that may be empty.
pub(in crate::linux) fn parse_optional<T>(
    value: &Value,
    parse: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, WrongType> {
    match members(value).as_slice() {
        [] => Ok(None),
        [one] => parse(one).map(Some).ok_or(WrongType),
        _ => Err(WrongType),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_with_one_member_has_two_encodings() {
        let one = json!(["uuid", "u"]);
        assert_eq!(parse_uuids(&one), Some(["u".to_owned()].into()));
        assert_eq!(parse_uuids(&json!(["set", [one]])), Some(["u".to_owned()].into()));
        assert_eq!(parse_uuids(&json!(["set", []])), Some(BTreeSet::new()));
        assert_eq!(parse_uuids(&json!("u")), None);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        assert_eq!(parse_optional(&json!("a"), text), Ok(Some("a".to_owned())));
        assert_eq!(parse_optional(&json!(["set", []]), text), Ok(None));
        assert_eq!(parse_optional(&json!(["set", ["a", "b"]]), text), Err(WrongType));
        assert_eq!(parse_optional(&json!(1), text), Err(WrongType));
    }

    #[test]
    fn a_map_is_parsed_as_it_was_encoded() {
        let entries = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())].into();
        assert_eq!(parse_map(&map(&entries)), Some(entries));
        for wrong in [json!([]), json!({}), json!(["map", [["a"]]]), json!(["map", [["a", 1]]])] {
            assert_eq!(parse_map(&wrong), None, "{wrong}");
        }
    }
}
