//! Machine of the lab, read and changed with its own tools.

use std::ops::Range;
use std::path::Path;

use fixture_lab::{Job, Vm};
use serde_json::Value;

/// Log of the agent in the machine.
pub(super) const AGENT_LOG: &str = "/run/agent.log";

/// Machine of the lab.
pub(super) struct Guest<'a> {
    pub(super) vm: &'a Vm,
}

impl<'a> Guest<'a> {
    pub(super) fn new(vm: &'a Vm) -> Self {
        Self { vm }
    }

    /// Copies a program into the machine; returns its path there.
    pub(super) fn install(&self, program: &Path) -> String {
        self.vm.install(program).expect("the program is copied to the machine")
    }

    /// Runs a script, all of whose commands must succeed; returns its output.
    pub(super) fn run(&self, script: &str) -> String {
        let output =
            self.vm.run(&Job::shell(format!("set -e -o pipefail\n{script}"))).expect("the machine runs jobs");
        output.success().unwrap_or_else(|error| panic!("{script}: {error:#}")).trim().to_owned()
    }

    /// Waits until a command succeeds in the machine.
    pub(super) fn wait_until(&self, what: &str, command: &str) {
        let script =
            format!("for try in $(seq 1200); do if {command}; then exit 0; fi; sleep 0.1; done; exit 1");
        let output = self.vm.run(&Job::shell(script)).expect("the machine runs jobs");
        assert_eq!(output.status, 0, "timed out: {what}\n{}", self.agent_log());
    }

    pub(super) fn agent_log(&self) -> String {
        self.run(&format!("cat {AGENT_LOG} 2>/dev/null || true"))
    }

    /// Returns the log lines of the steps that the agent has executed since it was started.
    pub(super) fn executed(&self) -> Vec<String> {
        let log = self.agent_log();
        log.lines().filter(|line| line.contains("executing")).map(str::to_owned).collect()
    }

    /// Returns the steps that the agent has executed since it was started.
    pub(super) fn executed_steps(&self) -> Vec<String> {
        self.executed().iter().map(|line| step_of(line)).collect()
    }

    /// Returns the executed steps except those with this reason.
    pub(super) fn executed_steps_except(&self, reason: &str) -> Vec<String> {
        let reason = format!(" why={reason:?}");
        self.executed().iter().filter(|line| !line.contains(&reason)).map(|line| step_of(line)).collect()
    }

    /// Waits until the agent has found nothing to do.
    pub(super) fn wait_until_idle(&self) {
        self.wait_until("the agent has nothing to do", &format!("grep -q 'nothing to do' {AGENT_LOG}"));
    }

    /// Creates VFs, as an administrator does.
    pub(super) fn create_vfs(&self, pf: &str, count: u32) {
        self.run(&format!(
            "ip link set {pf} up; echo {count} >/sys/class/net/{pf}/device/sriov_numvfs; udevadm settle"
        ));
    }

    /// Returns the drivers of the VFs of a card; "none" for an unbound VF.
    pub(super) fn drivers(&self, pf: &str) -> Vec<String> {
        let script = format!(
            "for vf in $(ls -dv /sys/class/net/{pf}/device/virtfn* 2>/dev/null); do
                basename $(readlink $vf/driver || echo none)
            done"
        );
        self.run(&script).lines().map(str::to_owned).collect()
    }

    /// Returns the names of the interfaces of the VFs of a card, after udev has settled.
    pub(super) fn vf_names(&self, pf: &str) -> Vec<String> {
        let script = format!(
            "udevadm settle; for vf in $(ls -dv /sys/class/net/{pf}/device/virtfn*); do ls $vf/net; done"
        );
        self.run(&script).lines().map(str::to_owned).collect()
    }

    /// Restores the initial state of the machine, whatever the previous scenario has left.
    pub(super) fn clean(&self) {
        self.run(
            "for netns in $(ip netns list | cut -d ' ' -f 1); do ip netns delete $netns; done
            rm -rf /run/systemd/system/ovs*.d
            if [ -e /etc/openvswitch/conf.db ]; then
                systemctl daemon-reload
                systemctl stop openvswitch-switch ovs-vswitchd ovsdb-server
                if [ -e /sys/class/net/ovs-system ]; then ovs-dpctl del-dp ovs-system; fi
                rm /etc/openvswitch/conf.db
            fi
            if [ -e /sys/class/net/foreign-a ]; then ip link delete foreign-a; fi
            for bridge in $(ip -json link show type bridge | jq -r '.[].ifname // empty'); do ip link delete $bridge; done
            for card in /sys/bus/pci/devices/*/sriov_numvfs; do
                if [ $(cat $card) != 0 ]; then echo 0 >$card; fi
                echo 1 >$(dirname $card)/sriov_drivers_autoprobe
            done
            if [ -e /sys/module/labswitch ]; then modprobe --remove labswitch; fi
            for link in enp1s0 enp2s0; do ip address flush dev $link; ip link set $link down mtu 1500; done
            rm -rf /etc/sriov-operator /etc/udev/rules.d/*.rules",
        );
    }

    /// Returns the state of a card and of some of its VFs as text: output of `ip`, drivers and files of sysfs.
    pub(super) fn snapshot(&self, pf: &str, vfs: Range<u32>) -> String {
        let Range { start, end } = vfs;
        let script = format!(
            r"
            card=/sys/class/net/{pf}/device
            ip -json -details link show {pf} | jq '.[0] | .vfinfo_list |= .[{start}:{end}]'
            for file in $card/sriov_* $card/driver_override; do echo $file $(cat $file 2>&1 || true); done
            for ((number = {start}; number < {end}; number++)); do
                vf=$card/virtfn$number
                readlink $vf $vf/driver $vf/iommu_group || true
                cat $vf/driver_override
                for link in $(ls $vf/net 2>/dev/null); do
                    ip -json -details link show $link | jq '.[0]'
                    ip -json address show $link | jq '.[0].addr_info | map(del(.valid_life_time, .preferred_life_time, .tentative))'
                done
            done"
        );
        self.run(&script)
    }

    /// Returns the admin MACs of the VFs of a card.
    pub(super) fn vf_macs(&self, pf: &str) -> Vec<String> {
        let script = format!("ip -json link show {pf} | jq -r '.[0].vfinfo_list[]?.address'");
        self.run(&script).lines().map(str::to_owned).collect()
    }

    /// Returns an interface as ip(8) shows it.
    pub(super) fn link(&self, name: &str) -> Value {
        let links: Value = serde_json::from_str(&self.run(&format!("ip -details -json link show {name}")))
            .expect("ip prints JSON");
        links[0].clone()
    }

    pub(super) fn mtu(&self, name: &str) -> u64 {
        self.link(name)["mtu"].as_u64().expect("an MTU")
    }

    pub(super) fn address(&self, name: &str) -> String {
        self.link(name)["address"].as_str().expect("an address").to_owned()
    }
}

/// Panics with the lines in which two snapshots differ.
#[track_caller]
pub(super) fn assert_unchanged(before: &str, after: &str, what: &str) {
    let only_in = |one: &str, other: &str| {
        let lines = one.lines().filter(|line| !other.lines().any(|other_line| other_line == *line));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert!(
        before == after,
        "{what}; before:\n{}\nafter:\n{}",
        only_in(before, after),
        only_in(after, before)
    );
}

/// Returns the step in a line of the log of the agent.
fn step_of(line: &str) -> String {
    let (_, rest) = line.split_once(" step=").unwrap_or_else(|| panic!("no step in the log line: {line}"));
    rest.split(" why=").next().unwrap_or_default().to_owned()
}
