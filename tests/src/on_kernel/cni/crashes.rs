//! Plugins that are killed: nothing of the attachment is left, and the next pod gets a clean VF.

use serde_json::json;

use super::pod_node::{LabVf, PodNode, VFS, sriov};

/// Effects of an ADD on the machine, in their order.
const ADD_EFFECTS: [&str; 10] = [
    "WriteJournal:attaching",
    "SetVf",
    "SetInterfaceMac",
    "MoveToPod",
    "SetUpInPod",
    "Delegate",
    "AddAddresses",
    "WriteGoAllocation",
    "WriteJournal:attached",
    "Announce",
];
/// Effects of a DEL on the machine, in their order.
const DEL_EFFECTS: [&str; 6] =
    ["Delegate", "WriteJournal:releasing", "SetVf", "ReturnToHost", "RemoveGoAllocation", "RemoveJournal"];

/// Lanes that run at the same time, each on a VF of its own.
const LANES: usize = 2 * VFS as usize;

/// Crashing plugin in the machine.
pub(super) const CRASHING_PLUGIN: &str = "/opt/cni/crashing/sriov";

/// Functions of the lanes. A killed ADD or DEL is followed by DEL, as runtimes do, or the namespace is lost. Then the next pod
/// gets the VF, without a trace of the previous one, and is deleted.
const FUNCTIONS: &str = r#"
report() { echo "$moment of $command on $name: $*" >>/run/cni/failed; }

# Calls a plugin, which must succeed.
must() { # command, pod
    /run/cni/call "$1" "$2" >/run/cni/$pod.out 2>&1 || report "$1 of $2: $(cat /run/cni/$pod.out)"
}

crash() { # pod, card, index of the VF, configurations
    local pod=$1 card=$2 index=$3 first=$4 next=$5
    local name=${card}v$index
    local mac=$(cat /sys/class/net/$name/address) status=0 after
    ip netns add $pod
    ip netns add $pod-next
    export CONFIG=$first
    if [ $command = DEL ]; then must ADD $pod; fi
    { PLUGIN=/opt/cni/crashing/sriov CRASH=$moment /run/cni/call $command $pod >/run/cni/$pod.out 2>&1 || status=$?; } 2>/dev/null
    [ $status = 137 ] || report "not killed: $(cat /run/cni/$pod.out)"
    case $moment in
        before*) must DEL $pod ;;
        after*) ip netns delete $pod ;;
    esac
    export CONFIG=$next
    must ADD $pod-next
    after=$(ip -n $pod-next -o link show net1 2>&1) || true
    [[ $after == *" mtu 1500 "*" link/ether $mac "* ]] || report "the next pod has another interface than $mac: $after"
    after=$(ip -j link show $card | jq -c ".[0].vfinfo_list[$index] | [.vlan_list, .trust]")
    [[ $after == '[[{}],false]' ]] || report "the next pod has other settings: $after"
    must DEL $pod-next
    # Runtimes repeat a DEL until it succeeds.
    export CONFIG=$first
    must DEL $pod
}
"#;

/// Installs the crashing plugin.
pub(super) fn install_crashing_plugin(node: &PodNode<'_>) {
    let program = node.guest.install(node.programs.crashing_cni);
    node.guest.run(&format!("mkdir -p $(dirname {CRASHING_PLUGIN}); ln -f {program} {CRASHING_PLUGIN}"));
}

/// The plugin is killed before and after each of its effects, at all of them at the same time on different VFs.
pub(in super::super) fn leaves_nothing_when_killed(node: &PodNode<'_>) {
    install_crashing_plugin(node);
    let effects = ADD_EFFECTS.map(|effect| ("ADD", effect)).into_iter();
    let effects = effects.chain(DEL_EFFECTS.map(|effect| ("DEL", effect)));
    let moments =
        effects.flat_map(|(command, effect)| ["before", "after"].map(|when| (command, when, effect)));
    let mut lanes = vec![Vec::new(); LANES];
    for (number, ((command, when, effect), lane)) in moments.zip((0..LANES).cycle()).enumerate() {
        let position = u32::try_from(lane).expect("there are few lanes");
        let vf = LabVf::new(1 + position % 2, position / 2);
        lanes[lane].push(format!(
            "command={command} moment='{when} {effect}'
            crash crash{number} {} {} '{}' '{}'",
            vf.pf(),
            vf.index,
            first_config(vf, number),
            sriov(vf, &json!({}))
        ));
    }
    let lanes: Vec<_> = lanes.iter().map(|lane| format!("(\n{}\n) &", lane.join("\n"))).collect();
    let failures = node.guest.run(&format!(
        "{FUNCTIONS}\nrm -f /run/cni/failed\n{}\nwait\ncat /run/cni/failed 2>/dev/null || true",
        lanes.join("\n")
    ));
    assert_eq!(failures, "", "killed plugins left something");
    node.assert_restored("after plugins that were killed");
}

/// Returns a configuration that causes all effects.
fn first_config(vf: LabVf, number: usize) -> serde_json::Value {
    let mac = format!("02:00:00:00:0e:{number:02x}");
    let ipam = json!({ "type": "host-local", "ranges": [[{ "subnet": "198.51.100.0/24" }]] });
    sriov(vf, &json!({ "vlan": 900, "trust": "on", "mac": mac, "mtu": 1400, "ipam": ipam }))
}
