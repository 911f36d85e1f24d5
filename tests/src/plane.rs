//! Control planes that the tests of one process share.
//!
//! An operator watches the nodes and networks of its whole cluster, and some tests change the whole cluster. Tests that
//! would disturb each other have different planes. A plane starts with the first test that needs it. It ends when nobody
//! holds it and others were needed since: one that nobody needs would still take a tenth of a processor.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fixture_kube::{ControlPlane, Options};

/// A control plane with vfleet's CustomResourceDefinitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Small fleets: a few nodes for each test, with policies that select them by name.
    Fleet,
    /// Drains of a few nodes.
    Drains,
    /// Drains that the Go operator has begun: its annotations on nodes belong to every operator of the cluster.
    DrainMigration,
    /// Drains of hundreds of nodes: every operator of the cluster would follow them.
    LargeFleet,
    /// Rights of accounts: no operator runs, which would change nodes by what the tests write as agents.
    Rights,
    /// A cluster that has one node only.
    SingleNode,
    /// Labels of nodes and what is deployed beside the agent.
    Deployment,
    /// Webhooks and who is asked by them, without NetworkAttachmentDefinitions.
    Admission,
    /// Questions that one operator is asked, which are counted: no other test may write.
    AdmissionQuestions,
    /// Certificates of webhooks, under load.
    Certificates,
    /// The cases of admission, which have clusters of their own.
    AdmissionCases,
    /// The same cases, stored without admission.
    AdmissionStatus,
    /// Objects that admission has not refused, by switch or by time.
    AdmissionUnasked,
    /// NetworkAttachmentDefinitions, which one operator serves in all namespaces.
    Networks,
    /// An API server that is restarted and refuses requests.
    Troubles,
    /// A cluster that the Go operator has worked in.
    TakeOver,
    /// A cluster with the definitions of OpenShift.
    OpenShift,
    /// The cluster of which the machine of the lab is a node.
    Lab,
}

const COUNT: usize = Plane::Lab as usize + 1;

/// Planes that tests have asked for last, which mostly are those that the next tests need.
const KEPT: usize = 3;

static RECENT: Mutex<Vec<Arc<ControlPlane>>> = Mutex::new(Vec::new());

static PLANES: [Mutex<Weak<ControlPlane>>; COUNT] = [const { Mutex::new(Weak::new()) }; COUNT];

impl Plane {
    /// Returns the control plane, which runs as long as somebody holds it. Starts it if it does not run.
    ///
    /// # Panics
    /// When it cannot be started.
    #[expect(clippy::panic, reason = "without a control plane no test that asks for it can go on")]
    pub fn get(self) -> Arc<ControlPlane> {
        let mut running = lock(&PLANES[self as usize]);
        let plane = running.upgrade().unwrap_or_else(|| {
            eprintln!("control plane {self:?} starts");
            let plane = start().unwrap_or_else(|error| panic!("no control plane {self:?}: {error:?}"));
            let plane = Arc::new(plane);
            *running = Arc::downgrade(&plane);
            plane
        });
        drop(running);
        keep(&plane);
        plane
    }
}

/// Counts a plane as the one that was needed last.
fn keep(plane: &Arc<ControlPlane>) {
    let mut recent = lock(&RECENT);
    recent.retain(|other| !Arc::ptr_eq(other, plane));
    recent.insert(0, Arc::clone(plane));
    let most = recent.len().min(KEPT);
    let old = recent.split_off(most);
    drop(recent);
    // Ends those that nobody else holds, which takes a moment.
    drop(old);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start() -> anyhow::Result<ControlPlane> {
    let plane = ControlPlane::start(Options::default())?;
    plane.apply_crds(&root().join("deploy/crds"))?;
    Ok(plane)
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
