//! Parser of the annotations that name networks, in short form or in JSON.

use core::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::{NamedNetwork, NetworkRef};
use crate::prelude::*;

/// Number of networks that one annotation may name.
const MAX_NETWORKS: usize = 256;

/// Length of an object name.
const MAX_NAME_LENGTH: usize = 253;

/// Error of an annotation's value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum AnnotationError {
    #[error("not a JSON list of objects with a name: {0}")]
    Json(String),
    #[error("{0:?} is not of the form name, namespace/name or namespace/name@interface")]
    Word(String),
    #[error("{0:?} is not a valid name of a network or namespace")]
    Name(String),
    #[error("{0} networks are named, but at most {MAX_NETWORKS} are allowed")]
    TooMany(usize),
}

/// Network in JSON. Other keys are ignored.
struct NetworkElement {
    name: String,
    namespace: Option<String>,
}

/// Reads like Multus, which is written in Go: keys are case-insensitive, the last of several equal keys counts, and
/// null is ignored.
impl<'de> Deserialize<'de> for NetworkElement {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        text.deserialize_map(NetworkElementVisitor)
    }
}

/// Deserializer of one network in a JSON annotation.
struct NetworkElementVisitor;

impl<'de> Visitor<'de> for NetworkElementVisitor {
    type Value = NetworkElement;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<NetworkElement, A::Error> {
        let (mut name, mut namespace) = (None, None);
        while let Some(key) = members.next_key::<String>()? {
            if key.eq_ignore_ascii_case("name") {
                name = members.next_value::<Option<String>>()?.or(name);
            } else if key.eq_ignore_ascii_case("namespace") {
                namespace = members.next_value::<Option<String>>()?.or(namespace);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
        Ok(NetworkElement { name, namespace })
    }
}

/// Namespace of a network that is named without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct DefaultNamespace<'a> {
    /// Namespace of the pod.
    pub(super) namespace: &'a str,
    /// True if the network may be in another namespace instead.
    pub(super) may_be_elsewhere: bool,
}

/// Returns the networks that `text` names, in their order.
pub(super) fn parse_networks(
    text: &str,
    default: DefaultNamespace<'_>,
) -> Result<Vec<NamedNetwork>, AnnotationError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let networks = if text.contains(['[', '{', '"']) {
        parse_json(text, default)?
    } else {
        text.split(',').map(|word| parse_short_form(word.trim(), default)).collect::<Result<Vec<_>, _>>()?
    };
    if networks.len() > MAX_NETWORKS {
        return Err(AnnotationError::TooMany(networks.len()));
    }
    Ok(networks)
}

fn parse_json(text: &str, default: DefaultNamespace<'_>) -> Result<Vec<NamedNetwork>, AnnotationError> {
    let elements: Vec<NetworkElement> =
        serde_json::from_str(text).map_err(|error| AnnotationError::Json(error.to_string()))?;
    elements
        .into_iter()
        .map(|NetworkElement { name, namespace }| resolve_network(namespace.as_deref(), &name, default))
        .collect()
}

/// Parses `[namespace/]name[@interface]`, with blanks in between like Multus.
fn parse_short_form(word: &str, default: DefaultNamespace<'_>) -> Result<NamedNetwork, AnnotationError> {
    let (network_word, interface) = word.split_once('@').unwrap_or((word, ""));
    let (namespace, name) = match network_word.split_once('/') {
        Some((namespace, name)) => (Some(namespace.trim()), name.trim()),
        None => (None, network_word.trim()),
    };
    if name.is_empty() || name.contains('/') || interface.contains(['@', '/']) {
        return Err(AnnotationError::Word(word.to_owned()));
    }
    resolve_network(namespace, name, default)
}

/// Returns the network. An empty namespace means the default.
fn resolve_network(
    namespace: Option<&str>,
    name: &str,
    default: DefaultNamespace<'_>,
) -> Result<NamedNetwork, AnnotationError> {
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    let may_be_elsewhere = namespace.is_none() && default.may_be_elsewhere;
    let namespace = namespace.unwrap_or(default.namespace);
    for word in [namespace, name] {
        if !is_object_name(word) {
            return Err(AnnotationError::Name(word.to_owned()));
        }
    }
    let network = NetworkRef { namespace: namespace.to_owned(), name: name.to_owned() };
    Ok(NamedNetwork { network, may_be_elsewhere })
}

/// Returns whether Kubernetes accepts the name.
fn is_object_name(word: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = word.as_bytes();
    word.len() <= MAX_NAME_LENGTH
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|byte| is_end(byte) || b"-.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<String>, AnnotationError> {
        let default = DefaultNamespace { namespace: "own", may_be_elsewhere: false };
        Ok(parse_networks(text, default)?.iter().map(|named| named.network.to_string()).collect())
    }

    #[test]
    fn only_a_network_without_a_namespace_may_be_elsewhere() {
        let default = DefaultNamespace { namespace: "own", may_be_elsewhere: true };
        for (text, expected) in [
            ("a", true),
            ("a@eth0", true),
            ("own/a", false),
            ("/a", true),
            (r#"[{"name":"a"}]"#, true),
            (r#"[{"name":"a","namespace":""}]"#, true),
            (r#"[{"name":"a","namespace":"own"}]"#, false),
        ] {
            let network = NetworkRef { namespace: "own".to_owned(), name: "a".to_owned() };
            let named = NamedNetwork { network, may_be_elsewhere: expected };
            assert_eq!(parse_networks(text, default), Ok(vec![named]), "{text}");
        }
    }

    /// The namespace becomes part of a URL path.
    #[test]
    fn the_namespace_of_the_pod_is_checked_too() {
        let default = DefaultNamespace { namespace: "a/../b", may_be_elsewhere: false };
        assert!(matches!(parse_networks("a", default), Err(AnnotationError::Name(_))));
    }

    #[test]
    fn networks_are_named_in_short_form_or_in_json() {
        for (text, expected) in [
            ("", vec![]),
            ("  \n", vec![]),
            ("a", vec!["own/a"]),
            (" a , ns/b@net1,a@x ", vec!["own/a", "ns/b", "own/a"]),
            (
                r#"[{"name":"a"},{"name":"b","namespace":"ns","mac":"02:00:00:00:00:01"}]"#,
                vec!["own/a", "ns/b"],
            ),
            (r#"[{"name":"a","namespace":""}]"#, vec!["own/a"]),
            ("[]", vec![]),
            // Like Multus.
            ("a@", vec!["own/a"]),
            ("/a", vec!["own/a"]),
            (" / a @ ,ns / b @ net1", vec!["own/a", "ns/b"]),
            (r#"[{"Name":"a","NAMESPACE":"ns","Interface":1}]"#, vec!["ns/a"]),
            (r#"[{"name":"a","Name":"b"},{"Name":"b","name":"a"}]"#, vec!["own/b", "own/a"]),
            (r#"[{"name":"a","name":"b","Name":null,"namespace":null}]"#, vec!["own/b"]),
        ] {
            assert_eq!(parsed(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn invalid_annotations_are_errors() {
        for text in ["a,", ",", "a//b", "//a", "ns/", "a/b/c", "a@x@y", "@x", "a@b/c", "ns/@x"] {
            assert!(matches!(parsed(text), Err(AnnotationError::Word(_))), "{text}: {:?}", parsed(text));
        }
        for text in ["A", "-a", "a-", "ä", "a b", &"a".repeat(254), r#"[{"name":""}]"#, "ns /a,b_", "n s/a"]
        {
            assert!(matches!(parsed(text), Err(AnnotationError::Name(_))), "{text}: {:?}", parsed(text));
        }
        for text in ["[{", "{\"name\":\"a\"}", "\"a\"", "[1]", "[{\"namespace\":\"a\"}]", "[\"a\"]"] {
            assert!(matches!(parsed(text), Err(AnnotationError::Json(_))), "{text}");
        }
        assert_eq!(parsed(&vec!["a"; 257].join(",")), Err(AnnotationError::TooMany(257)));
        assert!(parsed(&vec!["a"; 256].join(",")).is_ok());
    }
}
