//! Settings that the cards of the machine refuse: link state, minimum rate, VLANs of 802.1ad. netdevsim stores and reports
//! them. It is no PCI card, so the plugin runs in a mount namespace whose PCI devices are a PF with the interface of
//! netdevsim, and VFs with a driver for userspace.

use serde_json::{Value, json};

use super::pod_node::PodNode;

/// Number of the simulated device.
const DEVICE: u32 = 7;
/// Directory of the PCI devices.
const DEVICES: &str = "/run/cni/devices";
/// Starts the plugin in the mount namespace.
const PLUGIN: &str = "/run/cni/other-card";
const MAC: &str = "02:00:00:00:0f:01";

/// PF of netdevsim with two VFs.
struct SimulatedCard<'a> {
    node: &'a PodNode<'a>,
    /// Name of the PF's interface.
    pf: String,
}

/// ADD applies the settings, CHECK compares them, and DEL restores those that the VF had.
pub(in super::super) fn applies_settings_of_other_cards(node: &PodNode<'_>) {
    let card = SimulatedCard::create(node);
    node.create_pods(&["new", "configured"]);
    applies_and_restores_settings(&card);
    keeps_settings_that_are_not_given(&card);
    card.remove();
}

/// A VF as its driver created it.
fn applies_and_restores_settings(card: &SimulatedCard<'_>) {
    let before = card.settings(0);
    let config = config(
        0,
        &json!({
            "vlan": 300, "vlanQoS": 5, "vlanProto": "802.1ad", "mac": MAC, "spoofchk": "on", "trust": "on",
            "link_state": "enable", "min_tx_rate": 10, "max_tx_rate": 200,
        }),
    );
    let result = card.call("ADD", "new", &config).result();
    assert_eq!(result["interfaces"][0]["mac"], MAC, "{result:#}");
    let settings = card.settings(0);
    let expected = json!({
        "vf": 0, "address": MAC, "vlan_list": [{ "vlan": 300, "qos": 5, "protocol": "802.1ad" }],
        "rate": { "max_tx": 200, "min_tx": 10 }, "spoofchk": true, "trust": true, "link_state": "enable",
    });
    for (key, value) in expected.as_object().into_iter().flatten() {
        assert_eq!(settings[key], *value, "{key}: {settings:#}");
    }

    let mut check = config.clone();
    check["prevResult"] = result;
    card.call("CHECK", "new", &check).assert_silent_success();
    for (change, restore, word) in [
        ("state disable", "state enable", "link_state"),
        ("min_tx_rate 20", "min_tx_rate 10", "min_tx_rate"),
        ("vlan 300 qos 5 proto 802.1q", "vlan 300 qos 5 proto 802.1ad", "vlan"),
    ] {
        card.change(0, change);
        card.call("CHECK", "new", &check).assert_error(101, &[word]);
        card.change(0, restore);
    }
    card.call("CHECK", "new", &check).assert_silent_success();
    card.call("DEL", "new", &config).assert_silent_success();
    assert_eq!(card.settings(0), before, "after DEL");
}

/// A VF that an administrator has configured. The kernel takes both rates only together.
fn keeps_settings_that_are_not_given(card: &SimulatedCard<'_>) {
    card.change(1, "vlan 7 qos 2 proto 802.1ad");
    card.change(1, "state enable");
    card.change(1, "max_tx_rate 500 min_tx_rate 20");
    let before = card.settings(1);
    assert_eq!(before["rate"], json!({ "max_tx": 500, "min_tx": 20 }), "{before:#}");
    let config = config(1, &json!({ "vlan": 9, "link_state": "disable", "min_tx_rate": 50 }));
    card.call("ADD", "configured", &config).result();
    let settings = card.settings(1);
    assert_eq!(settings["vlan_list"], json!([{ "vlan": 9 }]), "802.1Q: {settings:#}");
    assert_eq!(settings["rate"], json!({ "max_tx": 500, "min_tx": 50 }), "{settings:#}");
    assert_eq!(settings["link_state"], "disable", "{settings:#}");
    card.call("DEL", "configured", &config).assert_silent_success();
    assert_eq!(card.settings(1), before, "after DEL");
}

/// Returns the PCI address of a VF.
fn address(vf: u32) -> String {
    format!("0000:f0:00.{}", vf + 1)
}

fn config(vf: u32, keys: &Value) -> Value {
    let mut config =
        json!({ "cniVersion": "1.1.0", "name": "red", "type": "sriov", "deviceID": address(vf) });
    for (key, value) in keys.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

impl<'a> SimulatedCard<'a> {
    fn create(node: &'a PodNode<'_>) -> Self {
        let pf = node.guest.run(&format!(
            "modprobe netdevsim
            echo '{DEVICE} 1' >/sys/bus/netdevsim/new_device
            udevadm settle
            cd /sys/bus/netdevsim/devices/netdevsim{DEVICE}
            echo 2 >sriov_numvfs
            mkdir -p {DEVICES}
            cd {DEVICES}
            pf=0000:f0:00.0
            mkdir $pf
            echo 4 >$pf/sriov_totalvfs; echo 2 >$pf/sriov_numvfs
            ln -s /sys/bus/netdevsim/devices/netdevsim{DEVICE}/net $pf/net
            for index in 0 1; do
                vf=0000:f0:00.$((index + 1))
                mkdir $vf
                ln -s ../$vf $pf/virtfn$index
                ln -s ../$pf $vf/physfn
                ln -s ../../drivers/vfio-pci $vf/driver
            done
            for device in *; do echo 0x020000 >$device/class; done
            cat >{PLUGIN} <<'EOF'
#!/bin/bash
exec unshare --mount bash -c 'mount --bind {DEVICES} /sys/bus/pci/devices; exec /opt/cni/bin/sriov'
EOF
            chmod +x {PLUGIN}
            ls $pf/net"
        ));
        Self { node, pf }
    }

    fn remove(self) {
        self.node.guest.run(&format!(
            "echo {DEVICE} >/sys/bus/netdevsim/del_device; rm -r {DEVICES} {PLUGIN}; udevadm settle"
        ));
    }

    fn call(&self, command: &str, pod: &str, config: &Value) -> super::outcome::Outcome {
        self.node.call_with(command, pod, config, &[("PLUGIN", PLUGIN)])
    }

    /// Changes a VF as an administrator does.
    fn change(&self, vf: u32, settings: &str) {
        self.node.guest.run(&format!("ip link set {} vf {vf} {settings}", self.pf));
    }

    /// Returns the settings of a VF as ip(8) shows them.
    fn settings(&self, vf: usize) -> Value {
        self.node.guest.link(&self.pf)["vfinfo_list"][vf].clone()
    }
}
