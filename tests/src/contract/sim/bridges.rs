//! Software bridges of the simulated machine: their observer and their administrator.

use std::collections::BTreeSet;

use vfleet_api::PciAddress;
use vfleet_host::sim::Kernel;
use vfleet_plan::{LinuxBridgeFacts, LinuxPortFacts, Master, OvsBridgeFacts, OvsDatabase};

use super::SimTestBed;
use crate::contract::bridges::{BridgeObserver, LinuxBridgeAdministrator, OvsAdministrator, OvsTable};
use crate::contract::testbed::{CaseError, CaseResult};

impl BridgeObserver for SimTestBed {
    fn linux_bridges(&self) -> Result<Vec<LinuxBridgeFacts>, CaseError> {
        let kernel = self.host.kernel();
        Ok(kernel
            .bridges
            .iter()
            .map(|bridge| LinuxBridgeFacts {
                name: bridge.name.clone(),
                alias: bridge.alias.clone(),
                group: bridge.group,
                vlan_filtering: bridge.vlan_filtering,
                vlan_protocol: Some(bridge.vlan_protocol),
                mtu: bridge.mtu,
                admin_up: bridge.up,
                accepts_ra: bridge.accepts_ra,
                ports: bridge
                    .ports
                    .iter()
                    .map(|(name, settings)| LinuxPortFacts { name: name.clone(), settings: settings.clone() })
                    .collect(),
            })
            .collect())
    }

    fn port_vlans(&self, pf: PciAddress) -> Result<BTreeSet<u16>, CaseError> {
        let kernel = self.host.kernel();
        let name = interface(&kernel, pf);
        Ok(kernel
            .bridges
            .iter()
            .find_map(|bridge| bridge.vlans.get(&name))
            .into_iter()
            .flat_map(|vlans| vlans.keys().copied())
            .collect())
    }

    fn master(&self, pf: PciAddress) -> Result<Option<Master>, CaseError> {
        let kernel = self.host.kernel();
        Ok(kernel.master_of(&interface(&kernel, pf)))
    }

    fn ovs(&self) -> Result<OvsDatabase, CaseError> {
        let ovs = self.host.kernel().ovs;
        if !ovs.has_server {
            return Err(CaseError::Failed("test bed: Open vSwitch is not running".to_owned()));
        }
        let is_behind = ovs.cur_cfg < ovs.next_cfg;
        let to_facts = |bridge: OvsBridgeFacts| OvsBridgeFacts {
            lacks_datapath: bridge.lacks_datapath && !is_behind,
            ..bridge
        };
        Ok(OvsDatabase {
            has_offload: ovs.has_offload(),
            is_behind,
            bridges: ovs.bridges.into_iter().map(to_facts).collect(),
        })
    }

    fn ovs_config(&self, key: &str) -> Result<Option<String>, CaseError> {
        Ok(self.host.kernel().ovs.other_config.get(key).cloned())
    }
}

impl LinuxBridgeAdministrator for SimTestBed {
    fn add_bridge(&self, name: &str) -> CaseResult {
        self.change_kernel(|kernel| kernel.create_bridge(name, 0))
    }

    fn remove_bridge(&self, name: &str) -> CaseResult {
        self.change_kernel(|kernel| kernel.remove_bridge(name))
    }

    fn set_bridge_alias(&self, name: &str, alias: &str) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_bridge_alias(name, alias))
    }

    fn set_bridge_group(&self, name: &str, group: u32) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_bridge_group(name, group))
    }

    fn set_bridge_up(&self, name: &str, up: bool) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_bridge_up(name, up))
    }

    fn set_accept_ra(&self, name: &str, on: bool) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_bridge_accepts_ra(name, on))
    }

    fn add_port(&self, bridge: &str, pf: PciAddress) -> CaseResult {
        self.change_kernel(|kernel| kernel.add_bridge_port(bridge, &interface(kernel, pf)))
    }

    fn remove_port(&self, bridge: &str, pf: PciAddress) -> CaseResult {
        self.change_kernel(|kernel| kernel.remove_bridge_port(bridge, &interface(kernel, pf)))
    }

    fn set_port_setting(&self, bridge: &str, pf: PciAddress, setting: &str, value: &str) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_port_setting(bridge, &interface(kernel, pf), setting, value))
    }

    fn add_port_vlan(&self, bridge: &str, pf: PciAddress, vlan: u16) -> CaseResult {
        self.change_kernel(|kernel| kernel.add_port_vlan(bridge, &interface(kernel, pf), vlan))
    }

    fn add_bond(&self, name: &str, pf: PciAddress) -> CaseResult {
        self.change_kernel(|kernel| kernel.add_bond_member(name, &interface(kernel, pf)))
    }
}

impl OvsAdministrator for SimTestBed {
    fn start_ovs(&self) -> CaseResult {
        self.change_ovs(|kernel| (kernel.ovs.has_server, kernel.ovs.has_switch) = (true, true))
    }

    fn stop_ovs(&self) -> CaseResult {
        self.change_ovs(|kernel| (kernel.ovs.has_server, kernel.ovs.has_switch) = (false, false))
    }

    fn stop_ovs_switch(&self) -> CaseResult {
        self.change_ovs(|kernel| kernel.ovs.has_switch = false)
    }

    fn restart_ovs(&self) -> CaseResult {
        self.stop_ovs()?;
        self.start_ovs()
    }

    fn empty_ovs_database(&self) -> CaseResult {
        self.stop_ovs()?;
        self.change_ovs(|kernel| kernel.ovs.empty_database())?;
        self.start_ovs()
    }

    fn add_ovs_bridge(&self, name: &str) -> CaseResult {
        self.change_ovs(|kernel| kernel.ovs.add_bridge(name))
    }

    fn remove_ovs_bridge(&self, name: &str) -> CaseResult {
        self.change_ovs(|kernel| kernel.ovs.remove_bridge(name))
    }

    fn add_ovs_port(&self, bridge: &str, pf: PciAddress) -> CaseResult {
        self.add_row(|kernel| {
            let name = interface(kernel, pf);
            kernel.ovs.add_port(bridge, &name, "")
        })
    }

    fn add_internal_ovs_port(&self, bridge: &str, name: &str) -> CaseResult {
        self.add_row(|kernel| kernel.ovs.add_port(bridge, name, "internal"))
    }

    fn remove_ovs_port(&self, name: &str) -> CaseResult {
        self.change_ovs(|kernel| kernel.ovs.remove_port(name))
    }

    fn set_ovs_entry(&self, table: OvsTable, row: &str, column: &str, key: &str, value: &str) -> CaseResult {
        self.change_ovs(|kernel| {
            let bridges = kernel.ovs.bridges.iter_mut();
            for bridge in bridges {
                if table == OvsTable::Bridge && bridge.name == row {
                    let map = [&mut bridge.external_ids, &mut bridge.other_config];
                    set_entry(map, column, key, value);
                }
                for port in &mut bridge.ports {
                    if table == OvsTable::Port && port.name == row {
                        port.external_ids.insert(key.to_owned(), value.to_owned());
                    }
                    for interface in &mut port.interfaces {
                        if table == OvsTable::Interface && interface.name == row {
                            let maps = [&mut interface.external_ids, &mut interface.other_config];
                            set_entry(maps, column, key, value);
                        }
                    }
                }
            }
        })
    }

    fn set_ovs_statistics(&self, _: &str, _: u32) -> CaseResult {
        Err(CaseError::Unsupported("the model has no statistics".to_owned()))
    }
}

impl SimTestBed {
    fn change_ovs(&self, change: impl FnOnce(&mut Kernel)) -> CaseResult {
        self.change_kernel(|kernel| {
            change(kernel);
            Ok(())
        })
    }

    /// Adds a row. An error of the database is one of the test bed.
    fn add_row(&self, add: impl FnOnce(&mut Kernel) -> Result<(), String>) -> CaseResult {
        self.host.modify_kernel(add).map_err(|error| CaseError::Failed(format!("test bed: {error}")))
    }
}

type Map = std::collections::BTreeMap<String, String>;

/// Sets an entry of one of the columns `external_ids` and `other_config`.
fn set_entry([external_ids, other_config]: [&mut Map; 2], column: &str, key: &str, value: &str) {
    let map = if column == "external_ids" { external_ids } else { other_config };
    map.insert(key.to_owned(), value.to_owned());
}

/// Returns the name of the interface of a card; an empty one if it has none.
fn interface(kernel: &Kernel, pf: PciAddress) -> String {
    let link = kernel.pf(pf).and_then(|pf| pf.link.as_ref());
    link.map(|link| link.name.clone()).unwrap_or_default()
}
