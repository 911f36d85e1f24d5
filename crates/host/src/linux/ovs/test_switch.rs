//! Open vSwitch for tests: the real ovsdb-server and ovs-vswitchd in a directory of their own, with dummy interfaces
//! that need no kernel module.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::super::ovsdb::OvsLimits;
use super::super::root::HostRoot;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Limits under which a dead Open vSwitch is noticed soon.
pub(in crate::linux) const SHORT_LIMITS: OvsLimits = OvsLimits {
    answer: Duration::from_millis(500),
    apply: Duration::from_millis(700),
    idle: Duration::from_millis(300),
};

/// Limits for switches that work, also on a busy machine.
const LONG_LIMITS: OvsLimits = OvsLimits {
    answer: Duration::from_secs(20),
    apply: Duration::from_secs(20),
    idle: Duration::from_secs(20),
};

/// Open vSwitch in the tree of a host, in which `/var/run` is a link to `/run`.
pub(in crate::linux) struct TestSwitch {
    directory: TempDir,
    root: HostRoot,
    server: Option<Child>,
    switch: Option<Child>,
}

impl TestSwitch {
    /// Returns a tree without Open vSwitch.
    pub(in crate::linux) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        fs::create_dir_all(directory.path().join("run/openvswitch")).unwrap();
        fs::create_dir_all(directory.path().join("var")).unwrap();
        symlink("/run", directory.path().join("var/run")).unwrap();
        let root = HostRoot::new(directory.path()).with_ovs_limits(LONG_LIMITS);
        Self { directory, root, server: None, switch: None }
    }

    /// Starts server and switch on an initialized database.
    pub(in crate::linux) fn started() -> Self {
        let mut this = Self::new();
        this.create_database();
        this.start_server();
        this.vsctl(&["--no-wait", "init"]);
        this.start_switch();
        this
    }

    /// Adds a bridge that needs no kernel module.
    pub(in crate::linux) fn add_bridge(&self, name: &str) {
        self.vsctl(&["add-br", name, "--", "set", "Bridge", name, "datapath_type=dummy"]);
    }

    pub(in crate::linux) fn root(&self) -> &HostRoot {
        &self.root
    }

    /// Returns the same host with limits under which a dead Open vSwitch is noticed soon.
    pub(in crate::linux) fn impatient_root(&self) -> HostRoot {
        self.root.clone().with_ovs_limits(SHORT_LIMITS)
    }

    pub(in crate::linux) fn socket(&self) -> PathBuf {
        self.directory.path().join("run/openvswitch/db.sock")
    }

    /// Returns the TCP port of ovsdb-server.
    pub(in crate::linux) fn tcp_port(&self) -> u16 {
        let process = PathBuf::from(format!("/proc/{}", self.server.as_ref().unwrap().id()));
        let descriptors = fs::read_dir(process.join("fd")).unwrap();
        let target = |entry: io::Result<fs::DirEntry>| fs::read_link(entry.unwrap().path()).ok();
        let sockets: Vec<String> =
            descriptors.filter_map(target).map(|target| target.display().to_string()).collect();
        let table = fs::read_to_string(process.join("net/tcp")).unwrap();
        let listening =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|columns| {
                columns.get(3) == Some(&"0A") && sockets.contains(&format!("socket:[{}]", columns[9]))
            });
        let (_, port) = listening.unwrap()[1].split_once(':').unwrap();
        u16::from_str_radix(port, 16).unwrap()
    }

    /// Runs ovs-appctl on ovs-vswitchd.
    pub(in crate::linux) fn appctl(&self, arguments: &[&str]) {
        let control = self.directory.path().join("vswitchd.ctl");
        let output = Command::new("ovs-appctl").arg("-t").arg(control).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    /// Creates an empty database without a root row.
    pub(in crate::linux) fn create_database(&self) {
        let database = self.directory.path().join("conf.db");
        let _ = fs::remove_file(&database);
        let created = Command::new("ovsdb-tool").arg("create").arg(&database).arg(SCHEMA).status().unwrap();
        assert!(created.success());
    }

    /// Starts ovsdb-server, and waits for its socket. It listens on a TCP port of the loopback interface as well.
    pub(in crate::linux) fn start_server(&mut self) {
        let events = Events::of(&self.directory.path().join("run/openvswitch"));
        let _ = fs::remove_file(self.socket());
        let remote = format!("--remote=punix:{}", self.socket().display());
        let mut command = Command::new("ovsdb-server");
        command.arg(self.directory.path().join("conf.db")).args([
            remote.as_str(),
            "--remote=ptcp:0:127.0.0.1",
            "--unixctl=none",
        ]);
        self.server = Some(self.spawn(command));
        events.wait_for(&self.socket());
        // The socket exists a moment before it accepts connections, so the judge retries.
        self.vsctl(&["--retry", "--no-wait", "show"]);
    }

    /// Starts ovs-vswitchd, and waits until it applies changes.
    pub(in crate::linux) fn start_switch(&mut self) {
        self.start_switch_with(&["--enable-dummy"]);
    }

    /// Starts ovs-vswitchd without the datapath type that it had before, as after a reboot without a kernel module.
    pub(in crate::linux) fn start_switch_without_dummy(&mut self) {
        self.start_switch_with(&[]);
    }

    fn start_switch_with(&mut self, options: &[&str]) {
        let mut command = Command::new("ovs-vswitchd");
        command.arg(format!("unix:{}", self.socket().display())).arg("--disable-system").args(options);
        command.arg(format!("--unixctl={}", self.directory.path().join("vswitchd.ctl").display()));
        let switch = self.spawn(command);
        // Without --no-wait it waits for cur_cfg, if the value is a new one.
        let value = format!("external_ids:test={}", switch.id());
        self.switch = Some(switch);
        self.vsctl(&["set", "Open_vSwitch", ".", &value]);
    }

    fn spawn(&self, mut command: Command) -> Child {
        let top = self.directory.path();
        command.envs(["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"].map(|name| (name, top)));
        command.args(["--no-chdir", "-vconsole:off", "-vsyslog:off"]).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Kills ovsdb-server, which leaves its socket.
    pub(in crate::linux) fn kill_server(&mut self) {
        end(self.server.take());
    }

    /// Kills ovs-vswitchd.
    pub(in crate::linux) fn kill_switch(&mut self) {
        end(self.switch.take());
    }

    /// Stops or continues ovsdb-server.
    pub(in crate::linux) fn signal_server(&self, signal: Signal) {
        send(self.server.as_ref(), signal);
    }

    /// Stops or continues ovs-vswitchd.
    pub(in crate::linux) fn signal_switch(&self, signal: Signal) {
        send(self.switch.as_ref(), signal);
    }

    /// Runs ovs-vsctl, the independent judge.
    pub(in crate::linux) fn vsctl(&self, arguments: &[&str]) -> String {
        let database = format!("--db=unix:{}", self.socket().display());
        let output =
            Command::new("ovs-vsctl").args([&database, "--timeout=20"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for TestSwitch {
    fn drop(&mut self) {
        self.kill_switch();
        self.kill_server();
    }
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn send(child: Option<&Child>, signal: Signal) {
    kill(Pid::from_raw(child.unwrap().id().try_into().unwrap()), signal).unwrap();
}

/// Creation of files in a directory.
struct Events(Inotify);

impl Events {
    fn of(directory: &Path) -> Self {
        let events = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
        events.add_watch(directory, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO).unwrap();
        Self(events)
    }

    fn wait_for(&self, path: &Path) {
        while !path.exists() {
            self.0.read_events().unwrap();
        }
    }
}
