use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use vfleet_plan::{ExternalQuery, Fact};

use super::*;
use crate::linux::test_tree::TestTree;
use crate::{Host, LinuxHost};

/// Starts an HTTP server that answers the expected requests in order. Returns its address, and the requests at its end.
fn serve(answers: Vec<(&'static str, &'static str)>) -> (SocketAddr, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut requests = Vec::new();
        for (line, answer) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8(request[..length].to_vec()).unwrap();
            let status = if request.starts_with(line) { "200 OK" } else { "404 Not Found" };
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).unwrap();
            requests.push(request);
        }
        requests
    });
    (address, server)
}

fn mac(text: &str) -> MacAddr {
    text.parse().unwrap()
}

#[test]
fn requests_to_aws_carry_a_token() {
    let interfaces = "/latest/meta-data/network/interfaces/macs/";
    let (service, server) = serve(vec![
        ("PUT /latest/api/token HTTP", "secret"),
        ("GET /latest/meta-data/network/interfaces/macs/ HTTP", "0e:49:61:0f:c3:11/\n0e:49:61:0f:c3:12/"),
        ("GET /latest/meta-data/network/interfaces/macs/0e:49:61:0f:c3:11/subnet-id HTTP", "subnet-0ab"),
        ("GET /latest/meta-data/network/interfaces/macs/0e:49:61:0f:c3:12/subnet-id HTTP", "subnet-0cd\n"),
    ]);
    let networks = read_networks(TestTree::new().root(), Platform::Aws, service).unwrap();
    assert_eq!(networks.by_mac[&mac("0e:49:61:0f:c3:11")], "aws/NetworkID:0ab");
    assert_eq!(networks.by_mac[&mac("0e:49:61:0f:c3:12")], "aws/NetworkID:0cd");
    let requests = server.join().unwrap();
    assert!(requests[0].contains("X-aws-ec2-metadata-token-ttl-seconds: 60\r\n"), "{}", requests[0]);
    assert!(requests[1].starts_with(&format!("GET {interfaces} ")));
    assert!(requests[1..].iter().all(|request| request.contains("X-aws-ec2-metadata-token: secret\r\n")));
}

const NETWORK_DATA: &str = r#"{"links":[{"id":"tap1","ethernet_mac_address":"fa:16:3e:00:00:01"}],
    "networks":[{"link":"tap1","network_id":"da5bb487"}]}"#;

#[test]
fn the_metadata_service_of_openstack_is_used_without_a_config_drive() {
    let (service, server) = serve(vec![
        ("GET /openstack/2018-08-27/network_data.json HTTP", NETWORK_DATA),
        ("GET /openstack/2018-08-27/meta_data.json HTTP", "{}"),
    ]);
    let networks = read_networks(TestTree::new().root(), Platform::OpenStack, service).unwrap();
    assert_eq!(networks.by_mac[&mac("fa:16:3e:00:00:01")], "openstack/NetworkID:da5bb487");
    server.join().unwrap();
}

#[test]
fn the_error_names_a_url_that_the_service_does_not_have() {
    let (service, server) = serve(vec![("GET /nothing", "")]);
    let error = read_networks(TestTree::new().root(), Platform::OpenStack, service).unwrap_err();
    let expected = format!("cannot get http://{service}/openstack/2018-08-27/network_data.json");
    assert_eq!((error.to_string(), error.reason()), (expected, "MetadataFailed"));
    server.join().unwrap();
}

fn drive(name: &str) -> String {
    format!("/mnt/config/openstack/2018-08-27/{name}")
}

/// Returns a machine whose config drive is mounted and contains `network_data`.
fn with_drive(network_data: &str) -> TestTree {
    let tree = TestTree::new();
    std::fs::create_dir_all(tree.path("/dev/disk/by-label")).unwrap();
    std::os::unix::fs::symlink("../../vdb", tree.path("/dev/disk/by-label/config-2")).unwrap();
    tree.write("/proc/cmdline", "");
    tree.write("/proc/1/mounts", "/dev/vda / ext4 rw 0 0\n/dev/vdb /mnt/config iso9660 ro 0 0\n");
    tree.write(&drive("network_data.json"), network_data);
    tree.write(&drive("meta_data.json"), "{}");
    tree
}

#[test]
fn invalid_metadata_is_reported_with_the_card() {
    let tree = with_drive("{");
    for (name, text) in [
        ("cpuinfo", ""),
        ("sys/kernel/random/boot_id", "1\n"),
        ("sys/kernel/osrelease", "6.12\n"),
        ("modules", ""),
        ("uptime", "1.00 1.00\n"),
    ] {
        tree.write(&format!("/proc/{name}"), text);
    }
    tree.add_card("0000:00:05.0", "0x8086\n");
    let facts = LinuxHost::new(tree.root().clone()).with_platform(Platform::OpenStack).facts().unwrap();
    assert_eq!((facts.pfs.len(), &facts.pfs[0].net_filter), (1, &Fact::Unknown));
    let [unanswered] = facts.failed_queries.try_into().unwrap();
    assert_eq!((unanswered.query, unanswered.reason), (ExternalQuery::Network, "MetadataFailed"));
    assert!(
        unanswered.error.starts_with("cannot get network_data.json: EOF while parsing"),
        "{unanswered:?}"
    );
}

#[test]
fn a_mounted_drive_is_read_once_and_the_network_of_a_card_is_cached() {
    let tree = with_drive(NETWORK_DATA);
    let root = tree.root().clone().with_platform(Platform::OpenStack);
    let card = "0000:00:05.0".parse().unwrap();
    let expected = Fact::Value("openstack/NetworkID:da5bb487".to_owned());
    assert_eq!(read_network(&root, card, Some(mac("fa:16:3e:00:00:01"))).unwrap(), expected);
    std::fs::remove_file(tree.path(&drive("network_data.json"))).unwrap();
    // A card with a userspace driver has no MAC address.
    assert_eq!(read_network(&root, card, None).unwrap(), expected);
    let other = "0000:00:06.0".parse().unwrap();
    assert_eq!(read_network(&root, other, Some(mac("fa:16:3e:00:00:09"))).unwrap(), Fact::None);
    assert_eq!(read_network(&root, other, None).unwrap(), Fact::Unknown, "unknown without a MAC address");
    let first = Some(mac("fa:16:3e:00:00:01"));
    assert_eq!(read_network(tree.root(), card, first).unwrap(), Fact::Unknown, "the platform is unknown");
    let hardware = tree.root().clone().with_platform(Platform::BareMetal);
    assert_eq!(read_network(&hardware, card, first).unwrap(), Fact::None);
}
