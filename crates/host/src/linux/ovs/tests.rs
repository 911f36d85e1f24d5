use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use vfleet_plan::{BridgeKind, DEFAULT_PROTECTION_TIME, OvsDatabase};

use super::test_switch::TestSwitch;
use super::*;

/// Time in which an expected call arrives.
const SOON: Duration = Duration::from_secs(20);

fn settings(root: HostRoot, reads_ovs: bool) -> HostSettings {
    let (has_lone_vfs, node_addresses) = (false, Vec::new());
    HostSettings { root, has_lone_vfs, node_addresses, protection: DEFAULT_PROTECTION_TIME, reads_ovs }
}

fn read_facts(root: &HostRoot) -> OvsFacts {
    read(&settings(root.clone(), true), &HostFacts::default())
}

fn database(root: &HostRoot) -> OvsDatabase {
    match read_facts(root) {
        OvsFacts::Database(database) => database,
        other => panic!("{other:?}"),
    }
}

/// Watch whose calls a test receives.
struct Watched {
    calls: Mutex<Receiver<()>>,
    _guard: watch::OvsWatch,
}

impl Watched {
    fn new(root: &HostRoot) -> Self {
        let (sender, calls) = channel();
        let callback = Arc::new(move || {
            let _ = sender.send(());
        });
        Self { calls: Mutex::new(calls), _guard: watch::watch(root, callback).unwrap() }
    }

    /// Waits for calls until `is_reached`.
    #[track_caller]
    fn wait_until(&self, is_reached: impl Fn() -> bool) {
        let deadline = Instant::now() + SOON;
        while !is_reached() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            self.calls.lock().unwrap().recv_timeout(remaining).expect("a call of the watch");
        }
    }

    /// Returns the number of calls that have arrived and are not received yet.
    fn count(&self) -> usize {
        self.calls.lock().unwrap().try_iter().count()
    }

    /// Receives the next call.
    #[track_caller]
    fn expect_call(&self) {
        self.calls.lock().unwrap().recv_timeout(SOON).expect("a call of the watch");
    }
}

#[test]
fn open_vswitch_is_read_if_it_is_needed() {
    let switch = TestSwitch::started();
    let without = settings(switch.root().clone(), false);
    assert_eq!(read(&without, &HostFacts::default()), OvsFacts::NotRead);
    let mut facts = HostFacts::default();
    facts.files.insert(MANAGED_OVS_BRIDGES.to_owned(), "{\"br0\": {}}".to_owned());
    assert_eq!(read(&without, &facts), OvsFacts::Database(OvsDatabase::default()));
    switch.vsctl(&["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=dummy"]);
    switch.vsctl(&["set", "Open_vSwitch", ".", "other_config:hw-offload=true"]);
    let found = database(switch.root());
    assert!(found.has_offload && !found.is_behind);
    assert_eq!(found.bridge("br0").unwrap().ports[0].interfaces[0].type_, "internal");
    assert_eq!(BridgeKind::Ovs.as_str(), "Open vSwitch bridge");
}

#[test]
fn an_open_vswitch_that_does_not_work_is_a_fact() {
    let mut switch = TestSwitch::new();
    let root = switch.impatient_root();
    let is_absent = |facts: OvsFacts| matches!(facts, OvsFacts::NotRunning { .. });
    assert!(is_absent(read_facts(&root)));
    switch.create_database();
    switch.start_server();
    assert_eq!(database(&root), OvsDatabase::default(), "no root row");
    // ovs-vswitchd does not run: the change is not applied, and that is found out once.
    switch.vsctl(&["--no-wait", "add-br", "br0"]);
    switch.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", "next_cfg=7"]);
    assert!(database(&root).is_behind);
    let started = Instant::now();
    assert!(database(&root).is_behind && started.elapsed() < root.ovs_limits().apply);
    switch.signal_server(Signal::SIGSTOP);
    let unread = read_facts(&root);
    assert!(matches!(&unread, OvsFacts::Unreadable { reason: "OvsTimeout", .. }), "{unread:?}");
    let started = Instant::now();
    assert_eq!(read_facts(&root), unread);
    assert!(started.elapsed() < root.ovs_limits().answer, "a server that does not answer is asked once");
    switch.signal_server(Signal::SIGCONT);
    switch.kill_server();
    root.cache().ovs.set_answered();
    assert!(is_absent(read_facts(&root)), "the socket is left behind");
}

#[test]
fn a_watch_reports_drift_and_no_statistics() {
    let switch = TestSwitch::started();
    let root = switch.root();
    switch.vsctl(&["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=dummy"]);
    let watched = Watched::new(root);
    assert_eq!(watched.count(), 0, "nothing is watched before facts are read");
    database(root);
    watched.expect_call();
    // ovs-vswitchd writes statistics, and our own increments only numbers.
    switch.vsctl(&["set", "Open_vSwitch", ".", "other_config:stats-update-interval=5000"]);
    watched.expect_call();
    for _ in 0..3 {
        switch.vsctl(&["set", "Open_vSwitch", ".", "external_ids:other=1", "statistics:load=1"]);
        switch.vsctl(&["--no-wait", "set", "Interface", "br0", "statistics:rx_bytes=7"]);
    }
    // Changes arrive in order: if the first call belongs to the port, nothing before it was a call.
    assert_eq!(watched.count(), 0);
    switch.vsctl(&["add-port", "br0", "p0", "--", "set", "Interface", "p0", "type=dummy"]);
    watched.wait_until(|| database(root).port_of("p0").is_some());
    let changes: [&[&str]; 3] = [
        &["set", "Interface", "p0", "options:a=b"],
        &["set", "Bridge", "br0", "external_ids:a=b"],
        &["del-port", "br0", "p0"],
    ];
    for change in changes {
        let before = database(root);
        switch.vsctl(change);
        watched.wait_until(|| database(root) != before);
    }
}

#[test]
fn a_watch_outlives_the_server() {
    let mut switch = TestSwitch::new();
    let root = switch.impatient_root();
    let watched = Watched::new(&root);
    let is_read = || matches!(read_facts(&root), OvsFacts::Database(_));
    assert!(!is_read());
    switch.create_database();
    switch.start_server();
    watched.wait_until(is_read);
    switch.kill_server();
    watched.wait_until(|| !is_read());
    switch.start_server();
    watched.wait_until(is_read);
    // A server that hangs keeps its connections.
    switch.signal_server(Signal::SIGSTOP);
    watched.wait_until(|| !is_read());
    switch.signal_server(Signal::SIGCONT);
    watched.wait_until(is_read);
    // A change that ovs-vswitchd applies late.
    switch.vsctl(&["--no-wait", "init"]);
    switch.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", "next_cfg=7"]);
    assert!(database(&root).is_behind);
    switch.start_switch();
    watched.wait_until(|| !database(&root).is_behind);
}

#[test]
fn a_watch_survives_a_server_that_never_answers() {
    let mut switch = TestSwitch::new();
    let root = switch.impatient_root();
    let watched = Watched::new(&root);
    let listener = UnixListener::bind(switch.socket()).unwrap();
    assert!(matches!(read_facts(&root), OvsFacts::Unreadable { reason: "OvsTimeout", .. }));
    drop(listener);
    switch.create_database();
    switch.start_server();
    watched.wait_until(|| matches!(read_facts(&root), OvsFacts::Database(_)));
    // Another socket is followed.
    let other = settings(root.clone().with_ovsdb_socket("/run/other.sock".to_owned()), true);
    watched.count();
    assert!(matches!(read(&other, &HostFacts::default()), OvsFacts::NotRunning { .. }));
    watched.expect_call();
    read_facts(&root);
    watched.expect_call();
}
