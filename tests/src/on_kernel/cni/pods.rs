//! Traffic between pods.

use fixture_lab::{Job, RunningJob};

use super::super::guest::Guest;
use super::pod_node::{INTERFACE, PodNode};

/// Output of a running tcpdump(1).
const CAPTURE: &str = "/run/cni/capture";

/// Waits until a pod reaches an address.
pub(super) fn wait_until_reached(guest: &Guest<'_>, pod: &str, address: &str) {
    guest.wait_until(
        &format!("{pod} reaches {address}"),
        &format!("ip netns exec {pod} ping -c 1 -W 0.3 {address} >/dev/null"),
    );
}

/// Checks that a pod does not reach an address. Packets that arrive take milliseconds.
pub(super) fn assert_not_reached(guest: &Guest<'_>, pod: &str, address: &str) {
    let answer = guest.run(&format!("ip netns exec {pod} ping -c 3 -i 0.1 -W 0.3 {address} || true"));
    assert!(answer.contains(" 0 received"), "{pod} reaches {address}: {answer}");
}

/// Packets that arrive at a pod.
pub(super) struct Capture<'a> {
    node: &'a PodNode<'a>,
    job: RunningJob,
}

impl<'a> Capture<'a> {
    /// Starts to capture packets.
    pub(super) fn start(node: &'a PodNode<'_>, pod: &str, filter: &str) -> Self {
        node.guest.run(&format!("rm -f {CAPTURE}"));
        let script =
            format!("exec ip netns exec {pod} tcpdump -l -n -i {INTERFACE} '{filter}' >{CAPTURE} 2>&1");
        let job = node.guest.vm.spawn(&Job::shell(script)).expect("tcpdump starts");
        node.guest.wait_until("tcpdump listens", &format!("grep -q 'listening on' {CAPTURE}"));
        Self { node, job }
    }

    /// Waits for a packet that matches a regular expression.
    pub(super) fn wait_for(&self, expression: &str) {
        self.node.guest.run(&format!(
            "for try in {{1..150}}; do if grep -q -E '{expression}' {CAPTURE}; then exit 0; fi; sleep 0.1; done
            cat {CAPTURE}; exit 1"
        ));
    }

    pub(super) fn stop(self) {
        self.job.kill().expect("tcpdump can be killed");
        let _ = self.job.wait();
    }
}
