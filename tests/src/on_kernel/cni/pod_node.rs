//! Node whose container runtime attaches pods to VFs.

use std::collections::BTreeSet;
use std::fmt;

use fixture_lab::{Job, Vm};
use serde_json::{Value, json};

use super::super::Programs;
use super::super::guest::{Guest, assert_unchanged};
use super::outcome::Outcome;

/// Directory of plugins in the machine.
pub(super) const PLUGINS: &str = "/opt/cni/bin";
/// Directory of our journals.
pub(super) const JOURNALS: &str = "/var/lib/cni/vfleet";
/// Directory of files of the Go plugin.
pub(super) const GO_FILES: &str = "/var/lib/cni/sriov";
/// VFs of each card.
pub(super) const VFS: u32 = 7;
/// Name of the interface in all pods.
pub(super) const INTERFACE: &str = "net1";

/// Exists while the VFs are as they were created.
const INTACT: &str = "/run/cni/intact";
/// Separates both outputs of a call.
const SEPARATOR: &str = "\n--- standard error ---\n";

/// Calls a plugin as a container runtime does: `call COMMAND POD`, with the configuration in `CONFIG`. Other variables
/// replace defaults.
const CALL: &str = r#"#!/bin/bash
export CNI_COMMAND=$1 CNI_CONTAINERID=${ID-$2} CNI_NETNS=${CNI_NETNS-/run/netns/$2}
export CNI_IFNAME=${CNI_IFNAME-net1} CNI_PATH=${CNI_PATH-/opt/cni/bin}
exec "${PLUGIN-/opt/cni/bin/sriov}" <<<"$CONFIG"
"#;

/// VF of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabVf {
    /// Number of the card, from 1.
    pub(super) card: u32,
    pub(super) index: u32,
}

impl LabVf {
    pub(super) const fn new(card: u32, index: u32) -> Self {
        Self { card, index }
    }

    pub(super) fn pf(self) -> String {
        format!("enp{}s0", self.card)
    }

    fn pf_address(self) -> String {
        format!("0000:0{}:00.0", self.card)
    }

    /// Returns the name of its interface on the host.
    pub(super) fn name(self) -> String {
        format!("enp{}s0v{}", self.card, self.index)
    }
}

impl fmt::Display for LabVf {
    /// Writes the PCI address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0000:0{}:1{}.{}", self.card, self.index / 4, self.index % 4 * 2)
    }
}

/// Node with seven VFs on each of its two cards, and a container runtime. The scenarios share the VFs.
pub(in super::super) struct PodNode<'a> {
    pub(super) guest: Guest<'a>,
    pub(super) programs: Programs,
    before: String,
}

impl<'a> PodNode<'a> {
    /// Installs the plugins, and creates the VFs unless those of the previous scenario are intact.
    pub(in super::super) fn start(vm: &'a Vm, programs: Programs) -> Self {
        let guest = Guest::new(vm);
        let is_intact = !guest.run(&format!("ls {INTACT} 2>/dev/null || true")).is_empty();
        if is_intact {
            guest.run(&format!("rm {INTACT}"));
        } else {
            guest.clean();
            install(&guest, programs);
            guest.run("umount /var/lib/cni/vfleet 2>/dev/null || true; rm -rf /var/lib/cni");
            for pf in ["enp1s0", "enp2s0"] {
                guest.run(&format!(
                    "ip link set {pf} up; echo {VFS} >/sys/class/net/{pf}/device/sriov_numvfs"
                ));
            }
        }
        let before = read_cards(&guest);
        Self { guest, programs, before }
    }

    /// Checks that nothing is left of the pods, and removes their namespaces.
    pub(in super::super) fn finish(self) {
        self.assert_restored("at the end of the scenario");
        self.guest.run(&format!("ip -all netns delete; touch {INTACT}"));
    }

    /// Checks that all VFs are free and as before, and that no journal, allocation or address is left.
    #[track_caller]
    pub(super) fn assert_restored(&self, when: &str) {
        assert_unchanged(&self.before, &read_cards(&self.guest), &format!("the cards changed {when}"));
        let files = self.guest.run(&format!(
            "find {JOURNALS} {GO_FILES} /var/lib/cni/networks /var/lib/cni/results -type f \
                ! -path '*/vf_lock/*' ! -name lock ! -name 'last_reserved_ip.*' 2>/dev/null || true"
        ));
        assert_eq!(files, "", "files are left {when}");
    }

    /// Checks that VFs are as before, while others may be attached.
    #[track_caller]
    pub(super) fn assert_vfs_restored(&self, vfs: &[LabVf], when: &str) {
        let now = read_cards(&self.guest);
        for vf in vfs {
            let own = [vf.to_string(), format!("{} vfinfo_list {} ", vf.pf_address(), vf.index)];
            let lines = |text: &str| -> String {
                let lines = text.lines().filter(|line| own.iter().any(|prefix| line.starts_with(prefix)));
                lines.collect::<Vec<_>>().join("\n")
            };
            assert!(!lines(&now).is_empty(), "VF {vf} does not exist {when}");
            assert_unchanged(&lines(&self.before), &lines(&now), &format!("VF {vf} changed {when}"));
        }
    }

    /// Binds a VF to `vfio-pci`.
    pub(super) fn bind_to_vfio(&self, vf: LabVf) {
        self.guest.run("modprobe vfio-pci");
        self.bind(vf, "vfio-pci");
    }

    /// Binds a VF to the driver that the kernel chooses.
    pub(super) fn bind_to_kernel(&self, vf: LabVf) {
        self.bind(vf, "");
    }

    fn bind(&self, vf: LabVf, driver: &str) {
        self.guest.run(&format!(
            "cd /sys/bus/pci/devices/{vf}
            echo {vf} >driver/unbind; echo {driver} >driver_override; echo {vf} >/sys/bus/pci/drivers_probe"
        ));
    }

    /// Creates network namespaces of pods.
    pub(super) fn create_pods(&self, names: &[&str]) {
        self.guest.run(&format!("for pod in {}; do ip netns add $pod; done", names.join(" ")));
    }

    /// Deletes network namespaces of pods, and waits until the kernel has returned their VFs.
    pub(super) fn delete_pods(&self, names: &[&str]) {
        self.guest.run(&format!("for pod in {}; do ip netns delete $pod; done", names.join(" ")));
    }

    /// Calls the plugin `sriov` for the interface of a pod. The ID of the container is the name of the pod.
    pub(super) fn call(&self, command: &str, pod: &str, config: &Value) -> Outcome {
        self.call_with(command, pod, config, &[])
    }

    /// Same as [`PodNode::call`], with variables for the script [`CALL`].
    pub(super) fn call_with(
        &self,
        command: &str,
        pod: &str,
        config: &Value,
        variables: &[(&str, &str)],
    ) -> Outcome {
        let config = config.to_string();
        let variables: Vec<_> = variables.iter().copied().chain([("CONFIG", config.as_str())]).collect();
        self.execute(&format!("/run/cni/call {command} '{pod}'"), &variables)
    }

    /// Runs `cnitool VERB` with a network of these plugins for the interface of a pod.
    pub(super) fn cnitool(&self, verb: &str, pod: &str, network: &str, plugins: &Value) -> Outcome {
        self.cnitool_with(verb, pod, network, plugins, &[])
    }

    /// Same as [`PodNode::cnitool`], with environment variables.
    pub(super) fn cnitool_with(
        &self,
        verb: &str,
        pod: &str,
        network: &str,
        plugins: &Value,
        variables: &[(&str, &str)],
    ) -> Outcome {
        let list = json!({ "cniVersion": "1.1.0", "name": network, "plugins": plugins }).to_string();
        let directory = format!("/run/cni/networks/{pod}");
        let variables: Vec<_> = [
            ("LIST", list.as_str()),
            ("NETCONFPATH", directory.as_str()),
            ("CNI_PATH", PLUGINS),
            ("CNI_IFNAME", INTERFACE),
        ]
        .into_iter()
        .chain(variables.iter().copied())
        .collect();
        let write = "mkdir -p $NETCONFPATH; printf %s \"$LIST\" >$NETCONFPATH/network.conflist";
        self.execute(&format!("{write}; cnitool {verb} {network} /run/netns/{pod}"), &variables)
    }

    /// Runs a script with environment variables; keeps its outputs apart.
    fn execute(&self, script: &str, variables: &[(&str, &str)]) -> Outcome {
        let script = format!(
            "{script} 2>/run/cni/stderr
            status=$?
            printf %s '{SEPARATOR}'
            cat /run/cni/stderr
            exit $status"
        );
        let mut job = Job::shell(script);
        for (name, value) in variables {
            job = job.env(*name, *value);
        }
        let output = self.guest.vm.run(&job).expect("the machine runs jobs");
        let (stdout, stderr) = output.output.split_once(SEPARATOR).unwrap_or((&output.output, ""));
        Outcome { status: output.status, stdout: stdout.to_owned(), stderr: stderr.to_owned() }
    }

    /// Returns the settings of a VF as ip(8) shows them.
    pub(super) fn vf_settings(&self, vf: LabVf) -> Value {
        self.guest.link(&vf.pf())["vfinfo_list"][vf.index as usize].clone()
    }

    /// Returns the interface of a pod as ip(8) shows it.
    pub(super) fn pod_link(&self, pod: &str) -> Value {
        self.ip_json(&format!("-n {pod} -details address show dev {INTERFACE}"))[0].clone()
    }

    /// Returns the JSON of ip(8).
    pub(super) fn ip_json(&self, arguments: &str) -> Value {
        let text = self.guest.run(&format!("ip -json {arguments}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns the names of all interfaces in a namespace, except `lo`.
    pub(super) fn pod_interfaces(&self, pod: &str) -> BTreeSet<String> {
        let links = self.ip_json(&format!("-n {pod} link show"));
        let names = links.as_array().into_iter().flatten().filter_map(|link| link["ifname"].as_str());
        names.filter(|name| *name != "lo").map(str::to_owned).collect()
    }
}

/// Returns the configuration of the plugin `sriov` for a VF, with more keys.
pub(super) fn sriov(vf: LabVf, keys: &Value) -> Value {
    let mut config =
        json!({ "cniVersion": "1.1.0", "name": "red", "type": "sriov", "deviceID": vf.to_string() });
    for (key, value) in keys.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

fn install(guest: &Guest<'_>, programs: Programs) {
    let directory = fixture_lab::cni_programs().expect("the CNI programs are built");
    for name in ["cnitool", "host-local", "static", "tuning"] {
        guest.install(&directory.join(name));
    }
    let program = guest.install(programs.vfleet_cni);
    guest.run(&format!(
        "mkdir -p {PLUGINS} /run/cni
        ln -f /usr/local/bin/{{host-local,static,tuning}} {PLUGINS}
        for name in sriov ib-sriov rdma; do ln -f {program} {PLUGINS}/$name; done
        cat >/run/cni/call <<'EOF'\n{CALL}EOF
        chmod +x /run/cni/call"
    ));
}

/// Returns the cards and VFs as text: one line for each property, with the PCI address.
fn read_cards(guest: &Guest<'_>) -> String {
    let output = guest.run(
        "udevadm settle
        ip -details -json link
        ip -json address
        cd /sys/bus/pci/devices
        find */driver -printf '%h driver: %l\\n' | sort
        grep . */driver_override",
    );
    let mut lines = output.lines();
    let mut read_line =
        || -> Vec<Value> { serde_json::from_str(lines.next().unwrap_or_default()).expect("ip prints JSON") };
    let (interfaces, addresses) = (read_line(), read_line());
    let mut properties = BTreeSet::new();
    for (mut link, addresses) in interfaces.into_iter().zip(addresses) {
        if link["ifname"] != "api0" {
            link["addr_info"] = addresses["addr_info"].clone();
            remove_name_of_mac(&mut link);
            let function = link["parentdev"].as_str().unwrap_or("virtual").to_owned();
            flatten(&function, &link, &mut properties);
        }
    }
    properties.into_iter().chain(lines.map(str::to_owned)).collect::<Vec<_>>().join("\n")
}

/// Removes the alternative name that udev gives every interface whose MAC the driver does not call random: a VF that was bound
/// again has it.
fn remove_name_of_mac(link: &mut Value) {
    let mac = link["address"].as_str().unwrap_or_default().replace(':', "");
    let Some(names) = link.get_mut("altnames").and_then(Value::as_array_mut) else { return };
    names.retain(|name| *name != format!("enx{mac}"));
}

/// Adds a line for each value in a JSON value, except values that change by themselves.
fn flatten(path: &str, value: &Value, lines: &mut BTreeSet<String>) {
    // igbvf changes its permanent MAC when an interface is up for the first time.
    const VARYING: [&str; 5] = ["ifindex", "permaddr", "tentative", "valid_life_time", "preferred_life_time"];
    match value {
        Value::Object(entries) => {
            for (key, value) in entries.iter().filter(|(key, _)| !VARYING.contains(&key.as_str())) {
                flatten(&format!("{path} {key}"), value, lines);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&format!("{path} {index}"), item, lines);
            }
        }
        Value::Array(items) if items.is_empty() => {}
        value => drop(lines.insert(format!("{path}: {value}"))),
    }
}
