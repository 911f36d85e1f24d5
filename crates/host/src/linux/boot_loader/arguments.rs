//! Arguments of the kernel as texts.

/// The line of our file, around the arguments. What the administrator set comes first.
const START: &str = "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX ";
const END: &str = "\"";

/// Whether an argument means itself everywhere that it is put: nothing in it that a shell would read otherwise.
pub(super) fn is_plain(argument: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._=,:@/+-".contains(char);
    !argument.is_empty() && !argument.starts_with('-') && argument.chars().all(is_plain)
}

/// `found` without `remove` and with `add`, each once, in their order.
pub(super) fn merged(found: &[String], add: &[String], remove: &[String]) -> Vec<String> {
    let kept = found.iter().filter(|argument| !remove.contains(argument));
    let new = add.iter().filter(|argument| !found.contains(argument));
    kept.chain(new).cloned().collect()
}

/// Our file with these arguments.
pub(super) fn drop_in(arguments: &[String]) -> String {
    format!("# Written by vfleet: what SR-IOV needs from the kernel.\n{START}{}{END}\n", arguments.join(" "))
}

/// The arguments in our file. What somebody wrote into it that could not be from us is not read.
pub(super) fn in_drop_in(text: &str) -> Vec<String> {
    let ours = text.lines().find_map(|line| line.trim().strip_prefix(START)?.strip_suffix(END));
    ours.unwrap_or_default().split_whitespace().filter(|word| is_plain(word)).map(str::to_owned).collect()
}

/// The arguments in what grubby tells about a kernel: `args="ro quiet"`.
pub(super) fn quoted_arguments(info: &str) -> String {
    let arguments = info.lines().find_map(|line| line.trim().strip_prefix("args="));
    arguments.unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn our_file_is_one_line_that_a_shell_reads() {
        let text = drop_in(&words("intel_iommu=on iommu=pt"));
        assert!(
            text.ends_with("\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt\"\n"),
            "{text}"
        );
        assert_eq!(in_drop_in(&text), words("intel_iommu=on iommu=pt"));
    }

    #[test]
    fn arguments_are_added_once_and_removed() {
        let found = words("quiet a=1 b=2");
        assert_eq!(merged(&found, &words("a=1 c=3"), &words("b=2 d=4")), words("quiet a=1 c=3"));
        assert_eq!(merged(&[], &words("a=1"), &[]), words("a=1"));
    }

    #[test]
    fn grubbys_answer_is_read() {
        let info =
            "index=0\nkernel=\"/boot/vmlinuz-5.14\"\nargs=\"ro crashkernel=1G quiet\"\nroot=\"/dev/sda\"\n";
        assert_eq!(quoted_arguments(info), "ro crashkernel=1G quiet");
        assert_eq!(quoted_arguments("nothing"), "");
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_no_argument() {
        for argument in ["", "a b", "a\"", "$HOME", "`reboot`", "a;b", "a\nb", "--help", "a'b", "a\\b"] {
            assert!(!is_plain(argument), "{argument:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn our_file_is_read_back(arguments in prop::collection::vec("[a-z_.]{1,9}(=[a-z0-9,:@/+-]{0,9})?", 0..5)) {
            prop_assert_eq!(in_drop_in(&drop_in(&arguments)), arguments);
        }

        #[test]
        fn any_text_is_read(text in "(?s).{0,200}") {
            prop_assert!(in_drop_in(&text).iter().all(|argument| is_plain(argument)));
            let _ = quoted_arguments(&text);
        }
    }
}
