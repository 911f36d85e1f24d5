use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::linux::tree::Tree;

const SOON: Duration = Duration::from_millis(300);
const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn gives_what_was_printed_and_passes_arguments_as_they_are() {
    let tree = Tree::new();
    tree.program("tool", "printf '<%s>' \"$@\"; echo noise >&2");
    let output = Command::new("tool", MINUTE).arguments(["a b", "$HOME", ";"]).run(tree.root()).unwrap();
    assert_eq!(output, "<a b><$HOME><;>");
}

#[test]
fn a_failure_repeats_the_programs_last_words() {
    let tree = Tree::new();
    tree.program("tool", "echo fine; echo 'no such   card' >&2; exit 3");
    let error = Command::new("tool", MINUTE).arguments(["query"]).run(tree.root()).unwrap_err();
    assert_eq!(error.to_string(), "`tool query` failed (exit status: 3): no such card");
    assert_eq!(error.reason(), "CommandFailed");

    tree.program("silent", "exit 1");
    let error = Command::new("silent", MINUTE).run(tree.root()).unwrap_err();
    assert_eq!(error.to_string(), "`silent` failed (exit status: 1)");

    tree.program("complains", "echo '-E- in its output'; exit 1");
    let error = Command::new("complains", MINUTE).run(tree.root()).unwrap_err();
    assert_eq!(error.to_string(), "`complains` failed (exit status: 1): -E- in its output");
}

#[test]
fn what_takes_too_long_is_stopped_with_its_children() {
    let tree = Tree::new();
    tree.program("hang", "sh -c 'echo $$ > '$ROOT'/child; exec sleep 1000' & wait");
    let began = Instant::now();
    let error = Command::new("hang", SOON).run(tree.root()).unwrap_err();
    assert_eq!(error.reason(), "DeadlineExceeded");
    assert!(began.elapsed() < Duration::from_secs(20));
    let child = tree.read("child");
    // It dies soon after it was killed, and then at most waits for init to collect it.
    while is_alive(child.trim()) {
        assert!(began.elapsed() < Duration::from_secs(20), "{child} lives on");
        std::thread::yield_now();
    }
}

fn is_alive(process: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !(state.is_empty() || state.contains(") Z ") || state.contains(") X "))
}

#[test]
fn a_child_that_is_left_behind_does_not_hold_it_up() {
    let tree = Tree::new();
    tree.program("daemon", "sleep 5 & echo $! > $ROOT/child; echo started");
    let began = Instant::now();
    assert_eq!(Command::new("daemon", MINUTE).run(tree.root()).unwrap(), "started\n");
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = Command::new("mstconfig", MINUTE).run(Tree::new().root()).unwrap_err();
    assert_eq!(error.to_string(), "this machine has no program mstconfig: install it");
}

#[test]
fn the_first_directory_wins_and_links_need_not_lead_anywhere() {
    let tree = Tree::new();
    tree.program("tool", "");
    assert_eq!(find(tree.root(), "tool").as_deref(), Some("/usr/bin/tool"));
    std::fs::create_dir_all(tree.path("/usr/sbin")).unwrap();
    std::os::unix::fs::symlink("/etc/alternatives/tool", tree.path("/usr/sbin/tool")).unwrap();
    assert_eq!(find(tree.root(), "tool").as_deref(), Some("/usr/sbin/tool"));
}

#[test]
fn long_words_are_cut_at_their_beginning() {
    let text = format!("{}end ", "ä\n".repeat(1000));
    let tail = tail(&text);
    assert_eq!(tail.chars().count(), WORDS);
    assert!(tail.ends_with("ä end"), "{tail}");
}

#[test]
fn without_a_bus_another_tree_has_nobody_to_start_its_programs() {
    let tree = Tree::new();
    tree.program("tool", "");
    let root = HostRoot::new(tree.path(""));
    let error = Command::new("tool", MINUTE).run(&root).unwrap_err();
    assert!(error.to_string().ends_with("/run/dbus/system_bus_socket"), "{error}");
    assert_eq!(tree.started(), Vec::<String>::new());
}

proptest! {
    #[test]
    fn any_last_words_are_one_short_line(text in "(?s).{0,1400}") {
        let tail = tail(&text);
        prop_assert!(tail.chars().count() <= WORDS && !tail.contains('\n'), "{}", tail);
    }
}
