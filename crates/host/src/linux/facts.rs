//! Everything about the machine, read in one go.

use vfleet_plan::{HostFacts, LinkFacts, LinkKind, PfFacts, VfFacts};

use super::netdev::Netdev;
use super::pci::{self, Function, PfDevice};
use super::root::HostRoot;
use super::rtnl::{Link, Rtnl};
use super::{files, firmware, platform, records, system};
use crate::HostError;

/// How often a machine that changes meanwhile is read before that is an error.
const ATTEMPTS: usize = 8;
/// ENOENT, ENODEV: what was listed a moment ago is gone, or has another name now.
const VANISHED: [i32; 2] = [2, 19];

/// The facts of the machine at `root`. What vanishes while it is read makes everything be read again, so that
/// the facts fit together.
pub(super) fn read(root: &HostRoot) -> Result<HostFacts, HostError> {
    let mut rtnl = Rtnl::open()?;
    let mut read = read_once(root, &mut rtnl);
    for _ in 1..ATTEMPTS {
        match &read {
            Err(error) if is_race(error) => read = read_once(root, &mut rtnl),
            _ => break,
        }
    }
    read
}

fn is_race(error: &HostError) -> bool {
    matches!(error, HostError::Unsettled { .. })
        || error.errno().is_some_and(|errno| VANISHED.contains(&errno))
        || matches!(error, HostError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

fn read_once(root: &HostRoot, rtnl: &mut Rtnl) -> Result<HostFacts, HostError> {
    let pfs = pci::pfs(root)?;
    Ok(HostFacts {
        pfs: pfs.into_iter().map(|pf| pf_facts(root, pf, rtnl)).collect::<Result<_, _>>()?,
        records: records::read_all(root)?,
        kernel: system::kernel(root)?,
        files: files::texts(root)?,
        enabled_units: files::enabled_units(root)?,
        guid_file: files::guids(root)?,
        ..HostFacts::default()
    })
}

fn pf_facts(root: &HostRoot, pf: PfDevice, rtnl: &mut Rtnl) -> Result<PfFacts, HostError> {
    let link = link_of(pf.function.netdev.as_ref(), rtnl)?;
    let vfs = (0..).zip(pf.vfs).map(|(index, vf)| vf_facts(index, vf, link.as_ref(), rtnl));
    Ok(PfFacts {
        address: pf.function.address,
        vendor: pf.function.vendor,
        device: pf.function.device,
        driver: pf.function.driver,
        numa_node: None,
        total_vfs: pf.total_vfs,
        drivers_autoprobe: pf.drivers_autoprobe,
        eswitch: None,
        tc_offload: None,
        rdma: None,
        firmware: firmware::of_card(root, pf.function.vendor, pf.function.address),
        is_lone_vf: false,
        net_filter: platform::network(root, pf.function.address, link.as_ref().and_then(|link| link.mac)),
        vfs: vfs.collect::<Result<_, _>>()?,
        link: link.map(|link| link_facts(link, pf.function.netdev)),
    })
}

fn vf_facts(index: u16, vf: Function, pf_link: Option<&Link>, rtnl: &mut Rtnl) -> Result<VfFacts, HostError> {
    let link = link_of(vf.netdev.as_ref(), rtnl)?;
    // On InfiniBand a PF keeps GUIDs, and what stands in the field for a MAC means nothing.
    let keeper = pf_link.filter(|link| link.kind == LinkKind::Ethernet);
    Ok(VfFacts {
        index,
        address: vf.address,
        vendor: vf.vendor,
        device: vf.device,
        driver: vf.driver,
        admin_mac: keeper.and_then(|link| link.vf_macs.get(&u32::from(index)).copied()),
        admin_guid: None,
        rdma: None,
        vdpa: None,
        representor: None,
        link: link.map(|link| link_facts(link, vf.netdev)),
    })
}

fn link_of(netdev: Option<&Netdev>, rtnl: &mut Rtnl) -> Result<Option<Link>, HostError> {
    netdev.map(|netdev| rtnl.link(netdev.index)).transpose()
}

fn link_facts(link: Link, netdev: Option<Netdev>) -> LinkFacts {
    LinkFacts {
        name: link.name,
        alt_names: link.alt_names,
        kind: link.kind,
        mac: link.mac,
        permanent_mac: None,
        mtu: link.mtu,
        max_mtu: link.max_mtu,
        admin_up: link.is_up,
        speed: netdev.and_then(|netdev| netdev.speed),
        switch_port: None,
        host_use: None,
    }
}
