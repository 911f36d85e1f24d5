//! Keeps the one operator that all tests of a program share.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tokio::sync::watch;

use crate::cluster::{Cluster, Program};
use crate::plane::{Plane, root};

/// The kernel ends a program with the *thread* that started it, and each test is a thread of its own. So one thread that
/// lives as long as the process starts the operator for all of them.
pub(super) struct Keeper {
    namespace: String,
    orders: Sender<(Order, Sender<String>)>,
    failed: watch::Receiver<bool>,
}

enum Order {
    Start,
    Kill,
    Log,
    /// The process of this number has ended.
    Ended(u32),
}

impl Keeper {
    /// The one, with the operator running.
    pub(super) fn get() -> &'static Self {
        static KEEPER: OnceLock<Keeper> = OnceLock::new();
        KEEPER.get_or_init(|| {
            let (orders, received) = channel();
            let (tell, namespace) = channel();
            let (fail, failed) = watch::channel(false);
            let own = orders.clone();
            thread::spawn(move || keep(&tell, &received, &own, &fail));
            let keeper = Keeper { namespace: namespace.recv().unwrap(), orders, failed };
            keeper.start();
            keeper
        })
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Starts it, unless it runs.
    pub(super) fn start(&self) {
        self.order(Order::Start);
    }

    pub(super) fn kill(&self) {
        self.order(Order::Kill);
    }

    /// What it said so far.
    pub(super) fn log(&self) -> String {
        self.order(Order::Log)
    }

    /// Waits until it has ended without having been killed.
    pub(super) async fn failure(&self) {
        self.failed.clone().wait_for(|failed| *failed).await.unwrap();
    }

    fn order(&self, order: Order) -> String {
        let (reply, answer) = channel();
        self.orders.send((order, reply)).unwrap();
        answer.recv().unwrap()
    }
}

fn keep(
    namespace: &Sender<String>,
    orders: &Receiver<(Order, Sender<String>)>,
    own_orders: &Sender<(Order, Sender<String>)>,
    fail: &watch::Sender<bool>,
) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(Cluster::new("networks", Plane::Networks));
    Plane::Networks.get().apply_crds(&root().join("fixtures/kube/crds/multus")).unwrap();
    namespace.send(cluster.namespace().to_owned()).unwrap();
    let mut operator: Option<Program> = None;
    for (order, reply) in orders {
        let answer = match order {
            Order::Start => {
                operator.get_or_insert_with(|| {
                    let operator = cluster.operator();
                    tell_the_end(operator.id(), own_orders.clone());
                    operator
                });
                String::new()
            }
            Order::Kill => {
                operator = None;
                String::new()
            }
            Order::Log => cluster.log(),
            Order::Ended(process) => {
                if operator.as_ref().is_some_and(|operator| operator.id() == process) {
                    fail.send_replace(true);
                }
                continue;
            }
        };
        reply.send(answer).unwrap();
    }
}

/// Tells when the process has ended, and leaves it to its owner to ask how.
fn tell_the_end(process: u32, orders: Sender<(Order, Sender<String>)>) {
    thread::spawn(move || {
        let pid = Pid::from_raw(process.try_into().unwrap());
        // An error is that its owner has asked already.
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        orders.send((Order::Ended(process), channel().0)).unwrap();
    });
}
