//! Pods that are evicted or restarted.

use vfleet_api::node_state::DrainScope::{Full, Partial};
use vfleet_plan::drain::{PodFacts, PodTreatment, needs_restart, treat_pod};

const PREFIX: &str = "openshift.io";

fn with(resources: &[&str]) -> PodFacts {
    PodFacts { resources: resources.iter().map(|name| (*name).to_owned()).collect(), ..PodFacts::default() }
}

#[test]
fn a_partial_drain_evicts_pods_with_vfs_and_a_full_drain_all_pods() {
    let (user, other) =
        (with(&["cpu", "openshift.io/net"]), with(&["cpu", "openshift.iox/net", "openshift.io"]));
    for (pod, partial, full) in [
        (user.clone(), PodTreatment::Evict, PodTreatment::Evict),
        (other, PodTreatment::Keep, PodTreatment::Evict),
        (
            PodFacts { is_terminating: true, ..user.clone() },
            PodTreatment::AwaitTermination,
            PodTreatment::AwaitTermination,
        ),
        (PodFacts { has_finished: true, ..user.clone() }, PodTreatment::Keep, PodTreatment::Evict),
        (PodFacts { is_mirror: true, ..user.clone() }, PodTreatment::Keep, PodTreatment::Keep),
        (PodFacts { is_daemon_set_pod: true, ..user }, PodTreatment::Keep, PodTreatment::Keep),
    ] {
        assert_eq!(treat_pod(&pod, Partial, PREFIX), partial, "{pod:?}");
        assert_eq!(treat_pod(&pod, Full, PREFIX), full, "{pod:?}");
    }
}

#[test]
fn a_daemon_set_pod_is_restarted_if_its_vfs_changed() {
    let kept = ["kept".to_owned()];
    let daemon = |resources: &[&str]| PodFacts { is_daemon_set_pod: true, ..with(resources) };
    let changed = daemon(&["openshift.io/kept", "openshift.io/net"]);
    assert!(needs_restart(&changed, &kept, PREFIX));
    assert!(needs_restart(&daemon(&["openshift.io/kept"]), &[], PREFIX));
    assert!(!needs_restart(&daemon(&["openshift.io/kept"]), &kept, PREFIX));
    assert!(!needs_restart(&daemon(&["example.com/net"]), &kept, PREFIX));
    assert!(!needs_restart(&with(&["openshift.io/net"]), &kept, PREFIX), "the pod was evicted");
    for gone in [
        PodFacts { is_terminating: true, ..changed.clone() },
        PodFacts { has_finished: true, ..changed.clone() },
        PodFacts { is_mirror: true, ..changed },
    ] {
        assert!(!needs_restart(&gone, &kept, PREFIX), "{gone:?}");
    }
}
