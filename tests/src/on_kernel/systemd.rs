use serde_json::json;

use super::guest::{AGENT_LOG, Guest};
use super::mortal::{Mortal, OF_UNITS};
use super::records::with_iommu;
use super::scene::{PF, Scene, kill};

const MODE: [(&str, &str); 1] = [("CONFIGURATION_MODE", "systemd")];
/// The lab's machine has it, and does not start it.
const NETWORK_SERVICE: &str = "systemd-networkd.service";
const UNITS: [&str; 2] = ["sriov-config.service", "sriov-config-post-network.service"];

/// The agent writes down what is wanted and reboots; the units make it so at boot, the one before the network, the other
/// after it; the agent tells what came of it and leaves the cards alone. Without the mode nothing of it is left. The
/// agents that write it down, and that clean up, are killed again and again.
pub(super) async fn units_do_it_at_boot(scene: &Scene<'_>) {
    let Scene { cluster, guest, .. } = scene;
    let policy = json!({ "numVfs": 3, "deviceType": "vfio-pci", "nicSelector": { "pfNames": [PF] } });
    if guest.run("ls /sys/kernel/iommu_groups").is_empty() {
        guest.vm.reboot_with(&with_iommu()).expect("the machine reboots");
    }
    guest.run(&format!("systemctl add-wants multi-user.target {NETWORK_SERVICE}"));
    cluster.apply_policy("at-boot", policy).await;
    let mortal = Mortal::new(scene, &OF_UNITS);
    mortal.reboot("--systemd");

    let state = format!("systemctl show --value -p SubState {}", UNITS[1]);
    guest.until("the units have ended", &format!("{state} | grep -qx -e exited -e failed"));
    let journal = guest.run("journalctl -b -u 'sriov-config*'");
    assert_eq!(guest.drivers(PF), ["vfio-pci"; 3], "made at boot: {journal}");
    for unit in UNITS {
        let result = guest.run(&format!("systemctl show -p Result -p ExecMainStatus {unit}"));
        assert_eq!(result, "Result=success\nExecMainStatus=0", "{unit}: {journal}");
    }
    assert_order(guest);
    assert_given_up_when_it_hangs(guest);
    let result = guest.run("cat /etc/sriov-operator/sriov-interface-result.yaml");
    assert!(result.contains("syncStatus: Succeeded"), "{result}");

    // Not the program that the mortal agent has installed: like a new version of it.
    let agent = scene.start_agent_with(&MODE);
    scene.wait_for_drivers(PF, &["vfio-pci"; 3]).await;
    guest.until("it is installed", &format!("grep -q 'the cards are as wanted' {AGENT_LOG}"));
    let own = ["install this program as /var/lib/sriov/vfleet", "forget reboots"];
    // The units do not know of clouds: the agent may add to the record what it knows of the card, and nothing else.
    let executed = guest.executed_steps_except("the card's names, IDs or network changed");
    assert_eq!(executed, own, "the cards are the units' business");
    kill(agent);
    let agent = scene.start_agent_with(&MODE);
    guest.until_idle();
    assert_eq!(guest.executed_steps(), [""; 0], "nothing is left to do");
    kill(agent);

    let agent = mortal.start("");
    cluster.delete_policy("at-boot").await;
    scene.wait_for_no_vfs(PF).await;
    let left = guest.run(&format!("cd /etc/systemd/system; ls {} 2>/dev/null || true", UNITS.join(" ")));
    assert_eq!(left, "", "nothing is left of the mode");
    mortal.assert_killed_at_all();
    guest.run(&format!("rm /etc/systemd/system/multi-user.target.wants/{NETWORK_SERVICE}"));
    kill(agent);
}

/// One that hangs, with less time than it has, is killed and not started again; by hand, it ends as it should.
fn assert_given_up_when_it_hangs(guest: &Guest<'_>) {
    let unit = UNITS[1];
    let drop_in = format!("/run/systemd/system/{unit}.d");
    let hangs = "[Service]\nTimeoutStartSec=2s\nTimeoutStopSec=1s\nExecStartPre=/bin/sh -c 'trap : TERM; while :; do sleep 600; done'\n";
    guest.run(&format!("mkdir -p {drop_in}; printf %b \"{hangs}\" >{drop_in}/hangs.conf"));
    guest.run("sed -i s/Succeeded/InProgress/ /etc/sriov-operator/sriov-interface-result.yaml");
    guest.run(&format!("systemctl daemon-reload; systemctl restart --no-block {unit}"));
    let shows = |property: &str, value: &str| {
        guest.until(value, &format!("systemctl show --value -p {property} {unit} | grep -qx {value}"));
    };
    shows("SubState", "failed");
    shows("Result", "timeout");
    shows("NRestarts", "0");
    let processes = format!("/sys/fs/cgroup/system.slice/{unit}/cgroup.procs");
    assert_eq!(guest.run(&format!("cat {processes} 2>/dev/null || true")), "", "it is at work no more");
    guest.run(&format!("rm -r {drop_in}; systemctl daemon-reload; systemctl restart {unit}"));
    shows("SubState", "exited");
}

/// The first unit has ended before the network began, the second began after that. That systemd knows the order is not
/// enough: nothing may be in its way.
fn assert_order(guest: &Guest<'_>) {
    let before = guest.run(&format!("systemctl show --value -p Before {}", UNITS[0]));
    assert!(before.split(' ').any(|unit| unit == "network-pre.target"), "{before}");
    let when = |unit: &str, event: &str| -> u64 {
        let time = guest.run(&format!("systemctl show --value -p {event}TimestampMonotonic {unit}"));
        let time = time.parse().unwrap_or_else(|error| panic!("{event} of {unit}: {error}: {time}"));
        assert_ne!(time, 0, "never: {event} of {unit}");
        time
    };
    let order = [
        ("the first unit began", when(UNITS[0], "ExecMainStart")),
        ("it ended", when(UNITS[0], "ExecMainExit")),
        ("the network may begin", when("network-pre.target", "ActiveEnter")),
        ("who manages it began", when(NETWORK_SERVICE, "ExecMainStart")),
        ("the network is there", when("network.target", "ActiveEnter")),
        ("it is said to work", when("network-online.target", "ActiveEnter")),
        ("the second unit began", when(UNITS[1], "ExecMainStart")),
        ("it ended", when(UNITS[1], "ExecMainExit")),
    ];
    assert!(order.is_sorted_by_key(|(_, time)| time), "microseconds of the boot: {order:#?}");
}
