//! Sessions with storage servers: iSCSI, and NVMe over TCP or RDMA. The machine may run from a disk behind one.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::root::HostRoot;
use super::sysfs;
use crate::HostError;

/// Ends of a session, as far as the kernel tells. It tells nothing of one that is about to connect again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Session {
    /// Address of this end.
    pub(super) local: Option<IpAddr>,
    /// Name of the interface that it is bound to.
    pub(super) interface: Option<String>,
    /// Address of the server.
    pub(super) server: Option<IpAddr>,
}

/// Lists all sessions.
pub(super) fn sessions(root: &HostRoot) -> Result<Vec<Session>, HostError> {
    let mut sessions = Vec::new();
    let connections = root.at("sys/class/iscsi_connection");
    for name in sysfs::names_if_there(&connections)? {
        sessions.push(iscsi(root, &connections.join(name)));
    }
    let controllers = root.at("sys/class/nvme");
    for name in sysfs::names_if_there(&controllers)? {
        let controller = controllers.join(name);
        let transport =
            sysfs::read_if_there(&controller.join("transport"), "a transport", |text| Some(text.to_owned()))?;
        if transport.is_some_and(|transport| ["tcp", "rdma"].contains(&transport.as_str())) {
            let address = sysfs::read(&controller.join("address"));
            sessions.push(address.map(|text| nvme(&text)).unwrap_or_default());
        }
    }
    Ok(sessions)
}

/// The server's address is the connection's; this end is the SCSI host's, of which software has one for each session.
fn iscsi(root: &HostRoot, connection: &Path) -> Session {
    let word = |path: &Path| sysfs::read(path).ok();
    let address = |path: &Path| word(path).and_then(|text| ip(&text));
    let own = fs::canonicalize(connection).ok().and_then(|path| {
        let components = path.iter().filter_map(|component| component.to_str());
        let mut hosts = components.filter(|name| name.strip_prefix("host").is_some_and(is_number));
        hosts.next().map(|host| root.at("sys/class/iscsi_host").join(host))
    });
    let interface = own.as_ref().and_then(|host| word(&host.join("netdev")));
    Session {
        local: own.and_then(|host| address(&host.join("ipaddress"))),
        interface: interface.filter(|name| !["", "default", "<NULL>", "(null)"].contains(&name.as_str())),
        server: address(&connection.join("address"))
            .or_else(|| address(&connection.join("persistent_address"))),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses the address of a controller: `traddr=192.0.2.1,trsvcid=4420,src_addr=192.0.2.7`.
pub(super) fn nvme(text: &str) -> Session {
    let value = |key: &str| {
        let mut pairs = text.split(',').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(found, _)| *found == key).map(|(_, value)| value)
    };
    let scope = value("traddr").and_then(|address| address.split_once('%')).map(|(_, scope)| scope);
    Session {
        local: value("src_addr").and_then(ip).or_else(|| value("host_traddr").and_then(ip)),
        interface: value("host_iface").or(scope).filter(|name| !name.is_empty()).map(str::to_owned),
        server: value("traddr").and_then(ip),
    }
}

/// Parses an address, without the interface that one for the link may carry. The address of nobody is none.
fn ip(text: &str) -> Option<IpAddr> {
    let address = text.trim().trim_matches(['[', ']']);
    let address = address.split_once('%').map_or(address, |(address, _)| address);
    address.parse().ok().filter(|address: &IpAddr| !address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;
    use crate::linux::tree::Tree;

    fn write(tree: &Tree, path: &str, text: &str) {
        let path = tree.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn reads_the_ends_of_an_nvme_session() {
        let known = nvme("traddr=192.0.2.1,trsvcid=4420,host_traddr=192.0.2.8,src_addr=192.0.2.7\n");
        assert_eq!(known.local, Some([192, 0, 2, 7].into()), "as connected before as wished");
        assert_eq!((known.server, known.interface), (Some([192, 0, 2, 1].into()), None));
        let bound = nvme("traddr=fe80::1%ens1,trsvcid=4420");
        assert_eq!((bound.server, bound.interface.as_deref()), ("fe80::1".parse().ok(), Some("ens1")));
        assert_eq!(nvme("nn-0x1000:pn-0x2000"), Session::default());
    }

    #[test]
    fn finds_iscsi_and_nvme_sessions_and_no_local_disks() {
        let tree = Tree::new();
        assert_eq!(sessions(tree.root()).unwrap(), []);
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
            Session { local: own, interface: None, server: Some([192, 0, 2, 1].into()) },
            Session { local: None, interface: None, server: Some([192, 0, 2, 2].into()) },
            // One that cannot be read is one all the same.
            Session::default(),
        ];
        assert_eq!(sessions(tree.root()).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn takes_any_text(text in "(?s).{0,100}") {
            let _ = (nvme(&text), ip(&text));
        }
    }
}
