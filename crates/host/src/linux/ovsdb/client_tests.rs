use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};
use std::thread;

use tempfile::TempDir;

use super::super::{OvsLimits, value};
use super::*;

const LIMIT: Duration = Duration::from_secs(5);
/// Limits for servers that never answer.
const SHORT_LIMITS: OvsLimits =
    OvsLimits { answer: Duration::from_secs(1), apply: Duration::from_secs(1), idle: Duration::from_secs(1) };
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Tree of a host in which `/var/run` is an absolute link to `/run`.
struct Tree {
    directory: TempDir,
    server: Option<Child>,
}

impl Tree {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        fs::create_dir_all(directory.path().join("run/openvswitch")).unwrap();
        fs::create_dir_all(directory.path().join("var")).unwrap();
        symlink("/run", directory.path().join("var/run")).unwrap();
        Self { directory, server: None }
    }

    /// Starts the real server on a new database with one root row.
    fn with_server() -> Self {
        let mut tree = Self::new();
        let (database, socket) = (tree.directory.path().join("conf.db"), tree.socket());
        let created = Command::new("ovsdb-tool").arg("create").arg(&database).arg(SCHEMA).status().unwrap();
        assert!(created.success());
        let watched = nix::sys::inotify::Inotify::init(nix::sys::inotify::InitFlags::empty()).unwrap();
        let flags = nix::sys::inotify::AddWatchFlags::IN_ATTRIB | nix::sys::inotify::AddWatchFlags::IN_CREATE;
        watched.add_watch(&tree.directory.path().join("run/openvswitch"), flags).unwrap();
        let server = Command::new("ovsdb-server")
            .arg(&database)
            .arg(format!("--remote=punix:{}", socket.display()))
            .args(["--no-chdir", "--unixctl=none", "--log-file=/dev/null", "-vconsole:off"])
            .spawn()
            .unwrap();
        tree.server = Some(server);
        watched.read_events().unwrap();
        assert_eq!(tree.vsctl(&["--retry", "init"]), "");
        tree
    }

    fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("run/openvswitch/db.sock")
    }

    fn connect(&self) -> Result<OvsdbClient, HostError> {
        self.connect_with(OvsLimits::default())
    }

    fn connect_with(&self, limits: OvsLimits) -> Result<OvsdbClient, HostError> {
        let socket = "unix:///var/run/openvswitch/db.sock".to_owned();
        let root = HostRoot::new(self.directory.path()).with_ovsdb_socket(socket).with_ovs_limits(limits);
        OvsdbClient::connect(&root, "test")
    }

    /// Runs ovs-vsctl, the independent judge.
    fn vsctl(&self, arguments: &[&str]) -> String {
        let database = format!("--db=unix:{}", self.socket().display());
        let output = Command::new("ovs-vsctl")
            .args([&database, "--no-wait", "--timeout=10"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Accepts one connection and sends `answer`. The connection ends when the returned thread is joined.
fn serve(tree: &Tree, answer: Vec<u8>) -> thread::JoinHandle<UnixStream> {
    let listener = UnixListener::bind(tree.socket()).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The client may refuse the answer before its end.
        let _ = stream.write_all(&answer);
        stream
    })
}

/// Accepts one connection, answers `first` and sends `endless` until the client closes the connection.
fn serve_without_end(tree: &Tree, first: &'static str, endless: &'static str) -> thread::JoinHandle<()> {
    let listener = UnixListener::bind(tree.socket()).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let many = endless.repeat(1 + CHUNK / endless.len());
        let mut result = stream.write_all(first.as_bytes());
        while result.is_ok() {
            result = stream.write_all(many.as_bytes());
        }
    })
}

fn root_row(client: &mut OvsdbClient) -> String {
    let rows = client.transact(&[Operation::select("Open_vSwitch", &["_uuid"])], "read").unwrap();
    value::parse_uuid(&rows[0]["rows"][0]["_uuid"]).unwrap()
}

#[test]
fn a_transaction_changes_rows_and_asserts_others() {
    let tree = Tree::with_server();
    let mut client = tree.connect().unwrap();
    let root = root_row(&mut client);
    let create = [
        Operation::assert_absent("Bridge", "br0"),
        Operation::assert_row("Open_vSwitch", &root, vec![json!(["bridges", "==", value::set([])])]),
        Operation::insert(
            "Bridge",
            "bridge",
            &json!({"name": "br0", "fail_mode": value::optional(Some("secure"))}),
        ),
        Operation::mutate(
            "Open_vSwitch",
            &root,
            &[json!(["bridges", "insert", value::set([value::named_uuid("bridge")])])],
        ),
    ];
    client.transact(&create, "create br0").unwrap();
    assert_eq!(tree.vsctl(&["list-br"]), "br0");
    assert_eq!(tree.vsctl(&["get", "Bridge", "br0", "fail_mode"]), "secure");
    let again = client.transact(&create, "create br0").unwrap_err();
    assert!(matches!(again, HostError::OvsChanged { .. }), "{again}");
    let bridge = tree.vsctl(&["get", "Bridge", "br0", "_uuid"]);
    let refused = client
        .transact(&[Operation::update("Bridge", &bridge, &json!({"fail_mode": "wrong"}))], "change br0")
        .unwrap_err();
    assert!(refused.to_string().contains("update Bridge"), "{refused}");
}

#[test]
fn keys_are_changed_and_foreign_keys_are_kept() {
    let tree = Tree::with_server();
    tree.vsctl(&[
        "set",
        "Open_vSwitch",
        ".",
        "other_config:theirs=1",
        "other_config:ours=1",
        "other_config:old=1",
    ]);
    let mut client = tree.connect().unwrap();
    let root = root_row(&mut client);
    let new = [("ours".to_owned(), "2".to_owned())].into();
    let removed = value::set(["ours".into(), "old".into()]);
    let mutations =
        [json!(["other_config", "delete", removed]), json!(["other_config", "insert", value::map(&new)])];
    client.transact(&[Operation::mutate("Open_vSwitch", &root, &mutations)], "set keys").unwrap();
    assert_eq!(tree.vsctl(&["get", "Open_vSwitch", ".", "other_config"]), "{ours=\"2\", theirs=\"1\"}");
}

#[test]
fn a_monitor_reports_changes_and_the_end_of_the_server() {
    let mut tree = Tree::with_server();
    let mut client = tree.connect().unwrap();
    let content = client.monitor(json!({"Bridge": {"columns": ["name"]}}), "watch").unwrap();
    assert_eq!(content, json!({}));
    tree.vsctl(&["add-br", "br1"]);
    let update = client.next_update(Instant::now() + LIMIT, "watch").unwrap().unwrap();
    assert!(update.to_string().contains("br1"), "{update}");
    client.echo("watch").unwrap();
    let none = client.next_update(Instant::now() + Duration::from_millis(20), "watch").unwrap();
    assert_eq!(none, None);
    tree.stop();
    let error = client.next_update(Instant::now() + LIMIT, "watch").unwrap_err();
    assert_eq!(error.reason(), "OvsUnreachable");
    assert_eq!(tree.connect().unwrap_err().reason(), "OvsUnreachable", "the socket is left behind");
}

#[test]
fn a_connection_has_several_monitors() {
    let tree = Tree::with_server();
    let mut client = tree.connect().unwrap();
    client.monitor(json!({"Bridge": {"columns": ["name"]}}), "watch bridges").unwrap();
    let ports = json!({"Port": {"columns": ["tag"], "select": {"initial": false}}});
    client.monitor(ports, "watch ports").unwrap();
    tree.vsctl(&["add-br", "br1"]);
    let update =
        |client: &mut OvsdbClient| client.next_update(Instant::now() + LIMIT, "watch").unwrap().unwrap();
    let updates = [update(&mut client), update(&mut client)].map(|update| update.to_string());
    assert!(updates[0].contains("Bridge") && updates[1].contains("Port"), "{updates:?}");
}

#[test]
fn a_missing_socket_means_that_open_vswitch_does_not_run() {
    let tree = Tree::new();
    assert_eq!(tree.connect().unwrap_err().reason(), "OvsNotRunning");
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let tree = Tree::new();
    let server = serve(&tree, Vec::new());
    let mut client = tree.connect().unwrap();
    let started = Instant::now();
    let error = client.echo("check").unwrap_err();
    assert_eq!(error.reason(), "OvsTimeout");
    assert!((LIMIT..2 * LIMIT).contains(&started.elapsed()));
    drop(server.join());
}

#[test]
fn a_server_whose_queue_is_full_does_not_answer() {
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
    let tree = Tree::new();
    let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(&tree.socket()).unwrap()).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let _queued = tree.connect_with(SHORT_LIMITS).unwrap();
    let started = Instant::now();
    assert_eq!(tree.connect_with(SHORT_LIMITS).unwrap_err().reason(), "OvsTimeout");
    assert!(started.elapsed() >= SHORT_LIMITS.answer);
}

/// Small messages, a message without an end, and no message at all.
const ENDLESS: [(&str, &str); 5] = [
    ("", r#"{"method":"update","params":[null,{}],"id":null}"#),
    ("", r#"{"method":"locked","params":[],"id":null}"#),
    ("", r#"{"method":"echo","params":[],"id":"e"}"#),
    (r#"{"id":1,"result":""#, "x"),
    ("", " "),
];

#[test]
fn a_server_that_sends_without_end_is_given_up() {
    for (first, endless) in ENDLESS {
        let tree = Tree::new();
        let server = serve_without_end(&tree, first, endless);
        let mut client = tree.connect_with(SHORT_LIMITS).unwrap();
        let started = Instant::now();
        let error = client.echo("check").unwrap_err();
        assert!(
            matches!(error.reason(), "OvsReplyInvalid" | "OvsTimeout" | "OvsUnreachable"),
            "{endless}: {error:?}"
        );
        assert!(started.elapsed() < 2 * SHORT_LIMITS.answer, "{endless}: {:?}", started.elapsed());
        drop(client);
        server.join().unwrap();
    }
}

#[test]
fn waiting_for_a_change_ends_also_while_other_messages_arrive() {
    for (first, endless) in &ENDLESS[1..] {
        let tree = Tree::new();
        let server = serve_without_end(&tree, first, endless);
        let mut client = tree.connect_with(SHORT_LIMITS).unwrap();
        for is_waiting in [true, false] {
            let started = Instant::now();
            let deadline = started + SHORT_LIMITS.answer;
            let _ = if is_waiting {
                client.next_update(deadline, "watch")
            } else {
                client.received_update(deadline, "watch")
            };
            assert!(started.elapsed() < 2 * SHORT_LIMITS.answer, "{endless}: {:?}", started.elapsed());
        }
        drop(client);
        server.join().unwrap();
    }
}

#[test]
fn bytes_that_are_available_are_not_received_after_the_deadline() {
    let tree = Tree::new();
    let server = serve(&tree, ENDLESS[0].1.as_bytes().to_vec());
    let mut client = tree.connect().unwrap();
    let available = poll(&mut [PollFd::new(client.as_fd(), PollFlags::POLLIN)], PollTimeout::MAX).unwrap();
    assert_eq!(available, 1);
    assert_eq!(client.next_update(Instant::now(), "watch").unwrap(), None);
    assert_eq!(client.received_update(Instant::now() + LIMIT, "watch").unwrap(), Some(json!([null, {}])));
    drop(server.join());
}

#[test]
fn changes_that_nobody_takes_are_limited() {
    let update = format!(r#"{{"method":"update","params":["{}",{{}}],"id":null}}"#, "x".repeat(1 << 20));
    let mut sent = update.repeat((MAX_RECEIVED >> 20) + 1);
    sent.push_str(r#"{"id":1,"result":[],"error":null}"#);
    let tree = Tree::new();
    let server = serve(&tree, sent.into_bytes());
    let patient = OvsLimits { answer: 12 * LIMIT, ..SHORT_LIMITS };
    let error = tree.connect_with(patient).unwrap().echo("check").unwrap_err();
    assert_eq!(error.reason(), "OvsReplyInvalid", "{error:?}");
    drop(server.join());
}

#[test]
fn an_invalid_answer_is_an_error() {
    let answers = ["[]", "{}", "{\"id\":1,\"method\":7}", "x", "{]"].map(|text| text.as_bytes().to_vec());
    for answer in answers {
        let tree = Tree::new();
        let server = serve(&tree, answer.clone());
        let error = tree.connect().unwrap().echo("check").unwrap_err();
        assert_eq!(error.reason(), "OvsReplyInvalid", "{}", String::from_utf8_lossy(&answer));
        drop(server.join());
    }
}

#[test]
fn requests_of_the_server_are_answered_and_unknown_messages_ignored() {
    let tree = Tree::new();
    let sent = r#"{"method":"echo","id":"e","params":["x"]}{"method":"news","params":[],"id":null}
        {"id":9,"result":1,"error":null}{"id":1,"result":[],"error":null}"#;
    let server = serve(&tree, sent.as_bytes().to_vec());
    let mut client = tree.connect().unwrap();
    client.echo("check").unwrap();
    drop(client);
    let mut received = String::new();
    server.join().unwrap().read_to_string(&mut received).unwrap();
    assert!(received.contains(r#""id":"e""#) && received.contains(r#"["x"]"#), "{received}");
}

#[test]
fn results_name_the_failed_operation() {
    let operations = [Operation::select("Bridge", &["name"]), Operation::assert_absent("Bridge", "a")];
    let check = |answer| check_results(&operations, answer);
    assert_eq!(check(json!([{}, {"error": "timed out"}])), Err(TransactionFailure::Outdated));
    let refused = |operation: &str| {
        let (error, details) = ("bad".to_owned(), "why".to_owned());
        Err(TransactionFailure::Refused { operation: operation.to_owned(), error, details })
    };
    let bad = json!({"error": "bad", "details": "why"});
    assert_eq!(check(json!([bad, null])), refused("select Bridge"));
    assert_eq!(check(json!([{}, {}, bad])), refused("commit"));
    for wrong in [json!({}), json!(null), json!([{}])] {
        assert!(matches!(check(wrong), Err(TransactionFailure::Invalid(_))));
    }
}
