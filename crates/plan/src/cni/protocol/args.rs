//! Arguments of the runtime in `CNI_ARGS`: `K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;IgnoreUnknown=1`.

use super::{CniError, ErrorCode};
use crate::cni::journal::PodIdentity;
use crate::prelude::*;

/// Arguments of the runtime. Keys are case sensitive, unlike those of the network configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniArgs {
    /// MAC for the interface, as the runtime wrote it: only plugins that use it check it.
    pub mac: Option<String>,
    /// Logical port of OVN, for the plugin `ovs`.
    pub ovn_port: Option<String>,
    /// Pod; empty where the runtime named none.
    pub pod: PodIdentity,
    /// ID of the container that keeps the namespaces of the pod.
    pub infra_container_id: Option<String>,
    /// Unknown arguments are ignored.
    pub ignore_unknown: bool,
}

impl CniArgs {
    /// Parses the text of `CNI_ARGS`. Unknown keys are an error unless `IgnoreUnknown` is true.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        let mut args = Self::default();
        let mut unknown = Vec::new();
        for pair in text.split(';').filter(|_| !text.is_empty()) {
            let (key, value) = match pair.split_once('=') {
                Some((key, value)) if !value.contains('=') => (key, value),
                _ => return Err(invalid(format!("{pair:?} is not of the form KEY=VALUE"))),
            };
            let some_value = || Some(value.to_owned()).filter(|value| !value.is_empty());
            match key {
                "IgnoreUnknown" => {
                    args.ignore_unknown = parse_flag(value)
                        .ok_or_else(|| invalid(format!("{key}: {value:?} is neither true nor false")))?;
                }
                "MAC" => args.mac = some_value(),
                "OvnPort" => args.ovn_port = some_value(),
                "K8S_POD_NAMESPACE" => value.clone_into(&mut args.pod.namespace),
                "K8S_POD_NAME" => value.clone_into(&mut args.pod.name),
                "K8S_POD_UID" => value.clone_into(&mut args.pod.uid),
                "K8S_POD_INFRA_CONTAINER_ID" => args.infra_container_id = some_value(),
                _ => unknown.push(key),
            }
        }
        if unknown.is_empty() || args.ignore_unknown {
            return Ok(args);
        }
        let details = "remove them, or add IgnoreUnknown=1";
        Err(invalid(format!("unknown keys: {}", unknown.join(", "))).with_details(details))
    }

    /// Returns the pod, if the runtime named one.
    pub fn pod_identity(&self) -> Option<PodIdentity> {
        (self.pod != PodIdentity::default()).then(|| self.pod.clone())
    }
}

/// Parses a boolean of `CNI_ARGS`.
fn parse_flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

fn invalid(problem: impl core::fmt::Display) -> CniError {
    CniError::new(ErrorCode::InvalidEnvironment, format!("CNI_ARGS: {problem}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_arguments_of_a_container_runtime_are_parsed() {
        let text = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;\
                    K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=11-22;MAC=02:00:00:00:00:01;OvnPort=pod-a;OTHER=x";
        let args = CniArgs::parse(text).unwrap();
        let pod = PodIdentity {
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
            uid: "11-22".to_owned(),
        };
        assert_eq!(args.pod_identity(), Some(pod));
        assert_eq!(args.mac.as_deref(), Some("02:00:00:00:00:01"));
        assert_eq!(args.ovn_port.as_deref(), Some("pod-a"));
        assert_eq!(args.infra_container_id.as_deref(), Some("abc"));
        assert!(args.ignore_unknown);
    }

    #[test]
    fn no_arguments_are_no_error() {
        assert_eq!(CniArgs::parse("").unwrap(), CniArgs::default());
        assert_eq!(CniArgs::default().pod_identity(), None);
        assert_eq!(CniArgs::parse("MAC=").unwrap().mac, None);
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (text, expected) in [
            ("A", "\"A\" is not of the form KEY=VALUE"),
            ("MAC=a=b", "\"MAC=a=b\" is not"),
            ("MAC=02:00:00:00:00:01;", "\"\" is not"),
            ("IgnoreUnknown=yes", "IgnoreUnknown: \"yes\""),
            ("IgnoreUnknown=;A=b", "IgnoreUnknown: \"\""),
            ("mac=02:00:00:00:00:01", "unknown keys: mac"),
            ("ignoreunknown=1;A=b", "unknown keys: ignoreunknown, A"),
            ("ovnPort=a", "unknown keys: ovnPort"),
            ("A=b;IgnoreUnknown=0", "unknown keys: A"),
        ] {
            let error = CniArgs::parse(text).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidEnvironment, "{text}");
            assert!(error.message.starts_with("CNI_ARGS: ") && error.message.contains(expected), "{error}");
        }
    }

    #[test]
    fn unknown_keys_are_ignored_wherever_the_runtime_says_so() {
        for text in ["A=b;IgnoreUnknown=1", "IgnoreUnknown=true;A=b", "IgnoreUnknown=True;A=b;=c"] {
            assert!(CniArgs::parse(text).unwrap().ignore_unknown, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_refused(text in ".{0,60}|([A-Za-z]{0,3}[;=]){0,8}") {
            let _ = CniArgs::parse(&text);
        }
    }
}
