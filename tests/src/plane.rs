//! Control planes that the tests of one process share.
//!
//! An operator watches the nodes and networks of its whole cluster, and some tests change the whole cluster. Tests that
//! would interfere with each other use different control planes. A control plane is started by the first test that
//! needs it, and stopped when no test holds it and others were used since: an idle one takes a tenth of a processor.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fixture_kube::{ControlPlane, Options};

/// Control plane with the CustomResourceDefinitions of vfleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Small fleets: a few nodes for each test, with policies that select them by name.
    Fleet,
    /// Drains of a few nodes.
    Drains,
    /// Drains that the Go operator has started: every operator of the cluster acts on its annotations of nodes.
    DrainMigration,
    /// Drains of hundreds of nodes, which every operator of the cluster would watch.
    LargeFleet,
    /// Rights of service accounts. No operator runs, because it would react to what the tests write as agents.
    Rights,
    /// A cluster that has one node only.
    SingleNode,
    /// Labels of nodes, and components that are deployed with the agent.
    Deployment,
    /// Webhooks and their replicas, without NetworkAttachmentDefinitions.
    Admission,
    /// Counted admission requests: no other test may write.
    AdmissionQuestions,
    /// Certificates of webhooks, under load.
    Certificates,
    /// Cases of admission, each with its own objects.
    AdmissionCases,
    /// The same cases, stored without admission.
    AdmissionStatus,
    /// Objects that were stored without admission, because it was off or timed out.
    AdmissionUnasked,
    /// NetworkAttachmentDefinitions, which one operator manages in all namespaces.
    Networks,
    /// An API server that is restarted and refuses requests.
    Troubles,
    /// A cluster that the Go operator has managed before.
    TakeOver,
    /// A cluster with the CustomResourceDefinitions of OpenShift.
    OpenShift,
    /// The cluster whose node is the machine of the lab.
    Lab,
}

const COUNT: usize = Plane::Lab as usize + 1;

/// Number of most recently used control planes that are kept running, because the next tests probably need them.
const KEPT: usize = 3;

static RECENT: Mutex<Vec<Arc<ControlPlane>>> = Mutex::new(Vec::new());

static PLANES: [Mutex<Weak<ControlPlane>>; COUNT] = [const { Mutex::new(Weak::new()) }; COUNT];

impl Plane {
    /// Returns the control plane, which runs as long as it is held. Starts it if it does not run.
    ///
    /// # Panics
    /// If the control plane cannot be started.
    #[expect(clippy::panic, reason = "no test can run without its control plane")]
    pub fn get(self) -> Arc<ControlPlane> {
        let mut running = lock(&PLANES[self as usize]);
        let plane = running.upgrade().unwrap_or_else(|| {
            eprintln!("starting control plane {self:?}");
            let plane =
                start().unwrap_or_else(|error| panic!("could not start control plane {self:?}: {error:?}"));
            let plane = Arc::new(plane);
            *running = Arc::downgrade(&plane);
            plane
        });
        drop(running);
        keep(&plane);
        plane
    }
}

/// Marks a control plane as the most recently used one.
fn keep(plane: &Arc<ControlPlane>) {
    let mut recent = lock(&RECENT);
    recent.retain(|other| !Arc::ptr_eq(other, plane));
    recent.insert(0, Arc::clone(plane));
    let kept = recent.len().min(KEPT);
    let old = recent.split_off(kept);
    drop(recent);
    // Stops those that no test holds, which takes a moment.
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
