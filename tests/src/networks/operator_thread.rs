//! Thread that runs the operator that all tests of a program share.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tokio::sync::watch;

use crate::cluster::{Cluster, Program};
use crate::plane::{Plane, root};

/// Handle of the thread that runs the operator. The kernel kills a program together with the *thread* that started it,
/// and each test has its own thread, so the operator is started by a thread that lives as long as the process.
pub(super) struct OperatorThread {
    namespace: String,
    requests: Sender<(Request, Sender<String>)>,
    failed: watch::Receiver<bool>,
}

enum Request {
    Start,
    Kill,
    Log,
    /// The process with this ID has ended.
    Ended(u32),
}

impl OperatorThread {
    /// Returns the handle of this process. Starts the operator at the first call.
    pub(super) fn get() -> &'static Self {
        static THREAD: OnceLock<OperatorThread> = OnceLock::new();
        THREAD.get_or_init(|| {
            let (requests, received) = channel();
            let (namespace_sender, namespace) = channel();
            let (fail, failed) = watch::channel(false);
            let own_requests = requests.clone();
            thread::spawn(move || run(&namespace_sender, &received, &own_requests, &fail));
            let handle = OperatorThread { namespace: namespace.recv().unwrap(), requests, failed };
            handle.start();
            handle
        })
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Starts the operator, unless it runs.
    pub(super) fn start(&self) {
        self.send(Request::Start);
    }

    pub(super) fn kill(&self) {
        self.send(Request::Kill);
    }

    /// Returns the log of the operator so far.
    pub(super) fn log(&self) -> String {
        self.send(Request::Log)
    }

    /// Waits until the operator has ended without having been killed.
    pub(super) async fn failure(&self) {
        self.failed.clone().wait_for(|failed| *failed).await.unwrap();
    }

    fn send(&self, request: Request) -> String {
        let (reply, answer) = channel();
        self.requests.send((request, reply)).unwrap();
        answer.recv().unwrap()
    }
}

fn run(
    namespace: &Sender<String>,
    requests: &Receiver<(Request, Sender<String>)>,
    own_requests: &Sender<(Request, Sender<String>)>,
    fail: &watch::Sender<bool>,
) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(Cluster::new("networks", Plane::Networks));
    Plane::Networks.get().apply_crds(&root().join("fixtures/kube/crds/multus")).unwrap();
    namespace.send(cluster.namespace().to_owned()).unwrap();
    let mut operator: Option<Program> = None;
    for (request, reply) in requests {
        let answer = match request {
            Request::Start => {
                operator.get_or_insert_with(|| {
                    let operator = cluster.start_operator();
                    report_end(operator.id(), own_requests.clone());
                    operator
                });
                String::new()
            }
            Request::Kill => {
                operator = None;
                String::new()
            }
            Request::Log => cluster.log(),
            Request::Ended(process) => {
                if operator.as_ref().is_some_and(|operator| operator.id() == process) {
                    fail.send_replace(true);
                }
                continue;
            }
        };
        reply.send(answer).unwrap();
    }
}

/// Sends a request when the process has ended. Its owner still reads the exit status.
fn report_end(process: u32, requests: Sender<(Request, Sender<String>)>) {
    thread::spawn(move || {
        let pid = Pid::from_raw(process.try_into().unwrap());
        // An error means that the owner has read the exit status already.
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        requests.send((Request::Ended(process), channel().0)).unwrap();
    });
}
