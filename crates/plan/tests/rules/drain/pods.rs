//! Which pods are evicted, and which are started again.

use vfleet_api::node_state::DrainScope::{Full, Partial};
use vfleet_plan::drain::{PodFacts, Treatment, restarts_with, treatment};

const PREFIX: &str = "openshift.io";

fn with(resources: &[&str]) -> PodFacts {
    PodFacts { resources: resources.iter().map(|name| (*name).to_owned()).collect(), ..PodFacts::default() }
}

#[test]
fn a_partial_drain_takes_the_users_of_vfs_and_a_full_one_everybody() {
    let (user, other) =
        (with(&["cpu", "openshift.io/net"]), with(&["cpu", "openshift.iox/net", "openshift.io"]));
    for (pod, partial, full) in [
        (user.clone(), Treatment::Evict, Treatment::Evict),
        (other, Treatment::Leave, Treatment::Evict),
        (PodFacts { is_ending: true, ..user.clone() }, Treatment::WaitFor, Treatment::WaitFor),
        (PodFacts { is_over: true, ..user.clone() }, Treatment::Leave, Treatment::Evict),
        (PodFacts { is_mirror: true, ..user.clone() }, Treatment::Leave, Treatment::Leave),
        (PodFacts { is_of_daemon_set: true, ..user }, Treatment::Leave, Treatment::Leave),
    ] {
        assert_eq!(treatment(&pod, Partial, PREFIX), partial, "{pod:?}");
        assert_eq!(treatment(&pod, Full, PREFIX), full, "{pod:?}");
    }
}

#[test]
fn a_pod_of_a_daemon_set_starts_again_when_its_vfs_changed() {
    let kept = ["kept".to_owned()];
    let daemon = |resources: &[&str]| PodFacts { is_of_daemon_set: true, ..with(resources) };
    let changed = daemon(&["openshift.io/kept", "openshift.io/net"]);
    assert!(restarts_with(&changed, &kept, PREFIX));
    assert!(restarts_with(&daemon(&["openshift.io/kept"]), &[], PREFIX));
    assert!(!restarts_with(&daemon(&["openshift.io/kept"]), &kept, PREFIX));
    assert!(!restarts_with(&daemon(&["example.com/net"]), &kept, PREFIX));
    assert!(!restarts_with(&with(&["openshift.io/net"]), &kept, PREFIX), "it was evicted");
    for gone in [
        PodFacts { is_ending: true, ..changed.clone() },
        PodFacts { is_over: true, ..changed.clone() },
        PodFacts { is_mirror: true, ..changed },
    ] {
        assert!(!restarts_with(&gone, &kept, PREFIX), "{gone:?}");
    }
}
