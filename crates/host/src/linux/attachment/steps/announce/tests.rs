use std::net::IpAddr;
use std::time::Instant;

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{SockProtocol, recv, setsockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use vfleet_plan::cni::step::CniStep;

use super::*;
use crate::linux::attachment::test_pod::{TestPod, run_with_pod, vf};
use crate::linux::test_namespace::shell;

/// Returns a socket that receives all frames of the network.
fn listen() -> OwnedFd {
    let address = getifaddrs().unwrap().find(|found| found.interface_name == "wire").unwrap();
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
    bind(socket.as_raw_fd(), address.address.unwrap().as_link_addr().unwrap()).unwrap();
    setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(5)).unwrap();
    socket
}

fn await_frame(socket: &OwnedFd, expected: &[u8]) {
    let mut frame = [0; 2000];
    loop {
        let length = recv(socket.as_raw_fd(), &mut frame, MsgFlags::empty()).unwrap();
        if &frame[..length] == expected {
            return;
        }
    }
}

fn announce_step(pod: &TestPod, ips: &[IpAddr]) -> CniStep {
    CniStep::Announce { namespace: pod.namespace.clone(), name: "net1".to_owned(), ips: ips.to_vec() }
}

fn move_to_pod(pod: &TestPod) {
    pod.execute(&CniStep::MoveToPod {
        device: vf(),
        namespace: pod.namespace.clone(),
        name: "net1".to_owned(),
        drop_alt_names: Vec::new(),
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn other_machines_receive_announcements_that_update_their_neighbors() {
    let ips: [IpAddr; 2] = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
    run_with_pod(|pod| {
        move_to_pod(pod);
        pod.shell(
            "ip link set net1 up; ip address add 192.0.2.7/24 dev net1; ip address add 2001:db8::7/64 dev net1 nodad",
        );
        // A new carrier removes neighbors.
        events::wait_for_link(Duration::from_secs(5), || {
            Ok(Rtnl::open()?.link_by_name("wire")?.filter(|link| link.has_carrier))
        })
        .unwrap()
        .unwrap();
        shell(
            "ip address add 192.0.2.1/24 dev wire; ip address add 2001:db8::1/64 dev wire nodad; \
             for ip in 192.0.2.7 2001:db8::7; do \
               ip neighbor replace $ip dev wire lladdr 02:00:00:00:00:aa nud stale; done",
        );
        let network = listen();
        pod.execute(&announce_step(pod, &ips));
        for ip in ips {
            await_frame(&network, &frames::announcement("02:00:00:00:00:09".parse().unwrap(), ip));
            // The kernel gives the frame to this test first.
            let deadline = Instant::now() + Duration::from_secs(5);
            let is_updated = || shell(&format!("ip neighbor show {ip}")).contains("02:00:00:00:00:09");
            while !is_updated() {
                assert!(Instant::now() < deadline, "{ip}");
            }
        }
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn an_announcement_without_a_carrier_or_an_interface_is_no_error_and_takes_200_ms() {
    run_with_pod(|pod| {
        pod.execute(&announce_step(pod, &["192.0.2.7".parse().unwrap()]));
        move_to_pod(pod);
        shell("ip link set wire down");
        pod.shell("ip link set net1 up");
        let start = Instant::now();
        pod.execute(&announce_step(pod, &["192.0.2.7".parse().unwrap()]));
        assert!((200..1000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    });
}
