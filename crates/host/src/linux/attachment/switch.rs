//! Facts of the switch side of an attachment.

mod open_vswitch;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::cni::facts::{
    BondFacts, BridgeVlan, FileFacts, SwitchBridge, SwitchFacts, SwitchPort, SwitchQuery, UplinkFacts,
    VdpaDeviceFacts,
};
use vfleet_plan::{EswitchMode, Fact, Master};

use crate::HostError;
use crate::linux::devlink::{self, DevlinkHandle};
use crate::linux::netlink::rtnl::{Link, PortVlans, Rtnl};
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::{netdev, pci, representor, vdpa};

/// Kind of bonds.
const BOND: &str = "bond";
/// Largest file. Device-info files and configurations have some hundred bytes.
const MAX_FILE: u64 = 1 << 20;

/// Reads the facts that a query asks for, and nothing else.
pub(super) fn read(root: &HostRoot, query: &SwitchQuery) -> Result<SwitchFacts, HostError> {
    let mut facts = read_stable(|| InterfaceReader::open(root, query)?.read(query))?;
    if let Some(device) = query.device.filter(|_| query.with_vdpa) {
        facts.vdpa = read_stable(|| read_vdpa(root, device))?;
    }
    facts.ovs = query.ovs.as_ref().map(|socket| open_vswitch::read(root, socket));
    facts.device_info = query.device_info.as_deref().map(|path| read_file(root, path));
    Ok(facts)
}

/// Interfaces of the host, as far as a query needs them.
struct InterfaceReader<'a> {
    root: &'a HostRoot,
    links: Vec<Link>,
    /// VLANs of ports of Linux bridges.
    vlans: Vec<PortVlans>,
}

impl<'a> InterfaceReader<'a> {
    fn open(root: &'a HostRoot, query: &SwitchQuery) -> Result<Self, HostError> {
        let mut rtnl = Rtnl::open()?;
        let needs_links = query.device.is_some() || query.with_linux_bridges || !query.interfaces.is_empty();
        let links = if needs_links { rtnl.links()? } else { Vec::new() };
        let vlans = if query.with_linux_bridges { rtnl.port_vlans()? } else { Vec::new() };
        Ok(Self { root, links, vlans })
    }

    fn read(&self, query: &SwitchQuery) -> Result<SwitchFacts, HostError> {
        let mut facts = SwitchFacts::default();
        let parent = query.device.map(|device| pci::read_parent(self.root, device)).transpose()?;
        if let Some(vf) = parent.flatten() {
            facts.is_switchdev = devlink::read_eswitch_mode(&DevlinkHandle::pci(vf.pf))?
                == Fact::Value(EswitchMode::Switchdev);
            facts.representor =
                representor::find(self.root, vf, &self.links)?.map(|link| self.port(link)).transpose()?;
            facts.uplink = self.read_uplink(vf)?;
        }
        if query.with_linux_bridges {
            facts.linux_bridges = self.read_bridges();
        }
        let asked = self.links.iter().filter(|link| query.interfaces.contains(&link.name));
        facts.interfaces = asked.map(|link| self.port(link)).collect::<Result<_, _>>()?;
        facts.interfaces.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(facts)
    }

    fn read_bridges(&self) -> Vec<SwitchBridge> {
        let bridge = |link: &Link| {
            let info = link.bridge?;
            Some(SwitchBridge { name: link.name.clone(), filters_vlans: info.vlan_filtering == Some(true) })
        };
        let mut bridges: Vec<_> = self.links.iter().filter_map(bridge).collect();
        bridges.sort_by(|one, other| one.name.cmp(&other.name));
        bridges
    }

    /// Reads the interface of the PF of a VF, and its bond.
    fn read_uplink(&self, vf: VfRef) -> Result<Option<UplinkFacts>, HostError> {
        let Some(own) = netdev::of_device(&self.root.device(vf.pf))? else { return Ok(None) };
        let link = self.find(own.index, &format!("the interface of {}", vf.pf))?;
        let bond = match link.master.filter(|_| is_member_of_bond(link)) {
            None => None,
            Some(index) => {
                let bond = self.find(index, &format!("the bond of {}", link.name))?;
                let members = self.links.iter().filter(|member| member.master == Some(index));
                let mut members: Vec<_> = members.map(|member| member.name.clone()).collect();
                members.sort();
                Some(BondFacts { port: self.port(bond)?, members })
            }
        };
        Ok(Some(UplinkFacts { pf: self.port(link)?, bond }))
    }

    /// Returns the interface with this index. One that is not in the list has appeared since.
    fn find(&self, index: u32, subject: &str) -> Result<&Link, HostError> {
        let found = self.links.iter().find(|link| link.index == index);
        found.ok_or_else(|| HostError::ConcurrentChange { subject: subject.to_owned() })
    }

    fn port(&self, link: &Link) -> Result<SwitchPort, HostError> {
        let master = match link.master {
            None => None,
            Some(index) => {
                let master = self.find(index, &format!("the master of {}", link.name))?;
                let kind = link.port.as_ref().map(|port| port.kind.clone());
                let kind = kind.or_else(|| master.kind_name.clone()).unwrap_or_default();
                Some(Master { name: master.name.clone(), kind })
            }
        };
        Ok(SwitchPort {
            index: link.index,
            name: link.name.clone(),
            kind: link.kind_name.clone().unwrap_or_default(),
            mac: link.mac(),
            mtu: link.mtu,
            max_mtu: link.max_mtu,
            is_up: link.is_up,
            master,
            vlans: self.vlans_of(link.index),
        })
    }

    fn vlans_of(&self, index: u32) -> Vec<BridgeVlan> {
        let of_port = self.vlans.iter().filter(|port| port.index == index);
        of_port.flat_map(|port| port.vlans.iter().copied()).collect()
    }
}

fn is_member_of_bond(link: &Link) -> bool {
    link.port.as_ref().is_some_and(|port| port.kind == BOND)
}

fn read_vdpa(root: &HostRoot, device: PciAddress) -> Result<Vec<VdpaDeviceFacts>, HostError> {
    let read = |name: String| {
        let driver = vdpa::named(root, &name).driver()?;
        // A device that another program uses may refuse it.
        let config = vdpa::read_config(&name).unwrap_or_default();
        Ok(VdpaDeviceFacts { name, driver, mac: config.mac, mtu: config.mtu.map(u32::from) })
    };
    vdpa::list_names(root, device)?.into_iter().map(read).collect()
}

/// Reads a small file of the node.
pub(super) fn read_file(root: &HostRoot, path: &str) -> FileFacts {
    let (target, path) = (root.at(path), path.to_owned());
    match read_small(&target) {
        Ok(content) => FileFacts::Present { path, content },
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            FileFacts::Missing { path }
        }
        Err(error) => FileFacts::Unreadable { path, reason: error.to_string() },
    }
}

fn read_small(path: &Path) -> io::Result<String> {
    let mut content = String::new();
    let length = File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut content)?;
    if u64::try_from(length).is_ok_and(|length| length > MAX_FILE) {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

#[cfg(test)]
#[path = "switch/tests.rs"]
mod tests;
