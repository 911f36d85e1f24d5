use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use vfleet_plan::{BridgeKind, DEFAULT_PROTECTION_TIME, OvsDatabase};

use super::super::ovsdb::MessageBuffer;
use super::super::ovsdb::OvsLimits;
use super::test_switch::{SHORT_LIMITS, TestSwitch};
use super::*;

/// Time in which an expected call arrives.
const SOON: Duration = Duration::from_secs(20);

fn settings(root: HostRoot, reads_ovs: bool) -> HostSettings {
    let (has_lone_vfs, node_addresses) = (false, Vec::new());
    HostSettings {
        root,
        has_lone_vfs,
        node_addresses,
        protection: DEFAULT_PROTECTION_TIME,
        reads_ovs,
        cni_directory: None,
    }
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
fn a_change_that_was_not_applied_is_forgotten_with_its_database() {
    let mut switch = TestSwitch::new();
    let root = switch.impatient_root();
    for _ in 0..2 {
        switch.create_database();
        switch.start_server();
        switch.vsctl(&["--no-wait", "init"]);
        assert!(!database(&root).is_behind, "the number is one of the database before");
        switch.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", "next_cfg=7"]);
        assert!(database(&root).is_behind);
        switch.kill_server();
    }
}

#[test]
fn a_bridge_that_ovs_vswitchd_does_not_create_is_a_fact() {
    let mut switch = TestSwitch::started();
    let root = switch.root().clone();
    let lacks = |name: &str| database(&root).bridge(name).unwrap().lacks_datapath;
    switch.vsctl(&["add-br", "good", "--", "set", "Bridge", "good", "datapath_type=dummy"]);
    // It has neither an error nor a number, and the change counts as applied.
    switch.vsctl(&["--no-wait", "add-br", "bad", "--", "set", "Bridge", "bad", "datapath_type=nonsense"]);
    switch.vsctl(&["set", "Open_vSwitch", ".", "external_ids:test=2"]);
    assert_eq!(switch.vsctl(&["get", "Interface", "bad", "ofport", "error"]), "[]\n[]");
    assert!(lacks("bad") && !lacks("good") && !database(&root).is_behind);
    // A bridge that is not applied yet is no failure.
    switch.signal_switch(Signal::SIGSTOP);
    let impatient = switch.impatient_root();
    switch.vsctl(&["--no-wait", "add-br", "new", "--", "set", "Bridge", "new", "datapath_type=dummy"]);
    switch.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", "next_cfg=99"]);
    let behind = database(&impatient);
    assert!(behind.is_behind && behind.bridges.iter().all(|bridge| !bridge.lacks_datapath), "{behind:?}");
    switch.signal_switch(Signal::SIGCONT);
    switch.vsctl(&["set", "Open_vSwitch", ".", "external_ids:test=3"]);
    assert!(!lacks("new"));
    // The number of a port is on the disk and survives a restart, also if the bridge does not.
    switch.kill_switch();
    switch.kill_server();
    switch.start_server();
    switch.start_switch_without_dummy();
    assert_eq!(switch.vsctl(&["get", "Interface", "good", "ofport", "error"]), "65534\n[]");
    assert!(lacks("good"));
}

/// The server forgets datapaths, and has the number of the applied configuration on disk.
#[test]
fn a_bridge_has_its_datapath_while_ovs_vswitchd_connects_to_a_new_server() {
    let mut switch = TestSwitch::started();
    let mark = "external_ids:vfleet.io/uplink=\"0000:01:00.0\"";
    switch.vsctl(&["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=dummy", mark]);
    switch.signal_switch(Signal::SIGSTOP);
    switch.kill_server();
    switch.start_server();
    let root = switch.root().clone();
    let lacks_datapath = |root: &HostRoot| {
        let found = database(root);
        assert!(!found.is_behind, "{found:?}");
        found.bridge("br0").unwrap().lacks_datapath
    };
    thread::scope(|scope| {
        let read = scope.spawn(|| lacks_datapath(&root));
        switch.vsctl(&["--retry", "--no-wait", "show"]);
        switch.signal_switch(Signal::SIGCONT);
        assert!(!read.join().unwrap());
    });
    // Without ovs-vswitchd, that is found out once.
    switch.kill_switch();
    switch.kill_server();
    switch.start_server();
    let root = switch.impatient_root();
    assert!(lacks_datapath(&root));
    let started = Instant::now();
    assert!(lacks_datapath(&root) && started.elapsed() < root.ovs_limits().apply);
    switch.start_switch();
    assert!(!lacks_datapath(&root));
}

#[test]
fn a_bridge_without_a_datapath_is_read_while_another_change_is_applied() {
    let switch = TestSwitch::started();
    let mark = "external_ids:vfleet.io/uplink=\"0000:01:00.0\"";
    switch.vsctl(&[
        "--no-wait",
        "add-br",
        "bad",
        "--",
        "set",
        "Bridge",
        "bad",
        "datapath_type=nonsense",
        mark,
    ]);
    switch.vsctl(&["set", "Open_vSwitch", ".", "external_ids:test=2"]);
    switch.signal_switch(Signal::SIGSTOP);
    switch.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", "next_cfg=99"]);
    let root =
        switch.root().clone().with_ovs_limits(OvsLimits { apply: 3 * SHORT_LIMITS.apply, ..SHORT_LIMITS });
    thread::scope(|scope| {
        let read = scope.spawn(|| database(&root));
        switch.vsctl(&["--no-wait", "show"]);
        switch.signal_switch(Signal::SIGCONT);
        let found = read.join().unwrap();
        assert!(!found.is_behind && found.bridge("bad").unwrap().lacks_datapath, "{found:?}");
    });
}

#[test]
fn a_dead_ovs_vswitchd_is_waited_for_once_whoever_makes_more_changes() {
    let mut switch = TestSwitch::started();
    let root = switch.impatient_root();
    switch.kill_switch();
    for next in 50..53 {
        switch.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", &format!("next_cfg={next}")]);
        let started = Instant::now();
        assert!(database(&root).is_behind);
        assert_eq!(started.elapsed() < root.ovs_limits().apply, next > 50, "change {next}");
    }
    switch.start_switch();
    assert!(!database(&root).is_behind);
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

/// Answer of a server to a request with this method and identifier; `None` for no answer.
type Answer = fn(method: &str, id: &Value) -> Option<String>;

/// Starts a server that answers requests with `answer`, and closes a connection after the answer if it `is_closing`.
/// Returns the times of its connections.
fn serve(switch: &TestSwitch, answer: Answer, is_closing: bool) -> Receiver<Instant> {
    let listener = UnixListener::bind(switch.socket()).unwrap();
    let (sender, accepted) = channel();
    thread::spawn(move || {
        // Until the test ends and the receiver is gone.
        while let Ok((stream, _)) = listener.accept()
            && sender.send(Instant::now()).is_ok()
        {
            thread::spawn(move || answer_requests(stream, answer, is_closing));
        }
    });
    accepted
}

fn answer_requests(mut stream: UnixStream, answer: Answer, is_closing: bool) {
    let (mut buffer, mut chunk) = (MessageBuffer::default(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        buffer.push(&chunk[..length]);
        while let Some(request) = buffer.next().unwrap() {
            if let Some(text) = answer(request["method"].as_str().unwrap(), &request["id"])
                && (stream.write_all(text.as_bytes()).is_err() || is_closing)
            {
                return;
            }
        }
    }
}

fn result(id: &Value, result: &Value) -> String {
    serde_json::json!({"id": id, "result": result, "error": null}).to_string()
}

#[test]
fn a_server_that_closes_connections_at_once_is_asked_less_and_less() {
    let switch = TestSwitch::new();
    let root = switch.impatient_root();
    let accepted = serve(&switch, |_, id| Some(result(id, &serde_json::json!({}))), true);
    root.cache().ovs.set_socket(Some(root.ovsdb_socket()));
    let _watched = Watched::new(&root);
    let times: Vec<Instant> = (0..6).map(|_| accepted.recv_timeout(SOON).unwrap()).collect();
    // 50, 100, 200, 400 and 800 ms.
    let between = times[5] - times[0];
    assert!(between >= Duration::from_millis(1500), "6 connections in {between:?}");
}

#[test]
fn a_server_that_answers_everything_but_reads_does_not_count_as_working() {
    let switch = TestSwitch::new();
    let root = switch.impatient_root();
    let no_reads: Answer = |method, id| (method != "transact").then(|| result(id, &serde_json::json!({})));
    let _accepted = serve(&switch, no_reads, false);
    root.cache().ovs.set_socket(Some(root.ovsdb_socket()));
    let watched = Watched::new(&root);
    watched.expect_call();
    let unread = read_facts(&root);
    assert!(matches!(&unread, OvsFacts::Unreadable { reason: "OvsTimeout", .. }), "{unread:?}");
    // As the agent does, each call leads to a read, which must not wait for the server again.
    let calls = watched.calls.lock().unwrap();
    let end = Instant::now() + 4 * root.ovs_limits().answer;
    while calls.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok() {
        let started = Instant::now();
        assert_eq!(read_facts(&root), unread);
        assert!(started.elapsed() < root.ovs_limits().answer, "{:?}", started.elapsed());
    }
}

#[test]
fn a_watch_gives_up_a_server_that_sends_updates_without_end() {
    let switch = TestSwitch::new();
    let root = switch.impatient_root();
    let listener = UnixListener::bind(switch.socket()).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let update = r#"{"method":"update","params":[null,{"Port":{}}],"id":null}"#.repeat(100);
        let mut sent = stream.write_all(result(&1.into(), &serde_json::json!({})).as_bytes());
        while sent.is_ok() {
            sent = stream.write_all(update.as_bytes());
        }
    });
    root.cache().ovs.set_socket(Some(root.ovsdb_socket()));
    let watched = Watched::new(&root);
    server.join().unwrap();
    drop(watched);
}
