//! Tests that need systemd and change the machine. The program `lab` of `vfleet-tests` runs them in the lab, where the
//! file tree is also mounted at `/host`, as in a pod.

use std::fs;
use std::process;
use std::time::{Duration, Instant};

use vfleet_plan::{HostFile, ModuleState, Step};

use super::command::Command;
use super::root::HostRoot;
use super::{files, modules, steps};
use crate::HostError;

const UNIT: &str = "sriov-config.service";
const MINUTE: Duration = Duration::from_mins(1);

fn pod_root() -> HostRoot {
    HostRoot::new("/host")
}

/// Runs a shell command of the host through systemd and returns its output.
fn shell(script: &str, limit: Duration) -> Result<String, HostError> {
    Command::new("sh", limit).arguments(["-c", script]).run(&pod_root())
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
#[ignore = "has systemd start programs: for the lab"]
fn a_program_runs_on_the_host_and_not_as_our_child() {
    let before = threads();
    let output = shell("echo out; echo err >&2; cat /proc/$$/cgroup; echo $PPID", MINUTE).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!((lines.first(), lines.last()), (Some(&"out"), Some(&"1")), "{output}");
    assert!(output.contains("/vfleet-sh-"), "{output}");
    // Threads that have ended may be listed for a moment.
    let began = Instant::now();
    while threads() > before {
        assert!(began.elapsed() < MINUTE, "a D-Bus thread is left");
        std::thread::yield_now();
    }
    let left =
        shell("systemctl list-units --all --plain --no-legend 'vfleet-*' | grep -v running; true", MINUTE);
    assert!(!left.unwrap().contains("failed"));
}

#[test]
#[ignore = "has systemd start programs: for the lab"]
fn arguments_are_passed_unchanged() {
    let arguments = ["<%s>", "a b", "$HOME", "${HOME}", "x${HOME}y", "$$", "%n", "\\x20", "\"'", ";", ""];
    let output = Command::new("printf", MINUTE).arguments(arguments).run(&pod_root()).unwrap();
    let expected: Vec<String> = arguments[1..].iter().map(|argument| format!("<{argument}>")).collect();
    assert_eq!(output, expected.concat());
}

#[test]
#[ignore = "has systemd start programs: for the lab"]
fn a_failure_contains_the_output_and_leaves_no_unit() {
    let error = shell("echo 'no such card' >&2; exit 3", MINUTE).unwrap_err();
    assert_eq!(error.reason(), "CommandFailed");
    assert!(error.to_string().ends_with("failed (exit-code, status 3): no such card"), "{error}");
    let units = shell("systemctl list-units --all --failed --plain --no-legend 'vfleet-*'", MINUTE).unwrap();
    assert_eq!(units, "");
}

#[test]
#[ignore = "has systemd start programs: for the lab"]
fn a_program_that_hangs_is_killed_by_systemd() {
    let mark = format!("/run/vfleet-test-{}", process::id());
    let script = format!("echo $$ > {mark}; exec sleep 1000");
    let error = shell(&script, Duration::from_secs(5)).unwrap_err();
    assert_eq!(error.reason(), "DeadlineExceeded", "{error}");
    assert!(error.to_string().contains("was killed"), "{error}");
    let process = fs::read_to_string(&mark).unwrap();
    assert!(process.trim().parse::<u32>().is_ok(), "{process}");
    assert!(!fs::exists(format!("/proc/{}", process.trim())).unwrap());
    fs::remove_file(mark).unwrap();
}

#[test]
#[ignore = "enables units: for the lab"]
fn a_unit_is_enabled_and_disabled_by_systemd() {
    let root = pod_root();
    let path = format!("/etc/systemd/system/{UNIT}");
    let text = "[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let file = HostFile { path: path.clone(), text: text.to_owned(), is_program: false };
    let step = |step: Step| steps::execute(&root, &step).unwrap();
    let state = || shell(&format!("systemctl is-enabled {UNIT}; true"), MINUTE).unwrap();
    step(Step::WriteFile { pf: None, file });
    for _ in 0..2 {
        step(Step::EnableUnit { unit: UNIT.to_owned() });
        assert_eq!(state(), "enabled\n");
    }
    assert!(files::read_enabled_units(&root).unwrap().contains(UNIT));
    for _ in 0..2 {
        step(Step::DisableUnit { unit: UNIT.to_owned() });
        assert_eq!(state(), "disabled\n");
    }
    // Also if its file is removed first.
    step(Step::EnableUnit { unit: UNIT.to_owned() });
    step(Step::RemoveFile { pf: None, path });
    let state = shell(&format!("systemctl show --property LoadState {UNIT}"), MINUTE).unwrap();
    assert_eq!(state, "LoadState=not-found\n", "systemd has reloaded its units");
    step(Step::DisableUnit { unit: UNIT.to_owned() });
    assert!(files::read_enabled_units(&root).unwrap().is_empty());
}

#[test]
#[ignore = "loads modules: for the lab"]
fn a_module_is_loaded() {
    let root = pod_root();
    let load = |module: &str| {
        steps::execute(&root, &Step::LoadModule { module: module.to_owned(), options: Vec::new() })
    };
    // Other tests of the same boot may have loaded modules that use it.
    shell("modprobe -r vhost_net tun", MINUTE).unwrap();
    assert_eq!(modules::read_states(&root).unwrap().get("tun"), Some(&ModuleState::Loadable));
    for _ in 0..2 {
        load("tun").unwrap();
        assert_eq!(modules::read_states(&root).unwrap().get("tun"), Some(&ModuleState::Loaded));
    }
    assert_eq!(load("igb_uio").unwrap_err().reason(), "NoSuchModule");
}

#[test]
#[ignore = "suspends the system bus: for the lab"]
fn a_request_to_a_silent_bus_times_out() {
    let signal = |signal: &str| {
        let script = format!("kill -{signal} $(cat /sys/fs/cgroup/system.slice/dbus.service/cgroup.procs)");
        assert!(process::Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success());
    };
    signal("STOP");
    let error = shell("true", Duration::from_secs(1)).unwrap_err();
    signal("CONT");
    assert_eq!(error.reason(), "DeadlineExceeded", "{error}");
    assert!(error.to_string().starts_with("cannot run sh -c true: no D-Bus reply within"), "{error}");
    assert_eq!(shell("echo well", MINUTE).unwrap(), "well\n");
}
