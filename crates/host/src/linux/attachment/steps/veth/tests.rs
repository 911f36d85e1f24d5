use vfleet_plan::cni::step::SwitchStep;

use super::*;
use crate::linux::attachment::test_pod::{TestPod, run_with_pod};
use crate::linux::test_namespace::{iproute, shell};

const HOST: &str = "veth00aa11bb";
const HOST_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 8]);
const POD_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

fn create(pod: &TestPod, mtu: u32) -> SwitchStep {
    SwitchStep::CreateVeth {
        host_name: HOST.to_owned(),
        host_mac: HOST_MAC,
        namespace: pod.namespace.clone(),
        name: "net1".to_owned(),
        mac: POD_MAC,
        mtu,
    }
}

fn delete(host_mac: Option<MacAddr>) -> SwitchStep {
    SwitchStep::DeleteVeth { host_name: HOST.to_owned(), host_mac }
}

fn delete_in_pod(pod: &TestPod) -> SwitchStep {
    SwitchStep::DeleteVethInPod { namespace: pod.namespace.clone(), name: "net1".to_owned() }
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_pair_is_created_in_the_pod_and_deleted() {
    run_with_pod(|pod| {
        for mtu in [1500, 9000] {
            for _ in 0..2 {
                pod.execute_switch(&create(pod, mtu));
                let (on_host, in_pod) = (iproute(HOST).unwrap(), pod.iproute("net1").unwrap());
                for (link, mac) in [(&on_host, HOST_MAC), (&in_pod, POD_MAC)] {
                    assert_eq!((&link["linkinfo"]["info_kind"], &link["mtu"]), (&"veth".into(), &mtu.into()));
                    assert_eq!(
                        (&link["address"], &link["operstate"]),
                        (&mac.to_string().into(), &"DOWN".into())
                    );
                }
                assert_eq!(on_host["link_index"], in_pod["ifindex"]);
                assert_eq!((iproute("net1"), pod.iproute(HOST)), (None, None));
            }
            pod.execute_switch(&SwitchStep::SetHostInterfaceUp { name: HOST.to_owned() });
            assert!(iproute(HOST).unwrap()["flags"].as_array().unwrap().contains(&"UP".into()));
            let removal = if mtu == 1500 { delete(Some(HOST_MAC)) } else { delete_in_pod(pod) };
            for _ in 0..2 {
                pod.execute_switch(&removal);
                assert_eq!((iproute(HOST), pod.iproute("net1")), (None, None));
            }
        }
        let missing = SwitchStep::SetHostInterfaceUp { name: HOST.to_owned() };
        assert_eq!(pod.switch_refusal(&missing).0, "NoInterface");
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn interfaces_of_others_are_left_alone() {
    for (on_host, in_pod, taken) in [
        (format!("ip link add {HOST} type veth peer name other"), "true", HOST),
        (format!("ip link add {HOST} address {HOST_MAC} type bridge"), "true", HOST),
        ("true".to_owned(), "ip link add net1 type veth peer name other", "net1"),
        // Both have the right addresses, and belong to different pairs.
        (
            format!("ip link add {HOST} address {HOST_MAC} type veth peer name other"),
            "ip link add net1 address 02:00:00:00:00:07 type veth peer name other",
            "net1",
        ),
    ] {
        run_with_pod(|pod| {
            shell(&on_host);
            pod.shell(in_pod);
            let before = (shell("ip -d -j link"), pod.shell("ip -d -j link"));
            let (reason, text) = pod.switch_refusal(&create(pod, 1500));
            assert!(
                reason == "InterfaceNameTaken" && text.contains(&format!("has the name {taken}")),
                "{text}"
            );
            pod.execute_switch(&delete(Some(POD_MAC)));
            assert_eq!((shell("ip -d -j link"), pod.shell("ip -d -j link")), before);
        });
    }
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_pair_whose_namespace_is_gone_is_deleted() {
    run_with_pod(|pod| {
        pod.execute_switch(&create(pod, 1500));
        pod.delete();
        let (reason, _) = pod.switch_refusal(&create(pod, 1500));
        assert_eq!(reason, "NamespaceGone");
        pod.execute_switch(&delete_in_pod(pod));
        // The kernel deletes it too, at some time.
        pod.execute_switch(&delete(Some(HOST_MAC)));
        assert_eq!(iproute(HOST), None);
    });
}
