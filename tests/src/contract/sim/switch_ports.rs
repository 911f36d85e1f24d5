//! Observer of ports of the simulated machine.

use vfleet_host::sim::Kernel;

use super::SimTestBed;
use crate::contract::switch_ports::{ObservedMirror, ObservedOvsVlans, ObservedPort, PortObserver};
use crate::contract::testbed::CaseError;

impl PortObserver for SimTestBed {
    fn host_port(&self, name: &str) -> Result<Option<ObservedPort>, CaseError> {
        let kernel = self.host.kernel();
        let Some((mac, mtu, up)) = find(&kernel, name) else { return Ok(None) };
        let vlans = kernel.bridges.iter().find_map(|bridge| bridge.vlans.get(name));
        Ok(Some(ObservedPort {
            mac,
            mtu,
            up,
            master: kernel.master_of(name).map(|master| master.name),
            vlans: vlans.into_iter().flat_map(|vlans| vlans.values().copied()).collect(),
        }))
    }

    fn ovs_vlans(&self, port: &str) -> Result<ObservedOvsVlans, CaseError> {
        let columns = self.host.kernel().ovs.columns.get(port).cloned().unwrap_or_default();
        Ok((columns.vlan_mode, columns.tag, columns.trunks))
    }

    fn ovs_mirror(&self, name: &str) -> Result<Option<ObservedMirror>, CaseError> {
        let mirrors = self.host.kernel().ovs.mirrors;
        let found = mirrors.into_iter().find(|((_, found), _)| found == name);
        Ok(found.map(|(_, mirror)| ObservedMirror {
            sources: mirror.sources,
            destinations: mirror.destinations,
            output: mirror.output,
        }))
    }
}

type PortState = (Option<vfleet_api::MacAddr>, u32, bool);

fn find(kernel: &Kernel, name: &str) -> Option<PortState> {
    let vfs = || kernel.pfs.iter().flat_map(|pf| &pf.vfs);
    let of_veth = kernel.veths.get(name).map(|veth| (Some(veth.mac), veth.mtu, veth.up));
    let representor = || vfs().find(|vf| vf.representor.as_deref() == Some(name));
    let of_representor = || representor().map(|vf| (None, vf.representor_link.mtu, vf.representor_link.up));
    let own = || kernel.pfs.iter().filter_map(|pf| pf.link.as_ref()).find(|link| link.name == name);
    let of_pf = || own().map(|link| (Some(link.mac), link.mtu, link.up));
    of_veth.or_else(of_representor).or_else(of_pf)
}
