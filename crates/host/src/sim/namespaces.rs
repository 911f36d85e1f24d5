//! Network namespaces of pods on a simulated machine.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::cni::facts::NamespaceId;

use super::kernel::Kernel;

/// Device of the files of namespaces.
const NSFS_DEVICE: u64 = 4;
/// Inode of the first namespace; those of deleted namespaces are used again.
const FIRST_INODE: u64 = 0xf000_0000;
/// Namespace of other programs, which has no path. See [`Kernel::set_in_other_namespace`].
pub(super) const OTHER_NAMESPACE: u64 = FIRST_INODE - 1;
/// Index of the loopback interface of every namespace.
const LOOPBACK: u32 = 1;
const DEFAULT_MTU: u32 = 1500;

/// Network namespaces besides that of the host, and the indexes of interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimNamespaces {
    /// Namespaces by inode.
    pub by_inode: BTreeMap<u64, SimNamespace>,
    /// Files at which programs look for namespaces.
    pub paths: BTreeMap<String, NamespacePath>,
    /// Indexes of the interfaces of PFs and VFs. They stay in another namespace, if they are free there.
    pub indexes: BTreeMap<PciAddress, u32>,
    /// The kernel reports neither which interface belongs to which PCI function nor the cookies of namespaces, as before
    /// Linux 5.14.
    pub hides_identities: bool,
    /// Cookie of the last namespace.
    pub last_cookie: u64,
    /// The IPoIB interface of an RDMA device that is moved is created again in the namespace of the device, as since Linux 6.17.
    pub interface_follows_rdma: bool,
    /// The kernel returns interfaces of deleted namespaces only on [`Kernel::return_devices`]. Else they are returned while a
    /// program waits for them.
    pub returns_late: bool,
}

/// Network namespace. Interfaces of cards in it are those of VFs with its inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimNamespace {
    /// Number that no other namespace gets.
    pub cookie: u64,
    /// Virtual interfaces by name.
    pub links: BTreeMap<String, SimVirtualLink>,
    /// Nobody can find the namespace any more, but the kernel has not yet returned its devices.
    pub is_deleted: bool,
}

/// Interface that belongs to no card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimVirtualLink {
    /// Index.
    pub index: u32,
    /// Alternative names.
    pub alt_names: BTreeSet<String>,
    /// MAC address.
    pub mac: MacAddr,
    /// MTU.
    pub mtu: u32,
    /// Administrative state.
    pub is_up: bool,
    /// IP addresses with the length of their prefix.
    pub ips: Vec<String>,
    /// Name of the other end of a veth pair on the host.
    pub peer: Option<String>,
}

impl SimVirtualLink {
    /// Returns an interface that is up.
    pub(super) fn new(index: u32) -> Self {
        let (alt_names, ips) = (BTreeSet::new(), Vec::new());
        Self { index, alt_names, mac: MacAddr::ZERO, mtu: DEFAULT_MTU, is_up: true, ips, peer: None }
    }
}

/// File at a path where programs look for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacePath {
    /// Namespace of the host.
    Host,
    /// Namespace with this inode.
    Namespace(u64),
    /// File that is no namespace: the mount of the namespace is not visible to the process.
    OtherFile,
}

impl Kernel {
    /// Initializes the namespaces at a boot, and the indexes of the interfaces of PFs.
    pub(super) fn start_namespaces(&mut self) {
        let SimNamespaces { hides_identities, returns_late, interface_follows_rdma, .. } = self.namespaces;
        let host = [("/proc/1/ns/net".to_owned(), NamespacePath::Host)].into();
        self.veths.clear();
        self.namespaces = SimNamespaces {
            paths: host,
            hides_identities,
            returns_late,
            interface_follows_rdma,
            ..SimNamespaces::default()
        };
        let pfs: Vec<PciAddress> = self.links_in(None).collect();
        for pf in pfs {
            self.assign_index(pf);
        }
    }

    /// Creates a network namespace at `path` with a loopback interface and `eth0`. Returns its inode, which may be that of a
    /// namespace that was deleted.
    pub fn create_namespace(&mut self, path: &str) -> u64 {
        let used = &self.namespaces.by_inode;
        let inode = (FIRST_INODE..u64::MAX).find(|inode| !used.contains_key(inode)).unwrap_or(u64::MAX);
        let links = [("lo", LOOPBACK), ("eth0", LOOPBACK + 1)];
        let links = links.map(|(name, index)| (name.to_owned(), SimVirtualLink::new(index))).into();
        self.namespaces.last_cookie += 1;
        let cookie = self.namespaces.last_cookie;
        self.namespaces.by_inode.insert(inode, SimNamespace { cookie, links, is_deleted: false });
        self.namespaces.paths.insert(path.to_owned(), NamespacePath::Namespace(inode));
        inode
    }

    /// Adds a virtual interface to the namespace at `path`, with the lowest free index.
    pub fn add_virtual_link(&mut self, path: &str, name: &str) {
        let Some(NamespacePath::Namespace(inode)) = self.namespaces.paths.get(path).copied() else { return };
        let index = self.free_index(Some(inode));
        if let Some(namespace) = self.namespaces.by_inode.get_mut(&inode) {
            namespace.links.insert(name.to_owned(), SimVirtualLink::new(index));
        }
    }

    /// Deletes the namespace at `path`, if there is one. Interfaces and RDMA devices in it are returned to the host's
    /// namespace by [`Kernel::return_devices`], as the kernel does it asynchronously.
    pub fn delete_namespace(&mut self, path: &str) {
        if let Some(NamespacePath::Namespace(inode)) = self.namespaces.paths.remove(path)
            && let Some(namespace) = self.namespaces.by_inode.get_mut(&inode)
        {
            namespace.is_deleted = true;
        }
    }

    /// Returns the identity of the namespace at `path`, if it is one of a pod.
    pub fn namespace_id(&self, path: &str) -> Option<NamespaceId> {
        match self.namespaces.paths.get(path)? {
            NamespacePath::Namespace(inode) => Some(self.identify(*inode)),
            NamespacePath::Host | NamespacePath::OtherFile => None,
        }
    }

    /// Returns the identity of the namespace with this inode; 0 is that of the host.
    pub(super) fn identify(&self, inode: u64) -> NamespaceId {
        let found = self.namespaces.by_inode.get(&inode).filter(|_| !self.namespaces.hides_identities);
        NamespaceId { device: NSFS_DEVICE, inode, cookie: found.map(|namespace| namespace.cookie) }
    }

    /// Returns the lowest index that no interface in a namespace has; `None` is the host's.
    pub(super) fn free_index(&self, namespace: Option<u64>) -> u32 {
        (LOOPBACK + 1..u32::MAX).find(|index| self.is_index_free(namespace, *index)).unwrap_or(u32::MAX)
    }

    /// Returns whether no interface in a namespace has this index; `None` is the host's.
    pub(super) fn is_index_free(&self, namespace: Option<u64>, index: u32) -> bool {
        let of_cards = self.links_in(namespace).any(|device| self.index_of(device) == index);
        let virtual_links = namespace.and_then(|inode| self.namespaces.by_inode.get(&inode));
        let is_virtual =
            virtual_links.is_some_and(|found| found.links.values().any(|link| link.index == index));
        let is_veth = namespace.is_none() && self.veths.values().any(|veth| veth.index == index);
        index != LOOPBACK && !of_cards && !is_virtual && !is_veth
    }

    /// Returns the index of the interface of a PF or VF; 0 without an interface.
    pub fn index_of(&self, device: PciAddress) -> u32 {
        self.namespaces.indexes.get(&device).copied().unwrap_or_default()
    }

    /// Gives the new interface of a PF or VF in the host's namespace an index that was not used before.
    pub(super) fn assign_index(&mut self, device: PciAddress) {
        let last = self.namespaces.indexes.values().max().copied().unwrap_or(LOOPBACK);
        self.namespaces.indexes.insert(device, last + 1);
    }

    /// Lists the PFs and VFs whose interface is in a namespace, sorted by address; `None` is the host's.
    pub(super) fn links_in(&self, namespace: Option<u64>) -> impl Iterator<Item = PciAddress> {
        self.pfs.iter().flat_map(move |pf| {
            let own = pf.link.is_some() && namespace.is_none();
            let vfs = pf.vfs.iter().filter(move |vf| vf.link.is_some() && vf.namespace == namespace);
            own.then_some(pf.address).into_iter().chain(vfs.map(|vf| vf.address))
        })
    }

    /// Returns whether an interface in a namespace has this name or alternative name; `None` is the host's.
    pub(super) fn is_name_used(&self, namespace: Option<u64>, name: &str) -> bool {
        let is_of_card = self.links_in(namespace).any(|device| {
            self.device_link(device).is_some_and(|link| {
                link.name == name || link.alt_names.iter().any(|alt_name| alt_name == name)
            })
        });
        is_of_card
            || match namespace {
                None => name == "lo" || self.has_interface(name),
                Some(inode) => self.namespaces.by_inode.get(&inode).is_some_and(|found| {
                    found.links.contains_key(name)
                        || found.links.values().any(|link| link.alt_names.contains(name))
                }),
            }
    }
}
