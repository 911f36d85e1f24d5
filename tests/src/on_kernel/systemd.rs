//! systemd mode.

use serde_json::json;

use super::bridges::{self, MANAGES_BRIDGES};
use super::crashing_agent::{CrashingAgent, UNIT_STEPS};
use super::guest::{AGENT_LOG, Guest};
use super::lab_cluster::{LabCluster, OTHER_PF, PF, kill};
use super::takeover::with_iommu;

const MODE: [(&str, &str); 2] = [("CONFIGURATION_MODE", "systemd"), MANAGES_BRIDGES[0]];
/// Service that is installed in the machine of the lab, but not enabled.
const NETWORK_SERVICE: &str = "systemd-networkd.service";
pub(super) const FIRST_UNIT: &str = "sriov-config.service";
pub(super) const BRIDGE_UNIT: &str = "sriov-config-bridges.service";
const LAST_UNIT: &str = "sriov-config-post-network.service";
/// Drivers of the VFs of the first card.
const DRIVERS: [&str; 3] = ["igbvf", "vfio-pci", "vfio-pci"];
const UNITS: [&str; 3] = [FIRST_UNIT, BRIDGE_UNIT, LAST_UNIT];

/// The agent writes the desired state and reboots. One unit configures the cards and creates Linux bridges before the
/// network, one creates bridges of Open vSwitch after that has started, and one configures VFs after the network. The
/// agent reports the result and leaves the cards alone. Without systemd mode no unit is left. The agents that write the
/// desired state and that clean up crash repeatedly.
pub(super) async fn units_configure_cards_at_boot(lab: &LabCluster<'_>) {
    let LabCluster { cluster, guest, .. } = lab;
    let policy = json!({
        "numVfs": 3, "deviceType": "vfio-pci", "resourceName": "vfio", "nicSelector": { "pfNames": [format!("{PF}#1-2")] },
        "eSwitchMode": "switchdev", "bridge": { "ovs": {} },
    });
    if guest.run("ls /sys/kernel/iommu_groups").is_empty() {
        guest.vm.reboot_with(&with_iommu()).expect("the machine reboots");
    }
    guest.run(&format!("systemctl add-wants multi-user.target {NETWORK_SERVICE}"));
    let bridges_before = bridges::boot::prepare(lab).await;
    cluster.apply_policy("at-boot", policy).await;
    let crashing_agent = CrashingAgent::new(lab, &UNIT_STEPS);
    crashing_agent.reboot("--systemd --bridges");

    let state = format!("systemctl show --value -p SubState {LAST_UNIT}");
    guest.wait_until("the units have ended", &format!("{state} | grep -qx -e exited -e failed"));
    let journal = guest.run("journalctl -b -u 'sriov-config*'");
    assert_eq!(guest.drivers(PF), DRIVERS, "configured at boot: {journal}");
    for unit in UNITS {
        let result = guest.run(&format!("systemctl show -p Result -p ExecMainStatus {unit}"));
        assert_eq!(result, "Result=success\nExecMainStatus=0", "{unit}: {journal}");
    }
    bridges::boot::assert_configured(guest, &bridges_before);
    assert_order(guest);
    bridges::boot::assert_unit_creates_bridge(guest, &bridges_before);
    assert_hanging_unit_is_killed(guest);
    let result = guest.run("cat /etc/sriov-operator/sriov-interface-result.yaml");
    assert!(result.contains("syncStatus: Succeeded"), "{result}");

    // Another program than the one that the crashing agent has installed, like a new version.
    let agent = lab.start_agent_with(&MODE);
    lab.wait_for_drivers(PF, &DRIVERS).await;
    guest.wait_until("the program is installed", &format!("grep -q 'all cards are configured' {AGENT_LOG}"));
    let expected = ["install vfleet as /var/lib/sriov/vfleet", "remove reboot count"];
    // The units do not know clouds: the agent may complete the record of the card, and nothing else.
    let executed = guest.executed_steps_except("name, ID or network of the card changed");
    assert_eq!(executed, expected, "the agent leaves the cards to the units");
    kill(agent);
    let agent = lab.start_agent_with(&MODE);
    guest.wait_until_idle();
    assert_eq!(guest.executed_steps(), [""; 0], "no step is left");
    kill(agent);

    let agent = crashing_agent.start("--bridges");
    for policy in ["at-boot", "ovs-at-boot", "linux-at-boot"] {
        cluster.delete_policy(policy).await;
    }
    lab.wait_for_drivers(PF, &[]).await;
    lab.wait_for_no_vfs(OTHER_PF).await;
    bridges::boot::wait_for_removal(lab, &bridges_before).await;
    let left = guest.run(&format!("cd /etc/systemd/system; ls {} 2>/dev/null || true", UNITS.join(" ")));
    assert_eq!(left, "", "units are left");
    crashing_agent.assert_crashed_at_all();
    guest.run(&format!("rm /etc/systemd/system/multi-user.target.wants/{NETWORK_SERVICE}"));
    kill(agent);
    guest.clean();
}

/// Checks that a unit that hangs is killed and not restarted, and that it succeeds when it is started by hand.
fn assert_hanging_unit_is_killed(guest: &Guest<'_>) {
    let unit = LAST_UNIT;
    let drop_in = format!("/run/systemd/system/{unit}.d");
    let hangs = "[Service]\nTimeoutStartSec=2s\nTimeoutStopSec=1s\nExecStartPre=/bin/sh -c 'trap : TERM; while :; do sleep 600; done'\n";
    guest.run(&format!("mkdir -p {drop_in}; printf %b \"{hangs}\" >{drop_in}/hangs.conf"));
    guest.run("sed -i s/Succeeded/InProgress/ /etc/sriov-operator/sriov-interface-result.yaml");
    guest.run(&format!("systemctl daemon-reload; systemctl restart --no-block {unit}"));
    let wait_for = |property: &str, value: &str| {
        guest.wait_until(value, &format!("systemctl show --value -p {property} {unit} | grep -qx {value}"));
    };
    wait_for("SubState", "failed");
    wait_for("Result", "timeout");
    wait_for("NRestarts", "0");
    let processes = format!("/sys/fs/cgroup/system.slice/{unit}/cgroup.procs");
    assert_eq!(
        guest.run(&format!("cat {processes} 2>/dev/null || true")),
        "",
        "a process of the unit is left"
    );
    guest.run(&format!("rm -r {drop_in}; systemctl daemon-reload; systemctl restart {unit}"));
    wait_for("SubState", "exited");
}

/// Checks that the first unit ended before the network started, that the second unit ran after Open vSwitch had started
/// and before the network, and that the third unit started after that. Compares timestamps of the boot, because the
/// dependencies alone do not prove the order.
fn assert_order(guest: &Guest<'_>) {
    let before = guest.run(&format!("systemctl show --value -p Before {FIRST_UNIT}"));
    assert!(before.split(' ').any(|unit| unit == "network-pre.target"), "{before}");
    let when = |unit: &str, event: &str| -> u64 {
        let time = guest.run(&format!("systemctl show --value -p {event}TimestampMonotonic {unit}"));
        let time = time.parse().unwrap_or_else(|error| panic!("{event} of {unit}: {error}: {time}"));
        assert_ne!(time, 0, "{unit} has no {event}");
        time
    };
    let order = [
        ("first unit started", when(FIRST_UNIT, "ExecMainStart")),
        ("first unit ended", when(FIRST_UNIT, "ExecMainExit")),
        ("network may start", when("network-pre.target", "ActiveEnter")),
        ("Open vSwitch started", when("ovs-vswitchd.service", "ActiveEnter")),
        ("second unit started", when(BRIDGE_UNIT, "ExecMainStart")),
        ("second unit ended", when(BRIDGE_UNIT, "ExecMainExit")),
        ("network service started", when(NETWORK_SERVICE, "ExecMainStart")),
        ("network started", when("network.target", "ActiveEnter")),
        ("network online", when("network-online.target", "ActiveEnter")),
        ("third unit started", when(LAST_UNIT, "ExecMainStart")),
        ("third unit ended", when(LAST_UNIT, "ExecMainExit")),
    ];
    assert!(order.is_sorted_by_key(|(_, time)| time), "wrong order, in microseconds since boot: {order:#?}");
}
