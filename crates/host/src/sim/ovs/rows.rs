//! Changes of rows, as other programs make them with ovs-vsctl.

use std::collections::BTreeMap;

use vfleet_plan::{OvsBridgeFacts, OvsInterfaceFacts, OvsPortFacts};

use super::SimOvs;
use crate::sim::random;

impl SimOvs {
    /// Adds a bridge with its internal port, unless there is one of this name.
    pub fn add_bridge(&mut self, name: &str) {
        if self.bridge(name).is_some() {
            return;
        }
        let uuid = self.next_uuid();
        let ports = vec![self.new_port(name, "internal")];
        let name = name.to_owned();
        self.bridges.push(OvsBridgeFacts {
            uuid,
            name,
            ports,
            lacks_datapath: true,
            ..OvsBridgeFacts::default()
        });
        self.bridges.sort_by(|one, other| one.name.cmp(&other.name));
        self.next_cfg += 1;
    }

    /// Adds a port with one interface to a bridge. Fails with the message of the server if another port has this name.
    pub fn add_port(&mut self, bridge: &str, name: &str, type_: &str) -> Result<(), String> {
        let is_taken = |bridge: &OvsBridgeFacts| bridge.ports.iter().any(|port| port.name == name);
        if self.bridges.iter().any(is_taken) {
            return Err(format!(
                "constraint violation: Transaction causes multiple rows in \"Port\" table to have identical values \
                 (\"{name}\") for index on column \"name\"."
            ));
        }
        let port = self.new_port(name, type_);
        let Some(bridge) = self.bridge_mut(bridge) else {
            return Err(format!("no bridge named {bridge}"));
        };
        bridge.ports.push(port);
        bridge.ports.sort_by(|one, other| one.name.cmp(&other.name));
        self.next_cfg += 1;
        Ok(())
    }

    /// Removes a port from its bridge.
    pub fn remove_port(&mut self, name: &str) {
        for bridge in &mut self.bridges {
            bridge.ports.retain(|port| port.name != name);
        }
        self.next_cfg += 1;
    }

    /// Removes a bridge with its ports.
    pub fn remove_bridge(&mut self, name: &str) {
        self.bridges.retain(|bridge| bridge.name != name);
        self.next_cfg += 1;
    }

    /// Replaces the database by an empty one.
    pub fn empty_database(&mut self) {
        self.bridges.clear();
        self.other_config = BTreeMap::new();
        (self.next_cfg, self.cur_cfg) = (0, 0);
    }

    fn new_port(&mut self, name: &str, type_: &str) -> OvsPortFacts {
        let interface = OvsInterfaceFacts {
            uuid: self.next_uuid(),
            name: name.to_owned(),
            type_: type_.to_owned(),
            ..OvsInterfaceFacts::default()
        };
        let uuid = self.next_uuid();
        let interfaces = vec![interface];
        OvsPortFacts { uuid, name: name.to_owned(), interfaces, ..OvsPortFacts::default() }
    }

    fn next_uuid(&mut self) -> String {
        self.created_rows += 1;
        random::boot_id(&format!("{} row {}", self.seed, self.created_rows))
    }
}
