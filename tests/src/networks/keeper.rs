//! Keeps the one operator that all tests of a program share.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use fixture_kube::ControlPlane;

use super::root;
use crate::cluster::Cluster;

/// The kernel ends a program with the *thread* that started it, and each test is a thread of its own. So one thread that
/// lives as long as the process starts the operator for all of them.
pub(super) struct Keeper {
    namespace: String,
    orders: Sender<(Order, Sender<String>)>,
}

enum Order {
    Start,
    Kill,
    Log,
}

impl Keeper {
    /// The one, with the operator running. `program` is vfleet.
    pub(super) fn get(program: &'static str) -> &'static Self {
        static KEEPER: OnceLock<Keeper> = OnceLock::new();
        KEEPER.get_or_init(|| {
            let (orders, received) = channel();
            let (tell, namespace) = channel();
            thread::spawn(move || keep(program, &tell, &received));
            let keeper = Keeper { namespace: namespace.recv().unwrap(), orders };
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

    fn order(&self, order: Order) -> String {
        let (reply, answer) = channel();
        self.orders.send((order, reply)).unwrap();
        answer.recv().unwrap()
    }
}

fn keep(program: &'static str, namespace: &Sender<String>, orders: &Receiver<(Order, Sender<String>)>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(Cluster::new("networks", program));
    ControlPlane::shared().apply_crds(&root().join("fixtures/kube/crds")).unwrap();
    namespace.send(cluster.namespace().to_owned()).unwrap();
    let mut operator = None;
    for (order, reply) in orders {
        let answer = match order {
            Order::Start => {
                operator.get_or_insert_with(|| cluster.operator());
                String::new()
            }
            Order::Kill => {
                operator = None;
                String::new()
            }
            Order::Log => cluster.log(),
        };
        reply.send(answer).unwrap();
    }
}
