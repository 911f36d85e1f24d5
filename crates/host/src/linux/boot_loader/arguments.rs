//! Arguments of the kernel as texts.

/// What our file for GRUB says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct DropIn {
    /// Arguments that come after all others, so that they count.
    pub(in super::super) with: Vec<String>,
    /// Arguments that go, whoever set them: with some of them there, no other counts (`iommu=off`).
    pub(in super::super) without: Vec<String>,
}

const WITH: &str = "vfleet_with='";
const WITHOUT: &str = "vfleet_without='";
const END: &str = "'";
/// The rest of our file. It is read by update-grub's shell after the administrator's file, which may stop at any error or
/// unset variable (`set -eu`). GRUB starts the kernel with both variables, in this order.
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

/// Whether an argument means itself everywhere that it is put: nothing in it that a shell would read otherwise.
pub(in super::super) fn is_plain(argument: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._=,:@/+-".contains(char);
    !argument.is_empty() && !argument.starts_with('-') && argument.chars().all(is_plain)
}

/// `found` without `remove` and with `add`, each once, in their order.
pub(in super::super) fn merged(found: &[String], add: &[String], remove: &[String]) -> Vec<String> {
    let kept = found.iter().filter(|argument| !remove.contains(argument));
    let new = add.iter().filter(|argument| !found.contains(argument));
    kept.chain(new).cloned().collect()
}

impl DropIn {
    /// The same with `add`, and without what of `remove` we added ourselves; what went for its sake comes back.
    pub(in super::super) fn changed(&self, add: &[String], remove: &[String]) -> Self {
        let taken_back = |name: &str| {
            let mut ours = self.with.iter().filter(|argument| remove.contains(argument));
            ours.any(|argument| name_of(argument) == name)
        };
        let goes_on = |argument: &&String| !add.contains(argument) && !taken_back(name_of(argument));
        let without = self.without.iter().filter(goes_on).cloned().collect();
        Self { with: merged(&self.with, add, remove), without }
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.with.is_empty() && self.without.is_empty()
    }

    /// As a file.
    pub(in super::super) fn text(&self) -> String {
        let (with, without) = (self.with.join(" "), self.without.join(" "));
        format!(
            "# Written by vfleet: what SR-IOV needs from the kernel.\n\
             {WITH}{with}{END}\n{WITHOUT}{without}{END}\n{SCRIPT}"
        )
    }

    /// Read from our file. What somebody wrote into it that could not be from us is not read.
    pub(in super::super) fn read(text: &str) -> Self {
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

/// The arguments in GRUB's own config, of the entry that is started when nobody chooses another: the first one. Others
/// may be for other systems on the disk.
pub(in super::super) fn of_first_entry(config: &str) -> String {
    let is_linux = |line: &&str| line.split_whitespace().next().is_some_and(|word| word.starts_with("linux"));
    config.lines().find(is_linux).unwrap_or_default().trim().to_owned()
}

/// The arguments in what grubby tells about a kernel: `args="ro quiet"`.
pub(in super::super) fn quoted_arguments(info: &str) -> String {
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
    fn what_was_added_is_taken_back_and_what_it_replaced_comes_back() {
        let of = |with, without| DropIn { with: words(with), without: words(without) };
        let changed = |drop_in: &DropIn, add, remove| drop_in.changed(&words(add), &words(remove));
        let shared = of("m=1", "m=0 iommu=off");
        assert_eq!(changed(&shared, "m=1", "m=0"), shared);
        assert_eq!(changed(&shared, "m=0", "m=1"), of("m=0", "iommu=off"));
        assert_eq!(changed(&shared, "", "m=1"), of("", "iommu=off"));
        let taken_back = changed(&of("m=1", "m=0"), "", "m=1");
        assert!(taken_back.is_empty() && changed(&taken_back, "", "m=1").is_empty());
    }

    #[test]
    fn the_first_entry_counts() {
        let config = "set default=0\n\tlinux\t/vmlinuz root=/dev/vda ro  a=1 \n\tlinux /old iommu=off\n";
        assert_eq!(of_first_entry(config), "linux\t/vmlinuz root=/dev/vda ro  a=1");
        assert_eq!(of_first_entry("insmod linux\n"), "");
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
        #[test]
        fn our_file_is_read_back(with in arguments(), without in arguments()) {
            let drop_in = DropIn { with, without };
            prop_assert_eq!(DropIn::read(&drop_in.text()), drop_in);
        }

        #[test]
        fn any_text_is_read(text in "(?s).{0,200}") {
            let read = DropIn::read(&text);
            prop_assert!(read.with.iter().chain(&read.without).all(|argument| is_plain(argument)));
            let _ = (quoted_arguments(&text), of_first_entry(&text));
        }
    }
}
