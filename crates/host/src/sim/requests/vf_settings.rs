//! Requests that change the settings of a VF, through its PF or its own interface.

use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_plan::cni::facts::{VfSettings, VlanProtocol};

use super::{EINVAL, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::kernel::Kernel;
use crate::sim::machine::{MachinePf, VfRules, VfSetting};

const EADDRNOTAVAIL: i32 = 99;
const EPROTONOSUPPORT: i32 = 93;
const MAX_VLAN: u16 = 4095;
const MAX_QOS: u8 = 7;

impl Kernel {
    /// Changes settings of a VF through the interface of its PF, in the order of the kernel. After the first one that the driver
    /// refuses, the earlier ones stay.
    pub fn set_vf_settings(&mut self, vf: VfRef, settings: &VfSettings) -> Result<(), Refusal> {
        let rules = self.card(vf.pf).map(MachinePf::vf_rules).unwrap_or_default();
        self.expect_pf(vf.pf)?.link.as_ref().ok_or(refuse(ENODEV))?;
        self.expect_vf(vf).map_err(|_| refuse(EINVAL))?;
        if let Some(mac) = settings.mac {
            supports(&rules, VfSetting::Mac, EOPNOTSUPP)?;
            self.set_vf_mac(vf, mac)?;
            self.take_mac_over(vf, &rules);
        }
        self.set_vlan(vf, settings, &rules)?;
        self.set_rates(vf, settings, &rules)?;
        let stored = &mut self.expect_vf(vf)?.settings;
        if let Some(on) = settings.spoof_check {
            supports(&rules, VfSetting::SpoofCheck, EOPNOTSUPP)?;
            stored.spoof_check = on;
        }
        if let Some(state) = settings.link_state {
            supports(&rules, VfSetting::LinkState, EOPNOTSUPP)?;
            stored.link_state = state;
        }
        if let Some(on) = settings.trust {
            supports(&rules, VfSetting::Trust, EOPNOTSUPP)?;
            stored.trust = on;
        }
        if let Some(guid) = settings.node_guid.or(settings.port_guid) {
            self.set_vf_guid(vf, guid)?;
        }
        self.event_count += 1;
        Ok(())
    }

    fn set_vlan(&mut self, vf: VfRef, settings: &VfSettings, rules: &VfRules) -> Result<(), Refusal> {
        let Some(vlan) = settings.vlan else { return Ok(()) };
        supports(rules, VfSetting::Vlan, EOPNOTSUPP)?;
        if vlan.id > MAX_VLAN || vlan.qos > MAX_QOS {
            return Err(refuse(EINVAL));
        }
        if vlan.protocol == VlanProtocol::Ieee8021ad {
            supports(rules, VfSetting::Ieee8021ad, EPROTONOSUPPORT)?;
        }
        self.expect_vf(vf)?.settings.vlan = vlan;
        Ok(())
    }

    /// Sets both rates, which are one value for the kernel: one that is missing is 0.
    fn set_rates(&mut self, vf: VfRef, settings: &VfSettings, rules: &VfRules) -> Result<(), Refusal> {
        if settings.min_tx_rate.is_none() && settings.max_tx_rate.is_none() {
            return Ok(());
        }
        supports(rules, VfSetting::MaxTxRate, EOPNOTSUPP)?;
        let (min, max) = (settings.min_tx_rate.unwrap_or(0), settings.max_tx_rate.unwrap_or(0));
        if min > 0 {
            supports(rules, VfSetting::MinTxRate, EINVAL)?;
        }
        let link = self.expect_pf(vf.pf)?.link.as_ref().ok_or(refuse(ENODEV))?;
        let speed = if link.up { link.speed } else { Some(0) };
        let is_above_speed = rules.rates_need_link && speed.is_some_and(|speed| max > speed);
        if is_above_speed || (max > 0 && min > max) {
            return Err(refuse(EINVAL));
        }
        let stored = &mut self.expect_vf(vf)?.settings;
        (stored.min_tx_rate, stored.max_tx_rate) = (min, max);
        Ok(())
    }

    fn take_mac_over(&mut self, vf: VfRef, rules: &VfRules) {
        if let Ok(found) = self.expect_vf(vf)
            && rules.takes_mac_at_once
            && found.admin_mac_is_set
            && let Some(link) = &mut found.link
        {
            link.mac = found.admin_mac;
        }
    }

    /// Sets the MAC of the interface of a VF, in whatever namespace it is. A PF that has set one refuses another one, unless
    /// it trusts the VF; else it stores the new one. A PF that is down does not notice it.
    pub fn set_own_mac(&mut self, device: PciAddress, mac: MacAddr) -> Result<(), Refusal> {
        let Some(vf) = self.vf_at(device) else { return Err(refuse(EOPNOTSUPP)) };
        let keeps_admin_mac = self.card(vf.pf).is_some_and(|card| card.vf_rules().keeps_admin_mac);
        let pf_is_up = self.expect_pf(vf.pf)?.link.as_ref().is_some_and(|link| link.up);
        let found = self.expect_vf(vf)?;
        let link = found.link.as_mut().ok_or(refuse(ENODEV))?;
        if !mac.is_usable() {
            return Err(refuse(EADDRNOTAVAIL));
        }
        let is_kept = keeps_admin_mac && pf_is_up && found.admin_mac_is_set && !found.settings.trust;
        if is_kept && link.mac != mac && link.permanent_mac != Some(mac) {
            return Err(refuse(EADDRNOTAVAIL));
        }
        link.mac = mac;
        if !found.admin_mac_is_set && pf_is_up {
            found.admin_mac = mac;
        }
        self.event_count += 1;
        Ok(())
    }

    /// Sets the MTU of the interface of a VF, in whatever namespace it is.
    pub fn set_own_mtu(&mut self, device: PciAddress, mtu: u32) -> Result<(), Refusal> {
        super::links::set_mtu(self.device_link_mut(device), mtu)?;
        self.event_count += 1;
        Ok(())
    }

    /// Sets the interface of a VF up or down, in whatever namespace it is. IPv6 addresses are lost by down, IPv4 addresses
    /// stay.
    pub fn set_own_up(&mut self, device: PciAddress, up: bool) -> Result<(), Refusal> {
        let link = self.device_link_mut(device).ok_or(refuse(ENODEV))?;
        if link.up && !up {
            link.ips.retain(|ip| !ip.contains(':'));
        }
        link.up = up;
        self.event_count += 1;
        Ok(())
    }

    /// Adds IP addresses to the interface of a VF, unless it has them.
    pub fn add_ips(&mut self, device: PciAddress, ips: &[String]) -> Result<(), Refusal> {
        let link = self.device_link_mut(device).ok_or(refuse(ENODEV))?;
        for ip in ips {
            if !link.ips.contains(ip) {
                link.ips.push(ip.clone());
            }
        }
        self.event_count += 1;
        Ok(())
    }
}

fn supports(rules: &VfRules, setting: VfSetting, errno: i32) -> Result<(), Refusal> {
    if rules.refuses.contains(&setting) { Err(refuse(errno)) } else { Ok(()) }
}
