use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::linux::test_tree::TestTree;

const SOON: Duration = Duration::from_millis(300);
const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn returns_the_output_and_passes_arguments_unchanged() {
    let tree = TestTree::new();
    tree.program("tool", "printf '<%s>' \"$@\"; echo noise >&2");
    let output = Command::new("tool", MINUTE).arguments(["a b", "$HOME", ";"]).run(tree.root()).unwrap();
    assert_eq!(output, "<a b><$HOME><;>");
}

#[test]
fn a_failure_contains_the_end_of_the_output() {
    let tree = TestTree::new();
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
fn an_overdue_program_is_killed_with_its_children() {
    let tree = TestTree::new();
    tree.program("hang", "sh -c 'echo $$ > '$ROOT'/child; exec sleep 1000' & wait");
    let began = Instant::now();
    let error = Command::new("hang", SOON).run(tree.root()).unwrap_err();
    assert_eq!(error.reason(), "DeadlineExceeded");
    assert!(began.elapsed() < Duration::from_secs(20));
    let child = tree.read("child");
    // The child dies soon after it was killed, and may be a zombie until init reaps it.
    while is_alive(child.trim()) {
        assert!(began.elapsed() < Duration::from_secs(20), "{child} is still running");
        std::thread::yield_now();
    }
}

fn is_alive(process: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !(state.is_empty() || state.contains(") Z ") || state.contains(") X "))
}

#[test]
fn a_child_that_is_left_behind_does_not_delay_the_result() {
    let tree = TestTree::new();
    tree.program("daemon", "sleep 5 & echo $! > $ROOT/child; echo started");
    let began = Instant::now();
    assert_eq!(Command::new("daemon", MINUTE).run(tree.root()).unwrap(), "started\n");
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[test]
fn the_error_names_a_missing_program() {
    let error = Command::new("mstconfig", MINUTE).run(TestTree::new().root()).unwrap_err();
    assert_eq!(error.to_string(), "program mstconfig not found on this node: install it");
}

#[test]
fn the_first_directory_wins_and_links_may_be_dangling() {
    let tree = TestTree::new();
    tree.program("tool", "");
    assert_eq!(find(tree.root(), "tool").as_deref(), Some("/usr/bin/tool"));
    std::fs::create_dir_all(tree.path("/usr/sbin")).unwrap();
    std::os::unix::fs::symlink("/etc/alternatives/tool", tree.path("/usr/sbin/tool")).unwrap();
    assert_eq!(find(tree.root(), "tool").as_deref(), Some("/usr/sbin/tool"));
}

#[test]
fn long_output_is_cut_at_its_beginning() {
    let text = format!("{}end ", "ä\n".repeat(1000));
    let tail = tail(&text);
    assert_eq!(tail.chars().count(), OUTPUT_LIMIT);
    assert!(tail.ends_with("ä end"), "{tail}");
}

#[test]
fn programs_of_another_tree_need_its_system_bus() {
    let tree = TestTree::new();
    tree.program("tool", "");
    let root = HostRoot::new(tree.path(""));
    let error = Command::new("tool", MINUTE).run(&root).unwrap_err();
    assert!(error.to_string().ends_with("/run/dbus/system_bus_socket"), "{error}");
    assert_eq!(tree.started(), Vec::<String>::new());
}

proptest! {
    #[test]
    fn the_end_of_any_output_is_one_short_line(text in "(?s).{0,1400}") {
        let tail = tail(&text);
        prop_assert!(tail.chars().count() <= OUTPUT_LIMIT && !tail.contains('\n'), "{}", tail);
    }
}
