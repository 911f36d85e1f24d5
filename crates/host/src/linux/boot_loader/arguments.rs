//! Kernel arguments in texts of boot loaders.

/// Drop-in file of vfleet for GRUB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct DropIn {
    /// Arguments that are appended after all others, so that they take precedence.
    pub(in super::super) with: Vec<String>,
    /// Arguments that are removed from the other files, because they would take precedence (`iommu=off`).
    pub(in super::super) without: Vec<String>,
}

const WITH: &str = "vfleet_with='";
const WITHOUT: &str = "vfleet_without='";
const END: &str = "'";
/// Rest of the drop-in file. The shell of update-grub reads it after the file of the administrator and may stop at any
/// error or unset variable (`set -eu`). GRUB starts the kernel with both variables, in this order.
const SCRIPT: &str = r#"vfleet_all_but() {
    vfleet_line=" $1 "
    shift
    for vfleet_word do
        while :; do
            case "$vfleet_line" in
                *" $vfleet_word "*) vfleet_line="${vfleet_line%%" $vfleet_word "*} ${vfleet_line#*" $vfleet_word "}" ;;
                *) break ;;
            esac
        done
    done
    vfleet_line="${vfleet_line# }"
    printf '%s' "${vfleet_line% }"
}
GRUB_CMDLINE_LINUX="$(vfleet_all_but "${GRUB_CMDLINE_LINUX-}" $vfleet_without)"
GRUB_CMDLINE_LINUX_DEFAULT="$(vfleet_all_but "${GRUB_CMDLINE_LINUX_DEFAULT-}" $vfleet_without) $vfleet_with"
"#;

/// Returns whether an argument contains no character that a shell or a boot loader would interpret.
pub(in super::super) fn is_plain(argument: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._=,:@/+-".contains(char);
    !argument.is_empty() && !argument.starts_with('-') && argument.chars().all(is_plain)
}

/// Returns `current` without `remove` and with `add`, each once, in the given order.
pub(in super::super) fn merge(current: &[String], add: &[String], remove: &[String]) -> Vec<String> {
    let kept = current.iter().filter(|argument| !remove.contains(argument));
    let new = add.iter().filter(|argument| !current.contains(argument));
    kept.chain(new).cloned().collect()
}

impl DropIn {
    /// Returns the drop-in with `add`, and without those of `remove` that it added before. Arguments that it had
    /// removed for the sake of these are set again.
    pub(in super::super) fn with_changes(&self, add: &[String], remove: &[String]) -> Self {
        let is_reverted = |name: &str| {
            let mut ours = self.with.iter().filter(|argument| remove.contains(argument));
            ours.any(|argument| name_of(argument) == name)
        };
        let is_kept = |argument: &&String| !add.contains(argument) && !is_reverted(name_of(argument));
        let without = self.without.iter().filter(is_kept).cloned().collect();
        Self { with: merge(&self.with, add, remove), without }
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.with.is_empty() && self.without.is_empty()
    }

    /// Returns the text of the file.
    pub(in super::super) fn to_text(&self) -> String {
        let (with, without) = (self.with.join(" "), self.without.join(" "));
        format!(
            "# Written by vfleet: what SR-IOV needs from the kernel.\n\
             {WITH}{with}{END}\n{WITHOUT}{without}{END}\n{SCRIPT}"
        )
    }

    /// Parses the file. Arguments that vfleet cannot have written are ignored.
    pub(in super::super) fn parse(text: &str) -> Self {
        let words = |start: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(start)?.strip_suffix(END));
            let words = line.unwrap_or_default().split_whitespace();
            words.filter(|word| is_plain(word)).map(str::to_owned).collect()
        };
        Self { with: words(WITH), without: words(WITHOUT) }
    }
}

fn name_of(argument: &str) -> &str {
    argument.split_once('=').map_or(argument, |(name, _)| name)
}

/// Returns the kernel arguments of the first entry in a config of GRUB, which is the default. Other entries may belong
/// to other systems on the disk.
pub(in super::super) fn first_entry_arguments(config: &str) -> String {
    let is_linux = |line: &&str| line.split_whitespace().next().is_some_and(|word| word.starts_with("linux"));
    config.lines().find(is_linux).unwrap_or_default().trim().to_owned()
}

/// Returns the kernel arguments in the output of `grubby --info`: `args="ro quiet"`.
pub(in super::super) fn parse_grubby_arguments(info: &str) -> String {
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

    fn arguments() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-z_.]{1,9}(=[a-z0-9,:@/+-]{0,9})?", 0..5)
    }

    #[test]
    fn removing_an_added_argument_restores_the_argument_that_it_replaced() {
        let of = |with, without| DropIn { with: words(with), without: words(without) };
        let changed = |drop_in: &DropIn, add, remove| drop_in.with_changes(&words(add), &words(remove));
        let shared = of("m=1", "m=0 iommu=off");
        assert_eq!(changed(&shared, "m=1", "m=0"), shared);
        assert_eq!(changed(&shared, "m=0", "m=1"), of("m=0", "iommu=off"));
        assert_eq!(changed(&shared, "", "m=1"), of("", "iommu=off"));
        let taken_back = changed(&of("m=1", "m=0"), "", "m=1");
        assert!(taken_back.is_empty() && changed(&taken_back, "", "m=1").is_empty());
    }

    #[test]
    fn the_arguments_of_the_first_entry_are_returned() {
        let config = "set default=0\n\tlinux\t/vmlinuz root=/dev/vda ro  a=1 \n\tlinux /old iommu=off\n";
        assert_eq!(first_entry_arguments(config), "linux\t/vmlinuz root=/dev/vda ro  a=1");
        assert_eq!(first_entry_arguments("insmod linux\n"), "");
    }

    #[test]
    fn arguments_are_added_once_and_removed() {
        let found = words("quiet a=1 b=2");
        assert_eq!(merge(&found, &words("a=1 c=3"), &words("b=2 d=4")), words("quiet a=1 c=3"));
        assert_eq!(merge(&[], &words("a=1"), &[]), words("a=1"));
    }

    #[test]
    fn the_output_of_grubby_is_parsed() {
        let info =
            "index=0\nkernel=\"/boot/vmlinuz-5.14\"\nargs=\"ro crashkernel=1G quiet\"\nroot=\"/dev/sda\"\n";
        assert_eq!(parse_grubby_arguments(info), "ro crashkernel=1G quiet");
        assert_eq!(parse_grubby_arguments("nothing"), "");
    }

    #[test]
    fn an_argument_that_a_shell_would_interpret_is_not_plain() {
        for argument in ["", "a b", "a\"", "$HOME", "`reboot`", "a;b", "a\nb", "--help", "a'b", "a\\b"] {
            assert!(!is_plain(argument), "{argument:?}");
        }
    }

    proptest! {
        #[test]
        fn the_drop_in_is_parsed_as_it_was_written(with in arguments(), without in arguments()) {
            let drop_in = DropIn { with, without };
            prop_assert_eq!(DropIn::parse(&drop_in.to_text()), drop_in);
        }

        #[test]
        fn accepts_any_text(text in "(?s).{0,200}") {
            let parsed = DropIn::parse(&text);
            prop_assert!(parsed.with.iter().chain(&parsed.without).all(|argument| is_plain(argument)));
            let _ = (parse_grubby_arguments(&text), first_entry_arguments(&text));
        }
    }
}
