use std::io;

use serde_json::{Value, json};
use vfleet_plan::cni::step::{CniStep, OriginalInterface};

use super::*;
use crate::linux::attachment::test_pod::{TestPod, run_with_pod, vf};
use crate::linux::test_namespace::{iproute, shell};

fn to_pod(pod: &TestPod, drop_alt_names: &[&str]) -> CniStep {
    CniStep::MoveToPod {
        device: vf(),
        namespace: pod.namespace.clone(),
        name: "net1".to_owned(),
        drop_alt_names: drop_alt_names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn to_host(pod: &TestPod, alt_names: &[&str]) -> CniStep {
    CniStep::ReturnToHost {
        device: vf(),
        namespace: Some(pod.namespace.clone()),
        pod_name: "net1".to_owned(),
        original: OriginalInterface {
            name: "port".to_owned(),
            alt_names: alt_names.iter().map(|name| (*name).to_owned()).collect(),
            mac: Some("02:00:00:00:00:09".parse().unwrap()),
            mtu: Some(1400),
        },
    }
}

/// Moves the interface to the pod, from where sysfs of the host does not show it.
fn move_away(pod: &TestPod, drop_alt_names: &[&str]) {
    pod.execute(&to_pod(pod, drop_alt_names));
    pod.hide_in_sysfs();
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn an_interface_moves_to_the_pod_and_back() {
    run_with_pod(|pod| {
        shell("ip link property add dev port altname first altname second; ip link set port mtu 1400");
        let before = iproute("port").unwrap();
        move_away(pod, &["second"]);
        let moved = pod.iproute("net1").unwrap();
        assert_eq!((&moved["ifindex"], &moved["altnames"]), (&before["ifindex"], &json!(["first"])));
        assert_eq!(moved["operstate"], "DOWN");
        assert!(iproute("port").is_none());
        pod.execute(&to_pod(pod, &[]));

        pod.shell("ip link set net1 address 02:00:00:00:00:aa mtu 9000");
        pod.execute(&to_host(pod, &["first", "second"]));
        pod.show_in_sysfs("port");
        pod.execute(&to_host(pod, &["first", "second"]));
        let back = iproute("port").unwrap();
        for field in ["ifindex", "altnames", "address"] {
            assert_eq!(back[field], before[field], "{field}");
        }
        assert_eq!(back["mtu"], 1400);
        assert!(pod.iproute("net1").is_none());
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_name_that_is_taken_in_the_pod_leaves_the_interface_on_the_host_and_the_other_one_untouched() {
    run_with_pod(|pod| {
        for other in ["ip link add net1 type veth peer name other", "ip link property add dev net1 altname x"]
        {
            pod.shell(other);
        }
        for renamed in ["true", "ip link set net1 name net9; ip link property add dev net9 altname net1"] {
            pod.shell(renamed);
            let before = (iproute("port").unwrap(), pod.shell("ip -d -o link"));
            let (reason, text) = pod.refusal(&to_pod(pod, &[]));
            assert!(reason == "NetlinkRefused" && text.contains("File exists"), "{text}");
            let after = (iproute("port").unwrap(), pod.shell("ip -d -o link"));
            // The index may be another one: the kernel chose it when another interface of the pod had the old one.
            // The carrier may be noticed late.
            let is_up = |link: &Value| link["flags"].as_array().unwrap().contains(&json!("UP"));
            assert_eq!((is_up(&after.0), &after.0["address"]), (is_up(&before.0), &before.0["address"]));
            assert_eq!(after.1, before.1);
            pod.show_in_sysfs("port");
        }
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn alternative_names_that_equal_the_new_name_are_removed() {
    run_with_pod(|pod| {
        shell("ip link property add dev port altname net1");
        move_away(pod, &[]);
        let moved = pod.iproute("net1").unwrap();
        assert!(moved["altnames"].is_null(), "{moved}");
        pod.shell("ip link property add dev net1 altname port");
        pod.execute(&to_host(pod, &[]));
        assert!(iproute("port").unwrap()["altnames"].is_null());
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn alternative_names_that_are_taken_on_the_host_or_are_the_name_in_the_pod_do_not_remain() {
    run_with_pod(|pod| {
        shell("ip link property add dev port altname first");
        move_away(pod, &[]);
        shell("ip link property add dev wire altname first");
        pod.execute(&to_host(pod, &["first"]));
        assert!(iproute("port").unwrap()["altnames"].is_null());
        assert_eq!(iproute("wire").unwrap()["altnames"], json!(["first"]));

        shell("ip link property del dev wire altname first; ip link property add dev port altname net1");
        pod.show_in_sysfs("port");
        pod.execute(&to_host(pod, &["first"]));
        assert_eq!(iproute("port").unwrap()["altnames"], json!(["first"]));
        pod.execute(&to_host(pod, &["first", "net1"]));
        pod.execute(&to_host(pod, &["first", "net1"]));
        assert_eq!(iproute("port").unwrap()["altnames"], json!(["first", "net1"]));
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_name_that_another_interface_of_the_host_has_stays_with_it() {
    run_with_pod(|pod| {
        move_away(pod, &[]);
        shell("ip link add port type veth peer name port-peer");
        let other = iproute("port").unwrap()["ifindex"].clone();
        pod.execute(&to_host(pod, &[]));
        let back = iproute("dev0").unwrap();
        assert_eq!((&back["address"], &back["mtu"]), (&json!("02:00:00:00:00:09"), &json!(1400)));
        assert_eq!(iproute("port").unwrap()["ifindex"], other);
        pod.show_in_sysfs("dev0");
        pod.execute(&to_host(pod, &[]));
        shell("ip link del port");
        pod.execute(&to_host(pod, &[]));
        assert_eq!(iproute("port").unwrap()["ifindex"], back["ifindex"], "its name was free again");
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn an_interface_that_is_in_the_pod_with_another_name_gets_its_name() {
    run_with_pod(|pod| {
        pod.shell("ip link add ib0 type veth peer name other; ip link set ib0 up");
        pod.shell("ip link property add dev ib0 altname net1");
        let attempt = "name it";
        let rename = |from: &str, to: &str| {
            let mut rtnl = pod.open_rtnl();
            let link = rtnl.link_by_name(from).unwrap().unwrap();
            rename_in_pod(&mut rtnl, &link, to, attempt)
        };
        rename("ib0", "net1").unwrap();
        rename("net1", "net1").unwrap();
        let found = pod.iproute("net1").unwrap();
        assert!(found["altnames"].is_null() && found["operstate"] == "DOWN", "{found}");
        assert_eq!(rename("net1", "other").unwrap_err().errno(), Some(17));
    });
}

/// The kernel moves the interface of a card itself, with the name that it had in the pod.
#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn an_interface_that_the_kernel_has_returned_gets_its_name_back() {
    run_with_pod(|pod| {
        shell(
            "ip link set port down; ip link set port name net1 mtu 9000; ip link property add dev net1 altname port",
        );
        shell("ip link set net1 address 02:00:00:00:00:aa up");
        pod.show_in_sysfs("net1");
        pod.delete();
        let step = to_host(pod, &["x"]);
        let CniStep::ReturnToHost { device, pod_name, original, .. } = step else { panic!() };
        pod.execute(&CniStep::ReturnToHost { device, namespace: None, pod_name, original });
        let back = iproute("port").unwrap();
        assert_eq!((&back["address"], &back["mtu"]), (&json!("02:00:00:00:00:09"), &json!(1400)));
        assert_eq!(back["altnames"], json!(["x"]));
        assert!(back["flags"].as_array().unwrap().contains(&json!("UP")), "{back}");
    });
}

/// Like udev, which names an interface after its path, and like an administrator.
#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_name_that_is_given_between_the_check_and_the_rename_is_noticed() {
    let changes = [
        ("ip link property add dev net1 altname port", true),
        ("ip link property del dev net1 altname first; ip link property add dev net1 altname port", true),
        ("ip link add port type veth peer name port-peer", false),
    ];
    for (change, is_renamed) in changes {
        run_with_pod(|_| {
            shell(
                "ip link set port down; ip link set port name net1; ip link property add dev net1 altname first",
            );
            let mut rtnl = Rtnl::open().unwrap();
            let index = rtnl.link_by_name("net1").unwrap().unwrap().index;
            let mut attempts = 0;
            let result = back::with_names(|| {
                let link = rtnl.link(index)?;
                let is_to_rename = back::is_to_rename(&mut rtnl, &link, vf(), "port")?;
                attempts += 1;
                if attempts == 1 {
                    shell(change);
                }
                if is_to_rename { back::rename(&mut rtnl, &link, vf(), "port") } else { Ok(link) }
            });
            result.unwrap();
            let name = if is_renamed { "port" } else { "net1" };
            assert_eq!((attempts, rtnl.link(index).unwrap().name.as_str()), (2, name), "{change}");
        });
    }
}

#[test]
fn names_are_read_again_a_few_times_and_other_errors_are_returned_at_once() {
    let refused = |errno| {
        let source = io::Error::from_raw_os_error(errno);
        HostError::Netlink { attempt: "rename it".to_owned(), message: None, source }
    };
    let attempts = |failures: usize, errno: i32| {
        let mut made = 0;
        let result = back::with_names(|| {
            made += 1;
            if made <= failures { Err(refused(errno)) } else { Ok(()) }
        });
        (made, result.err().and_then(|error| error.errno()))
    };
    assert_eq!((attempts(5, 17), attempts(1, 2)), ((6, None), (2, None)));
    assert_eq!((attempts(100, 17), attempts(1, 1)), ((6, Some(17)), (1, Some(1))));
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_namespace_that_is_gone_or_another_one_is_an_error_before_anything_is_changed() {
    run_with_pod(|pod| {
        let before = iproute("port").unwrap();
        pod.namespace.id.inode += 1;
        let (reason, text) = pod.refusal(&to_pod(pod, &[]));
        assert_eq!(reason, "NamespaceGone", "{text}");
        pod.namespace.id.inode -= 1;
        let cookie = pod.namespace.id.cookie;
        pod.namespace.id.cookie = cookie.map(|cookie| cookie + 1);
        assert_eq!(pod.refusal(&to_pod(pod, &[])).0, "NamespaceGone", "another one with its inode");
        assert_eq!(iproute("port").unwrap(), before);
        pod.namespace.id.cookie = cookie;
        pod.delete();
        assert_eq!(pod.refusal(&to_pod(pod, &[])).0, "NamespaceGone");
        pod.hide_in_sysfs();
        assert_eq!(pod.refusal(&to_host(pod, &[])).0, "NamespaceGone");
        assert_eq!(iproute("port").unwrap(), before);
    });
}

#[test]
fn an_interface_of_a_pod_is_recognized_by_its_device_and_on_older_kernels_by_its_name() {
    let (own, other): (PciAddress, PciAddress) = (vf(), "0000:01:10.2".parse().unwrap());
    let link = |index, name: &str, device| Link { name: name.to_owned(), device, ..Link::plain(index) };
    let find = |links: &[Link], reports_devices: bool| {
        choose(links.to_vec(), own, "net1", || reports_devices).map(|link| link.index)
    };
    let renamed = [link(2, "net1", Some(other)), link(3, "eth7", Some(own))];
    assert_eq!((find(&renamed, true), find(&renamed, false)), (Some(3), Some(3)));
    let foreign = [link(2, "net1", Some(other)), link(3, "net2", None)];
    assert_eq!((find(&foreign, true), find(&foreign, false)), (None, None));
    let unknown = [link(2, "net1", None)];
    assert_eq!((find(&unknown, true), find(&unknown, false)), (None, Some(2)));
}
