//! How a pod names its networks: by words, or in JSON.

use core::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::{NamedNetwork, NetworkRef};
use crate::prelude::*;

/// Nobody has that many interfaces.
const MOST_NETWORKS: usize = 256;

/// As long as the name of an object can be.
const LONGEST_NAME: usize = 253;

/// Why the annotation cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Problem {
    #[error("it is not a JSON list of objects with a name: {0}")]
    Json(String),
    #[error("{0:?} is not a network as in name, namespace/name or namespace/name@interface")]
    Word(String),
    #[error("{0:?} cannot be the name of a network or of a namespace")]
    Name(String),
    #[error("it names {0} networks, and {MOST_NETWORKS} are possible")]
    TooMany(usize),
}

/// A network in JSON. It has more keys, for others.
struct Element {
    name: String,
    namespace: Option<String>,
}

/// As Multus reads it, which is written in Go: keys may be in any case, the last of the same key counts, and a null says
/// nothing.
impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        text.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Element, A::Error> {
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
        Ok(Element { name, namespace })
    }
}

/// Where a network is of which no namespace is said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsaid<'a> {
    /// The pod's namespace.
    pub(super) namespace: &'a str,
    /// It may be in another one just as well.
    pub(super) or_elsewhere: bool,
}

/// The networks that `text` names, in its order.
pub(super) fn networks(text: &str, unsaid: Unsaid<'_>) -> Result<Vec<NamedNetwork>, Problem> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let networks = if text.contains(['[', '{', '"']) {
        in_json(text, unsaid)?
    } else {
        text.split(',').map(|word| in_words(word.trim(), unsaid)).collect::<Result<Vec<_>, _>>()?
    };
    if networks.len() > MOST_NETWORKS {
        return Err(Problem::TooMany(networks.len()));
    }
    Ok(networks)
}

fn in_json(text: &str, unsaid: Unsaid<'_>) -> Result<Vec<NamedNetwork>, Problem> {
    let elements: Vec<Element> =
        serde_json::from_str(text).map_err(|error| Problem::Json(error.to_string()))?;
    elements
        .into_iter()
        .map(|Element { name, namespace }| network(namespace.as_deref(), &name, unsaid))
        .collect()
}

/// `[namespace/]name[@interface]`, with blanks between them, as Multus reads it.
fn in_words(word: &str, unsaid: Unsaid<'_>) -> Result<NamedNetwork, Problem> {
    let (network_word, interface) = word.split_once('@').unwrap_or((word, ""));
    let (namespace, name) = match network_word.split_once('/') {
        Some((namespace, name)) => (Some(namespace.trim()), name.trim()),
        None => (None, network_word.trim()),
    };
    if name.is_empty() || name.contains('/') || interface.contains(['@', '/']) {
        return Err(Problem::Word(word.to_owned()));
    }
    network(namespace, name, unsaid)
}

/// An empty namespace is none.
fn network(namespace: Option<&str>, name: &str, unsaid: Unsaid<'_>) -> Result<NamedNetwork, Problem> {
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    let may_be_elsewhere = namespace.is_none() && unsaid.or_elsewhere;
    let namespace = namespace.unwrap_or(unsaid.namespace);
    for word in [namespace, name] {
        if !is_name(word) {
            return Err(Problem::Name(word.to_owned()));
        }
    }
    let network = NetworkRef { namespace: namespace.to_owned(), name: name.to_owned() };
    Ok(NamedNetwork { network, may_be_elsewhere })
}

/// As objects can be called.
fn is_name(word: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = word.as_bytes();
    word.len() <= LONGEST_NAME
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|byte| is_end(byte) || b"-.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, Problem> {
        let unsaid = Unsaid { namespace: "own", or_elsewhere: false };
        Ok(networks(text, unsaid)?.iter().map(|named| named.network.to_string()).collect())
    }

    #[test]
    fn only_a_network_without_a_namespace_may_be_elsewhere() {
        let unsaid = Unsaid { namespace: "own", or_elsewhere: true };
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
            assert_eq!(networks(text, unsaid), Ok(vec![named]), "{text}");
        }
    }

    /// It becomes part of a path.
    #[test]
    fn the_namespace_of_the_pod_is_looked_at_too() {
        let unsaid = Unsaid { namespace: "a/../b", or_elsewhere: false };
        assert!(matches!(networks("a", unsaid), Err(Problem::Name(_))));
    }

    #[test]
    fn networks_are_named_by_words_or_in_json() {
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
            // As Multus reads them.
            ("a@", vec!["own/a"]),
            ("/a", vec!["own/a"]),
            (" / a @ ,ns / b @ net1", vec!["own/a", "ns/b"]),
            (r#"[{"Name":"a","NAMESPACE":"ns","Interface":1}]"#, vec!["ns/a"]),
            (r#"[{"name":"a","Name":"b"},{"Name":"b","name":"a"}]"#, vec!["own/b", "own/a"]),
            (r#"[{"name":"a","name":"b","Name":null,"namespace":null}]"#, vec!["own/b"]),
        ] {
            assert_eq!(shown(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_names_no_network_is_a_fault() {
        for text in ["a,", ",", "a//b", "//a", "ns/", "a/b/c", "a@x@y", "@x", "a@b/c", "ns/@x"] {
            assert!(matches!(shown(text), Err(Problem::Word(_))), "{text}: {:?}", shown(text));
        }
        for text in ["A", "-a", "a-", "ä", "a b", &"a".repeat(254), r#"[{"name":""}]"#, "ns /a,b_", "n s/a"]
        {
            assert!(matches!(shown(text), Err(Problem::Name(_))), "{text}: {:?}", shown(text));
        }
        for text in ["[{", "{\"name\":\"a\"}", "\"a\"", "[1]", "[{\"namespace\":\"a\"}]", "[\"a\"]"] {
            assert!(matches!(shown(text), Err(Problem::Json(_))), "{text}");
        }
        assert_eq!(shown(&vec!["a"; 257].join(",")), Err(Problem::TooMany(257)));
        assert!(shown(&vec!["a"; 256].join(",")).is_ok());
    }
}
