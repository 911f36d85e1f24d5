//! Requests to Linux bridges.

use std::collections::BTreeMap;

use vfleet_api::bridge::BridgeVlanProtocol;
use vfleet_plan::cni::facts::BridgeVlan;
use vfleet_plan::{LinkKind, Master, bridge_port};

use super::{EBUSY, EINVAL, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::bridges::{FORWARDING, STATE, SimBridge, default_port_settings};
use crate::sim::kernel::Kernel;

const EEXIST: i32 = 17;
const ENETDOWN: i32 = 100;
/// Longest name of an interface.
const MAX_NAME: usize = 15;
const MIN_MTU: u32 = 68;
const MAX_MTU: u32 = 65_535;
/// VLAN that a new port belongs to.
const DEFAULT_VLAN: u16 = 1;

impl Kernel {
    /// Creates a Linux bridge in a device group.
    pub fn create_bridge(&mut self, name: &str, group: u32) -> Result<(), Refusal> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(refuse(EINVAL));
        }
        if self.has_interface(name) {
            return Err(refuse(EEXIST));
        }
        self.bridges.push(SimBridge::new(name, group));
        self.bridges.sort_by(|one, other| one.name.cmp(&other.name));
        self.event_count += 1;
        Ok(())
    }

    /// Sets the alias of a Linux bridge.
    pub fn set_bridge_alias(&mut self, name: &str, alias: &str) -> Result<(), Refusal> {
        self.expect_bridge(name)?.alias = Some(alias.to_owned()).filter(|alias| !alias.is_empty());
        self.event_count += 1;
        Ok(())
    }

    /// Sets the device group of a Linux bridge.
    pub fn set_bridge_group(&mut self, name: &str, group: u32) -> Result<(), Refusal> {
        self.expect_bridge(name)?.group = group;
        self.event_count += 1;
        Ok(())
    }

    /// Sets VLAN filtering and the VLAN protocol of a Linux bridge.
    pub fn set_bridge_vlans(
        &mut self,
        name: &str,
        filtering: bool,
        protocol: BridgeVlanProtocol,
    ) -> Result<(), Refusal> {
        let bridge = self.expect_bridge(name)?;
        (bridge.vlan_filtering, bridge.vlan_protocol) = (filtering, protocol);
        self.event_count += 1;
        Ok(())
    }

    /// Sets the MTU of a Linux bridge, which no longer follows that of its ports.
    pub fn set_bridge_mtu(&mut self, name: &str, mtu: u32) -> Result<(), Refusal> {
        let bridge = self.expect_bridge(name)?;
        if !(MIN_MTU..=MAX_MTU).contains(&mtu) {
            return Err(refuse(EINVAL));
        }
        (bridge.mtu, bridge.mtu_is_set) = (mtu, true);
        self.event_count += 1;
        Ok(())
    }

    /// Sets a Linux bridge up or down, and with it the state of its ports.
    pub fn set_bridge_up(&mut self, name: &str, up: bool) -> Result<(), Refusal> {
        let bridge = self.expect_bridge(name)?;
        if bridge.up != up {
            bridge.up = up;
            self.update_port_states(name);
        }
        self.event_count += 1;
        Ok(())
    }

    /// Sets `accept_ra` of a Linux bridge, of which the kernel notifies nobody.
    pub fn set_bridge_accepts_ra(&mut self, name: &str, accepts_ra: bool) -> Result<(), Refusal> {
        self.expect_bridge(name)?.accepts_ra = accepts_ra;
        Ok(())
    }

    /// Makes an interface a port of a Linux bridge, with the settings of a new port. A port or member of another
    /// interface moves, unless that is Open vSwitch.
    pub fn add_bridge_port(&mut self, name: &str, interface: &str) -> Result<(), Refusal> {
        let is_up = self.expect_bridge(name)?.up;
        if !self.has_interface(interface) {
            return Err(refuse(ENODEV));
        }
        if interface == name || self.bridge(interface).is_some() {
            return Err(refuse(EINVAL));
        }
        let link = self.link(interface);
        if link.is_some_and(|link| link.kind != LinkKind::Ethernet) {
            return Err(refuse(EINVAL));
        }
        // The driver reports the speed also while the interface is down.
        let speed = link.and_then(|link| link.speed);
        match self.master_of(interface) {
            Some(Master { name: master, kind }) if kind == "bridge" && master == name => return Ok(()),
            Some(Master { kind, .. }) if kind == "openvswitch" => return Err(refuse(EOPNOTSUPP)),
            _ => self.leave_master(interface),
        }
        let settings = default_port_settings(speed, is_up && self.is_up(interface));
        let bridge = self.expect_bridge(name)?;
        bridge.ports.insert(interface.to_owned(), settings);
        bridge.vlans.insert(interface.to_owned(), [(DEFAULT_VLAN, BridgeVlan::native(DEFAULT_VLAN))].into());
        self.update_bridge_mtus();
        self.event_count += 1;
        Ok(())
    }

    /// Removes a port from a Linux bridge.
    pub fn remove_bridge_port(&mut self, name: &str, interface: &str) -> Result<(), Refusal> {
        let bridge = self.expect_bridge(name)?;
        bridge.ports.remove(interface).ok_or(refuse(EINVAL))?;
        bridge.vlans.remove(interface);
        self.update_bridge_mtus();
        self.event_count += 1;
        Ok(())
    }

    /// Makes the interface of a card a member of a bond.
    pub fn add_bond_member(&mut self, bond: &str, interface: &str) -> Result<(), Refusal> {
        if self.master_of(interface).is_some() {
            return Err(refuse(EBUSY));
        }
        self.other_links.insert(bond.to_owned());
        let master = Master { name: bond.to_owned(), kind: "bond".to_owned() };
        let mut links = self.pfs.iter_mut().filter_map(|pf| pf.link.as_mut());
        links.find(|link| link.name == interface).ok_or(refuse(ENODEV))?.master = Some(master);
        self.event_count += 1;
        Ok(())
    }

    /// Adds a port of a Linux bridge to a VLAN.
    pub fn add_port_vlan(&mut self, name: &str, interface: &str, vlan: u16) -> Result<(), Refusal> {
        self.expect_bridge(name)?;
        self.add_port_vlans(interface, &[BridgeVlan::tagged(vlan)])
    }

    /// Changes one setting of a port, with its name and value in bridge(8).
    pub fn set_port_setting(
        &mut self,
        name: &str,
        interface: &str,
        setting: &str,
        value: &str,
    ) -> Result<(), Refusal> {
        self.set_port_settings(name, interface, &[(setting.to_owned(), value.to_owned())].into())
    }

    /// Changes settings of a port in one request, with their names and values in bridge(8).
    pub fn set_port_settings(
        &mut self,
        name: &str,
        interface: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        let is_up = self.is_up(interface);
        let port = self.expect_bridge(name)?.ports.get_mut(interface).ok_or(refuse(EINVAL))?;
        let mut changed = port.clone();
        for (setting, value) in settings {
            let found = changed.get_mut(setting).ok_or(refuse(EINVAL))?;
            *found = bridge_port::normalize(setting, value).map_err(|_| refuse(EINVAL))?;
        }
        if settings.contains_key(STATE) && !is_up {
            return Err(refuse(ENETDOWN));
        }
        let is_on = |setting: &str| changed.get(setting).is_some_and(|value| value == "on");
        if is_on("mab") && !(is_on("locked") && is_on("learning")) {
            let message = Some("Bridge port must be locked and have learning enabled when MAB is enabled");
            return Err(Refusal { errno: EINVAL, message });
        }
        // Without a spanning tree protocol no port is blocked.
        if let Some(state) = changed.get_mut(STATE)
            && state == "blocking"
        {
            FORWARDING.clone_into(state);
        }
        *port = changed;
        self.event_count += 1;
        Ok(())
    }

    /// Removes a Linux bridge. Its ports become free.
    pub fn remove_bridge(&mut self, name: &str) -> Result<(), Refusal> {
        self.expect_bridge(name)?;
        self.bridges.retain(|bridge| bridge.name != name);
        self.event_count += 1;
        Ok(())
    }

    fn expect_bridge(&mut self, name: &str) -> Result<&mut SimBridge, Refusal> {
        self.bridge_mut(name).ok_or(refuse(ENODEV))
    }

    fn leave_master(&mut self, interface: &str) {
        self.remove_bridge_ports(&[interface.to_owned()]);
        let links = self.pfs.iter_mut().filter_map(|pf| pf.link.as_mut());
        links.filter(|link| link.name == interface).for_each(|link| link.master = None);
    }
}
