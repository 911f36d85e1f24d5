//! Two pods on VFs of two cards. The test attaches their representors to bridges, as CNI plugins do.

use fixture_lab::RunningJob;

use super::super::guest::Guest;
use super::super::lab_cluster::{LabCluster, OTHER_PF, PF};
use super::{LINUX_BRIDGE, OVS_BRIDGE};

/// Representors of the VFs.
pub(super) const REPRESENTORS: [&str; 2] = ["enp1s0_0", "enp2s0_0"];
const PING: &str = "ip netns exec pod0 ping";
const PEER: &str = "192.0.2.2";

/// Moves the VFs of both cards to the network namespaces of pods. The representors are not attached yet.
pub(super) fn create(guest: &Guest<'_>) {
    let vf_name = |pf: &str| guest.run(&format!("udevadm settle; ls /sys/class/net/{pf}/device/virtfn0/net"));
    let pods = [(0, PF, vf_name(PF)), (1, OTHER_PF, vf_name(OTHER_PF))];
    let set_up = pods.each_ref().map(|(number, _, vf)| {
        format!(
            "ip netns add pod{number}
            ip link set {vf} netns pod{number}
            ip -n pod{number} address add 192.0.2.{}/24 dev {vf}
            ip -n pod{number} link set {vf} up
            ip link set {} up",
            number + 1,
            REPRESENTORS[*number]
        )
    });
    guest.run(&set_up.join("\n"));
    // Without a carrier no packet would arrive, whatever the bridges do.
    let links = pods.each_ref().map(|(number, pf, vf)| {
        let pod = format!("-n pod{number} link show {vf}");
        [pod, format!("link show {pf}"), format!("link show {}", REPRESENTORS[*number])]
    });
    let has_carrier = links.concat().into_iter().map(|link| format!("ip {link} | grep -q LOWER_UP"));
    guest.wait_until("all links have a carrier", &has_carrier.collect::<Vec<_>>().join(" && "));
}

/// Removes the pods; their VFs return to the host.
pub(super) fn remove(guest: &Guest<'_>) {
    guest.run("for pod in pod0 pod1; do ip netns delete $pod; done; udevadm settle");
}

/// Returns the interfaces of the pods as text. The kernel gives a new VF another index.
pub(super) fn read_vfs(guest: &Guest<'_>) -> String {
    guest.run(
        "for pod in pod0 pod1; do ip -netns $pod -json address | jq '.[] | del(.operstate, .flags)'; done",
    )
}

/// Attaches the representor of the first pod to the Open vSwitch bridge.
pub(super) fn attach_to_ovs(guest: &Guest<'_>) {
    guest.run(&format!("ovs-vsctl --timeout=30 --may-exist add-port {OVS_BRIDGE} {}", REPRESENTORS[0]));
}

/// Attaches the representor of the second pod to the Linux bridge.
pub(super) fn attach_to_linux(guest: &Guest<'_>) {
    guest.run(&format!("ip link set {} master {LINUX_BRIDGE}", REPRESENTORS[1]));
}

/// Detaches the representor of the first pod from its bridge.
pub(super) fn detach_from_ovs(guest: &Guest<'_>) {
    guest.run(&format!("ovs-vsctl del-port {}", REPRESENTORS[0]));
}

/// Detaches the representor of the second pod from its bridge.
pub(super) fn detach_from_linux(guest: &Guest<'_>) {
    guest.run(&format!("ip link set {} nomaster", REPRESENTORS[1]));
}

/// Waits until the pods reach each other.
pub(super) fn wait_until_reached(guest: &Guest<'_>, when: &str) {
    guest.wait_until(
        &format!("the pods reach each other {when}"),
        &format!("{PING} -c 1 -W 0.5 {PEER} >/dev/null"),
    );
}

/// Checks that the pods do not reach each other. One packet takes milliseconds.
pub(super) fn assert_not_reached(guest: &Guest<'_>, when: &str) {
    let answer = guest.run(&format!("{PING} -c 3 -i 0.1 -W 0.5 {PEER} || true"));
    assert!(answer.contains(" 0 received"), "the pods reach each other {when}: {answer}");
}

/// Pings from one pod to the other that go on in the background.
pub(super) struct Pings(RunningJob);

impl Pings {
    pub(super) fn start(lab: &LabCluster<'_>) -> Self {
        Self(lab.start_script(&format!("exec {PING} -i 0.1 {PEER}"), &[]))
    }

    /// Ends the pings, and checks that all were answered.
    pub(super) fn assert_no_loss(self, guest: &Guest<'_>, during: &str) {
        guest.run("pkill -INT -x ping");
        let output = self.0.wait().expect("ping ends").output;
        let sent = output.lines().filter(|line| line.contains(" bytes from ")).count();
        assert!(
            sent > 0 && output.contains(", 0% packet loss"),
            "packets were lost during {during}: {output}"
        );
    }
}
