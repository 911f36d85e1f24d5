//! Attachments at the same time.

use serde_json::json;

use super::pod_node::{LabVf, PodNode, VFS, sriov};

const VF: LabVf = LabVf::new(2, 3);
/// Attachments at the same time, in turns on all VFs.
const ATTACHMENTS: u32 = 32;

/// Of two attachments of one VF one succeeds. Attachments of many VFs do not disturb each other.
pub(in super::super) fn attaches_at_the_same_time(node: &PodNode<'_>) {
    attaches_vf_once(node);
    attaches_all_vfs_in_turns(node);
}

/// Two ADDs for one VF at the same time: one wins, and nothing of it is touched by the other one.
fn attaches_vf_once(node: &PodNode<'_>) {
    let [one, other] = ["one", "two"];
    node.create_pods(&[one, other]);
    let config = |pod: &str| sriov(VF, &json!({ "vlan": if pod == one { 501 } else { 502 } }));
    let adds = [one, other].map(|pod| {
        format!(
            "(status=0; CONFIG='{}' /run/cni/call ADD {pod} >/run/cni/{pod}.out 2>/run/cni/{pod}.err || status=$?
            echo $status >/run/cni/{pod}.status) &",
            config(pod)
        )
    });
    node.guest.run(&format!("{}\nwait", adds.join("\n")));
    let is_winner = |pod: &str| node.guest.run(&format!("cat /run/cni/{pod}.status")) == "0";
    let (winner, loser) = if is_winner(one) { (one, other) } else { (other, one) };
    assert!(is_winner(winner) && !is_winner(loser), "exactly one wins");
    let error = node.guest.run(&format!("cat /run/cni/{loser}.out"));
    let error: serde_json::Value = serde_json::from_str(&error).expect("the loser prints an error");
    assert_eq!(error["code"], 11, "{error:#}");
    assert!(
        error["msg"].as_str().is_some_and(|text| text.contains(winner)),
        "the holder is named: {error:#}"
    );

    let read = || {
        let mut link = node.pod_link(winner);
        // The state of its link-local address changes by itself.
        link["addr_info"] = serde_json::Value::Null;
        (node.vf_settings(VF), link)
    };
    let (settings, link) = read();
    assert_eq!(settings["vlan_list"][0]["vlan"], config(winner)["vlan"]);
    assert_eq!(link["parentdev"], VF.to_string());
    assert!(node.pod_interfaces(loser).is_empty());
    node.call("DEL", loser, &config(loser)).assert_silent_success();
    assert_eq!(read(), (settings, link), "DEL of the loser changed the pod of the winner");
    node.call("DEL", winner, &config(winner)).assert_silent_success();
    node.assert_restored("after two attachments of one VF");
}

/// Each VF is attached to one pod after the other; all VFs at the same time.
fn attaches_all_vfs_in_turns(node: &PodNode<'_>) {
    let vfs: Vec<_> = (0..VFS).flat_map(|index| [LabVf::new(1, index), LabVf::new(2, index)]).collect();
    let mut lanes = vec![Vec::new(); vfs.len()];
    for (number, lane) in (0..ATTACHMENTS).zip((0..vfs.len()).cycle()) {
        let ipam = json!({ "type": "host-local", "ranges": [[{ "subnet": "198.51.100.0/24" }]] });
        let config = sriov(vfs[lane], &json!({ "vlan": 600 + number, "ipam": ipam }));
        lanes[lane].push(format!(
            "ip netns add many{number}
            export CONFIG='{config}'
            for command in ADD DEL; do
                /run/cni/call $command many{number} >>/run/cni/lane{lane} 2>&1 || echo \"$command of many{number} failed\" >>/run/cni/failed
            done"
        ));
    }
    let lanes: Vec<_> = lanes.iter().map(|lane| format!("(\n{}\n) &", lane.join("\n"))).collect();
    let output = node.guest.run(&format!(
        "rm -f /run/cni/lane* /run/cni/failed
        {}
        wait
        if [ -e /run/cni/failed ]; then cat /run/cni/failed; grep -h msg /run/cni/lane*; fi
        cat /run/cni/lane* | grep -c sandbox",
        lanes.join("\n")
    ));
    assert_eq!(output, ATTACHMENTS.to_string(), "attachments failed");
    node.assert_restored("after many attachments at the same time");
}
