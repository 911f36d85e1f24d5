//! Sessions with storage servers: iSCSI, and NVMe over TCP or RDMA. The root disk of the machine may depend on one.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::root::HostRoot;
use super::sysfs;
use crate::HostError;

/// Ends of a storage session, as far as the kernel reports them. It reports none while a session reconnects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StorageSession {
    /// Local address.
    pub(super) local: Option<IpAddr>,
    /// Interface that the session is bound to.
    pub(super) interface: Option<String>,
    /// Address of the server.
    pub(super) server: Option<IpAddr>,
}

/// Reads all storage sessions.
pub(super) fn read_sessions(root: &HostRoot) -> Result<Vec<StorageSession>, HostError> {
    let mut sessions = Vec::new();
    let connections = root.at("sys/class/iscsi_connection");
    for name in sysfs::list_names_if_exists(&connections)? {
        sessions.push(read_iscsi(root, &connections.join(name)));
    }
    let controllers = root.at("sys/class/nvme");
    for name in sysfs::list_names_if_exists(&controllers)? {
        let controller = controllers.join(name);
        let transport = sysfs::read_if_exists(&controller.join("transport"), "a transport", |text| {
            Some(text.to_owned())
        })?;
        if transport.is_some_and(|transport| ["tcp", "rdma"].contains(&transport.as_str())) {
            let address = sysfs::read(&controller.join("address"));
            sessions.push(address.map(|text| parse_nvme_address(&text)).unwrap_or_default());
        }
    }
    Ok(sessions)
}

/// Reads an iSCSI session. The address of the server belongs to the connection, the local address to the SCSI host:
/// software iSCSI has one SCSI host per session.
fn read_iscsi(root: &HostRoot, connection: &Path) -> StorageSession {
    let value = |path: &Path| sysfs::read(path).ok();
    let address = |path: &Path| value(path).and_then(|text| parse_ip(&text));
    let own = fs::canonicalize(connection).ok().and_then(|path| {
        let components = path.iter().filter_map(|component| component.to_str());
        let mut hosts = components.filter(|name| name.strip_prefix("host").is_some_and(is_number));
        hosts.next().map(|host| root.at("sys/class/iscsi_host").join(host))
    });
    let interface = own.as_ref().and_then(|host| value(&host.join("netdev")));
    StorageSession {
        local: own.and_then(|host| address(&host.join("ipaddress"))),
        interface: interface.filter(|name| !["", "default", "<NULL>", "(null)"].contains(&name.as_str())),
        server: address(&connection.join("address"))
            .or_else(|| address(&connection.join("persistent_address"))),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses the address of an NVMe controller: `traddr=192.0.2.1,trsvcid=4420,src_addr=192.0.2.7`.
pub(super) fn parse_nvme_address(text: &str) -> StorageSession {
    let value = |key: &str| {
        let mut pairs = text.split(',').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(found, _)| *found == key).map(|(_, value)| value)
    };
    let scope = value("traddr").and_then(|address| address.split_once('%')).map(|(_, scope)| scope);
    StorageSession {
        local: value("src_addr").and_then(parse_ip).or_else(|| value("host_traddr").and_then(parse_ip)),
        interface: value("host_iface").or(scope).filter(|name| !name.is_empty()).map(str::to_owned),
        server: value("traddr").and_then(parse_ip),
    }
}

/// Parses an IP address and ignores a scope. Returns `None` for the unspecified address.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let address = text.trim().trim_matches(['[', ']']);
    let address = address.split_once('%').map_or(address, |(address, _)| address);
    address.parse().ok().filter(|address: &IpAddr| !address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;
    use crate::linux::test_tree::TestTree;

    fn write(tree: &TestTree, path: &str, text: &str) {
        let path = tree.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn reads_the_ends_of_an_nvme_session() {
        let session =
            parse_nvme_address("traddr=192.0.2.1,trsvcid=4420,host_traddr=192.0.2.8,src_addr=192.0.2.7\n");
        assert_eq!(session.local, Some([192, 0, 2, 7].into()), "src_addr takes precedence over host_traddr");
        assert_eq!((session.server, session.interface), (Some([192, 0, 2, 1].into()), None));
        let bound = parse_nvme_address("traddr=fe80::1%ens1,trsvcid=4420");
        assert_eq!((bound.server, bound.interface.as_deref()), ("fe80::1".parse().ok(), Some("ens1")));
        assert_eq!(parse_nvme_address("nn-0x1000:pn-0x2000"), StorageSession::default());
    }

    #[test]
    fn finds_iscsi_and_nvme_sessions_but_no_local_disks() {
        let tree = TestTree::new();
        assert_eq!(read_sessions(tree.root()).unwrap(), []);
        let connection = "sys/devices/platform/host3/session1/connection1:0";
        write(&tree, &format!("{connection}/address"), "192.0.2.1\n");
        write(&tree, "sys/class/iscsi_host/host3/ipaddress", "192.0.2.7\n");
        write(&tree, "sys/class/iscsi_host/host3/netdev", "<NULL>\n");
        fs::create_dir_all(tree.path("sys/class/iscsi_connection")).unwrap();
        symlink(tree.path(connection), tree.path("sys/class/iscsi_connection/connection1:0")).unwrap();
        write(&tree, "sys/class/nvme/nvme0/transport", "pcie\n");
        write(&tree, "sys/class/nvme/nvme1/transport", "tcp\n");
        write(&tree, "sys/class/nvme/nvme1/address", "traddr=192.0.2.2,trsvcid=4420\n");
        write(&tree, "sys/class/nvme/nvme2/transport", "rdma\n");
        let own = Some([192, 0, 2, 7].into());
        let expected = [
            StorageSession { local: own, interface: None, server: Some([192, 0, 2, 1].into()) },
            StorageSession { local: None, interface: None, server: Some([192, 0, 2, 2].into()) },
            // A session that cannot be read counts too.
            StorageSession::default(),
        ];
        assert_eq!(read_sessions(tree.root()).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn accepts_any_text(text in "(?s).{0,100}") {
            let _ = (parse_nvme_address(&text), parse_ip(&text));
        }
    }
}
