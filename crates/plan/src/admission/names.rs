//! Names of resources and labels, checked like Kubernetes does.

use thiserror::Error;

use crate::prelude::*;

/// Length of a name without its prefix.
const MAX_LENGTH: usize = 63;

/// Length of a prefix.
const MAX_PREFIX_LENGTH: usize = 253;

/// Prefix of a resource name in a quota.
const QUOTA_PREFIX: &str = "requests.";

/// Fault of a resource name, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameFault {
    /// The name is empty.
    #[error("resourceName is empty: set a name such as intelnics")]
    Empty,
    /// The name is too long.
    #[error("resourceName has {length} characters: at most {MAX_LENGTH} are allowed")]
    TooLong {
        /// Length in characters.
        length: usize,
    },
    /// The name has characters that are not allowed.
    #[error(
        "resourceName {name:?} is invalid: use only letters, digits, - and _, and begin and end with a letter or digit"
    )]
    Characters {
        /// Name that was given.
        name: String,
    },
}

/// Returns the fault of a resource name without prefix; `None` if it is valid.
pub fn check_resource_name(name: &str) -> Option<NameFault> {
    let length = name.chars().count();
    if length == 0 {
        return Some(NameFault::Empty);
    }
    if length > MAX_LENGTH {
        return Some(NameFault::TooLong { length });
    }
    (!consists_of(name, "-_")).then(|| NameFault::Characters { name: name.to_owned() })
}

/// Returns whether `name` is a qualified name of a label or resource, such as `rack` or `openshift.io/nics`.
pub(super) fn is_qualified(name: &str) -> bool {
    let (prefix, name) = match name.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, name),
    };
    let is_prefix = |prefix: &str| {
        prefix.len() <= MAX_PREFIX_LENGTH
            && prefix.split('.').all(|part| consists_of(part, "-"))
            && !prefix.contains(|letter: char| letter.is_ascii_uppercase())
    };
    prefix.is_none_or(is_prefix) && name.len() <= MAX_LENGTH && consists_of(name, "-_.")
}

/// Returns whether `name` is an extended resource that a container can request. Names without a prefix, or with a
/// prefix of Kubernetes, are not. With the quota prefix the name must still be valid.
pub(crate) fn is_extended_resource(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with(QUOTA_PREFIX)
        && is_qualified(&format!("{QUOTA_PREFIX}{name}"))
}

/// Returns whether `value` is a valid value of a label.
pub(super) fn is_label_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= MAX_LENGTH && consists_of(value, "-_."))
}

/// Returns whether `text` has only letters and digits, and characters of `signs` in between.
fn consists_of(text: &str, signs: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric();
    text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|letter| is_plain(letter) || signs.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_resource_names() {
        for name in ["a", "7", "intelnics", "a-b_c", "A9", &"n".repeat(63)] {
            assert_eq!(check_resource_name(name), None, "{name}");
        }
    }

    #[test]
    fn invalid_resource_names() {
        assert_eq!(check_resource_name(""), Some(NameFault::Empty));
        assert_eq!(check_resource_name(&"n".repeat(64)), Some(NameFault::TooLong { length: 64 }));
        for name in ["a.b", "openshift.io/r", "nic-", "_a", "-", "ä", "a b"] {
            assert_eq!(check_resource_name(name), Some(NameFault::Characters { name: name.to_owned() }));
        }
    }

    #[test]
    fn names_and_values_that_kubernetes_accepts() {
        for name in ["rack", "a.b/c_d", "openshift.io/nics", "node-role.kubernetes.io/worker", "A"] {
            assert!(is_qualified(name), "{name}");
        }
        for name in
            ["", "/a", "a/", "a/b/c", "a b", "rack in (a)", "rack!", "A.b/c", "a..b/c", &"n".repeat(64)]
        {
            assert!(!is_qualified(name), "{name}");
        }
        let long = |domain: usize| format!("{}/a", "d".repeat(domain));
        for name in ["openshift.io/nics", "a/b", "x.y/Z_1", "my-kubernetes.io.example/a", &long(244)] {
            assert!(is_extended_resource(name), "{name}");
        }
        for name in [
            "",
            "sriov_nics",
            "cpu",
            "memory",
            "hugepages-2Mi",
            "kubernetes.io/x",
            "sub.kubernetes.io/x",
            "requests.openshift.io/nics",
            "a/b/c",
            "A.b/c",
            "a b/c",
            &long(245),
        ] {
            assert!(!is_extended_resource(name), "{name}");
        }
        assert!(["", "a", "v1.2_3-x"].into_iter().all(is_label_value));
        assert!(!["a b", "-a", "a=b", &"n".repeat(64)].into_iter().any(is_label_value));
    }
}
