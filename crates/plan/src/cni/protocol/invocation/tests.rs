use proptest::prelude::*;

use super::*;

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Returns the variables of a complete command with changes; an empty value removes the variable.
fn complete(command: &str, changes: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut all = variables(&[
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", "0c1f-a.b_c"),
        ("CNI_NETNS", "/var/run/netns/pod"),
        ("CNI_IFNAME", "net1"),
        ("CNI_PATH", "/opt/cni/bin:/usr/lib/cni"),
    ]);
    all.extend(variables(changes));
    all.retain(|_, value| !value.is_empty());
    all
}

#[test]
fn a_complete_environment_is_parsed() {
    let args = ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web");
    let parsed = Invocation::parse(&complete("ADD", &[args])).unwrap();
    assert_eq!(parsed.command, Command::Add);
    assert_eq!((parsed.container_id.as_str(), parsed.interface.as_str()), ("0c1f-a.b_c", "net1"));
    assert_eq!(parsed.netns.as_deref(), Some("/var/run/netns/pod"));
    assert_eq!(parsed.path, ["/opt/cni/bin", "/usr/lib/cni"]);
    assert_eq!(parsed.path_text, "/opt/cni/bin:/usr/lib/cni");
    assert_eq!(parsed.args.pod.name, "web");
    assert!(!parsed.netns_override);
}

#[test]
fn every_command_is_parsed_from_its_name() {
    for command in Command::ALL {
        assert_eq!(Invocation::parse(&complete(command.name(), &[])).unwrap().command, command);
    }
}

#[test]
fn all_missing_variables_are_named_at_once() {
    for (command, missing) in [
        ("ADD", "CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_PATH"),
        ("CHECK", "CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_PATH"),
        ("DEL", "CNI_CONTAINERID, CNI_IFNAME, CNI_PATH"),
        ("GC", "CNI_PATH"),
        ("STATUS", "CNI_PATH"),
        ("", "CNI_COMMAND"),
    ] {
        let error = Invocation::parse(&variables(&[("CNI_COMMAND", command)])).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidEnvironment);
        assert_eq!(error.message, format!("missing in the environment: {missing}"));
    }
    assert!(Invocation::parse(&variables(&[("CNI_COMMAND", "VERSION")])).is_ok());
    assert!(Invocation::parse(&BTreeMap::new()).unwrap_err().message.contains("CNI_COMMAND"));
}

#[test]
fn a_missing_variable_counts_before_an_invalid_one() {
    let error = Invocation::parse(&complete("ADD", &[("CNI_IFNAME", "a/b"), ("CNI_NETNS", "")])).unwrap_err();
    assert!(error.message.ends_with(": CNI_NETNS"), "{error}");
}

#[test]
fn invalid_variables_are_named() {
    for (name, value) in [
        ("CNI_COMMAND", "add"),
        ("CNI_COMMAND", "UPDATE"),
        ("CNI_CONTAINERID", "-a"),
        ("CNI_CONTAINERID", ".a"),
        ("CNI_CONTAINERID", "a/b"),
        ("CNI_CONTAINERID", "a:b"),
        ("CNI_CONTAINERID", "a\n"),
        ("CNI_CONTAINERID", "ä"),
        ("CNI_IFNAME", "."),
        ("CNI_IFNAME", ".."),
        ("CNI_IFNAME", "a/b"),
        ("CNI_IFNAME", "a:b"),
        ("CNI_IFNAME", "a b"),
        ("CNI_IFNAME", "a\u{a0}"),
        ("CNI_IFNAME", "a\t"),
        ("CNI_IFNAME", "abcdefghijklmnop"),
        ("CNI_IFNAME", "ääääääää"),
        ("CNI_ARGS", "A=b"),
    ] {
        let command = if name == "CNI_COMMAND" { value } else { "ADD" };
        let error = Invocation::parse(&complete(command, &[(name, value)])).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidEnvironment, "{name}={value:?}");
        assert!(error.message.starts_with(name), "{error}");
    }
}

#[test]
fn an_interface_name_of_15_bytes_is_accepted() {
    for name in ["abcdefghijklmno", "äääääääa"] {
        let parsed = Invocation::parse(&complete("ADD", &[("CNI_IFNAME", name)])).unwrap();
        assert_eq!(parsed.interface, name);
    }
}

#[test]
fn del_needs_no_namespace_and_no_valid_arguments() {
    let parsed = Invocation::parse(&complete("DEL", &[("CNI_NETNS", ""), ("CNI_ARGS", "A=b")])).unwrap();
    assert_eq!((parsed.netns, parsed.args), (None, CniArgs::default()));
}

#[test]
fn commands_without_a_container_ignore_its_parameters() {
    for command in ["GC", "STATUS", "VERSION"] {
        let changes = [("CNI_CONTAINERID", "a/b"), ("CNI_IFNAME", "a/b")];
        let parsed = Invocation::parse(&complete(command, &changes)).unwrap();
        assert_eq!((parsed.container_id.as_str(), parsed.interface.as_str()), ("", ""));
        assert_eq!(parsed.netns, None);
    }
}

#[test]
fn the_namespace_may_be_overridden() {
    for (value, expected) in [("1", true), ("TRUE", true), ("true", true), ("0", false), ("yes", false)] {
        let parsed = Invocation::parse(&complete("ADD", &[("CNI_NETNS_OVERRIDE", value)])).unwrap();
        assert_eq!(parsed.netns_override, expected, "{value}");
    }
}

#[test]
fn empty_parts_of_the_search_path_are_left_out() {
    let parsed = Invocation::parse(&complete("ADD", &[("CNI_PATH", ":/a::/b:")])).unwrap();
    assert_eq!(
        (parsed.path, parsed.path_text.as_str()),
        (vec!["/a".to_owned(), "/b".to_owned()], ":/a::/b:")
    );
}

proptest! {
    #[test]
    fn accepted_names_cannot_leave_a_directory(id in "\\PC{0,20}", interface in "\\PC{0,20}") {
        let changes = [("CNI_CONTAINERID", id.as_str()), ("CNI_IFNAME", interface.as_str())];
        if let Ok(parsed) = Invocation::parse(&complete("ADD", &changes)) {
            for name in [parsed.container_id, parsed.interface] {
                prop_assert!(!name.is_empty() && !name.contains(['/', ':', '\0']) && name != "..");
            }
        }
    }
}
