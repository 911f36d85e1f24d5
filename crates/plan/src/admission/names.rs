//! Names of resources and labels.

use thiserror::Error;

use crate::prelude::*;

/// As long as the name of a Kubernetes resource may be behind its prefix.
const LONGEST: usize = 63;

/// As long as its prefix may be.
const LONGEST_DOMAIN: usize = 253;

/// What stands before the name of a resource in a quota.
const QUOTA_PREFIX: &str = "requests.";

/// Why a text is not the name of a resource. Each says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameFault {
    /// There is none.
    #[error("a resource needs a name: set resourceName, as in intelnics")]
    Empty,
    /// It is too long.
    #[error("resourceName has {length} characters: {LONGEST} are possible")]
    TooLong {
        /// How long it is.
        length: usize,
    },
    /// It has other signs than it may have.
    #[error(
        "resourceName {name:?}: only letters, digits, - and _ are possible, and the first and last is a letter or digit"
    )]
    Signs {
        /// The text.
        name: String,
    },
}

/// What is wrong with the name of a resource, without its prefix.
pub fn resource_name(name: &str) -> Option<NameFault> {
    let length = name.chars().count();
    if length == 0 {
        return Some(NameFault::Empty);
    }
    if length > LONGEST {
        return Some(NameFault::TooLong { length });
    }
    (!is_made_of(name, "-_")).then(|| NameFault::Signs { name: name.to_owned() })
}

/// Whether Kubernetes knows a label or a resource by such a name: `rack`, `openshift.io/nics`.
pub(super) fn is_qualified(name: &str) -> bool {
    let (prefix, name) = match name.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, name),
    };
    let is_domain = |prefix: &str| {
        prefix.len() <= LONGEST_DOMAIN
            && prefix.split('.').all(|part| is_made_of(part, "-"))
            && !prefix.contains(|sign: char| sign.is_ascii_uppercase())
    };
    prefix.is_none_or(is_domain) && name.len() <= LONGEST && is_made_of(name, "-_.")
}

/// Whether a container can ask for a device by such a name, as Kubernetes has it: what has no prefix, or one of its own,
/// is not for devices, and a name must leave room for the one that quotas know it by.
pub(super) fn is_extended_resource(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with(QUOTA_PREFIX)
        && is_qualified(&format!("{QUOTA_PREFIX}{name}"))
}

/// Whether a label may have such a value.
pub(super) fn is_label_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= LONGEST && is_made_of(value, "-_."))
}

/// Of letters and digits, and of these signs between them.
fn is_made_of(text: &str, signs: &str) -> bool {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric();
    text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|sign| is_plain(sign) || signs.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_pods_can_ask_for() {
        for name in ["a", "7", "intelnics", "a-b_c", "A9", &"n".repeat(63)] {
            assert_eq!(resource_name(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_they_cannot() {
        assert_eq!(resource_name(""), Some(NameFault::Empty));
        assert_eq!(resource_name(&"n".repeat(64)), Some(NameFault::TooLong { length: 64 }));
        for name in ["a.b", "openshift.io/r", "nic-", "_a", "-", "ä", "a b"] {
            assert_eq!(resource_name(name), Some(NameFault::Signs { name: name.to_owned() }));
        }
    }

    #[test]
    fn names_and_values_that_kubernetes_takes() {
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
