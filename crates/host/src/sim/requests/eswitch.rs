//! Requests to eswitches.

use vfleet_api::PciAddress;
use vfleet_plan::files::UDEV_RULES;
use vfleet_plan::{EswitchMode, Fact};

use super::{EBUSY, EINVAL, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::devices::{SimPf, SimPortLink};
use crate::sim::kernel::Kernel;
use crate::sim::machine::EswitchRule;

impl Kernel {
    /// Sets the eswitch mode (devlink), if the [`EswitchRule`] allows it. Representors and `hw-tc-offload` exist only
    /// in switchdev mode.
    pub fn set_eswitch_mode(&mut self, pf: PciAddress, mode: EswitchMode) -> Result<(), Refusal> {
        let rule = self.eswitch_rule(pf);
        let found = self.expect_pf(pf)?;
        let before = found.eswitch.ok_or(refuse(ENODEV))?;
        if rule == EswitchRule::NeedsVfs && found.vfs.is_empty() {
            return Err(refuse(EOPNOTSUPP));
        }
        if before == mode {
            return Ok(());
        }
        check_rule(rule, found, mode)?;
        found.enter_mode(mode);
        self.update_representors(pf);
        self.event_count += 1;
        Ok(())
    }

    /// Returns the eswitch mode as the kernel reports it.
    pub fn eswitch_mode(&self, pf: PciAddress) -> Fact<EswitchMode> {
        let is_off = |pf: &SimPf| self.eswitch_rule(pf.address) == EswitchRule::NeedsVfs && pf.vfs.is_empty();
        match self.pf(pf) {
            Some(found) if found.eswitch.is_some() && is_off(found) => Fact::Unknown,
            found => found.and_then(|found| found.eswitch).into(),
        }
    }

    pub(super) fn eswitch_rule(&self, pf: PciAddress) -> EswitchRule {
        let rule = self.card(pf).map(|card| card.eswitch_rule).unwrap_or_default();
        rule.for_driver(self.pf(pf).and_then(|pf| pf.driver.as_deref()))
    }

    /// Creates or removes representors. In switchdev mode each VF has one, which udev names immediately by its rules.
    pub(super) fn update_representors(&mut self, pf: PciAddress) {
        let has_rule = self.files.contains_key(&format!("{UDEV_RULES}/20-switchdev-{pf}.rules"));
        let is_stuck = self.card(pf).is_some_and(|card| card.stuck_representors);
        let Some(found) = self.pf_mut(pf) else { return };
        let is_on = found.eswitch == Some(EswitchMode::Switchdev);
        let name = found.link.as_ref().map(|link| link.name.clone()).filter(|_| is_on);
        let is_named = has_rule && !is_stuck;
        let mut renamed = Vec::new();
        for (index, vf) in found.vfs.iter_mut().enumerate() {
            let before = vf.representor.take();
            if before.is_none() {
                vf.representor_link = SimPortLink::default();
            }
            vf.representor = name
                .as_ref()
                .map(|name| if is_named { format!("{name}_{index}") } else { format!("{name}r{index}") });
            renamed.extend(before.map(|before| (before, vf.representor.clone())));
        }
        for (before, after) in renamed {
            self.rename_bridge_port(&before, after.as_deref());
        }
    }

    /// Makes udev apply its rules to the interfaces of a PF again.
    pub fn replay_udev(&mut self, pf: PciAddress) -> Result<(), Refusal> {
        self.expect_pf(pf)?;
        self.update_representors(pf);
        self.event_count += 1;
        Ok(())
    }

    /// Switches `hw-tc-offload` (ethtool).
    pub fn set_tc_offload(&mut self, pf: PciAddress, on: bool) -> Result<(), Refusal> {
        let found = self.expect_pf(pf)?;
        found.tc_offload = Some(found.tc_offload.map(|_| on).ok_or(refuse(EOPNOTSUPP))?);
        Ok(())
    }

    /// Selects software steering (devlink parameter `flow_steering_mode`). ice does not support it, and it cannot be
    /// selected in switchdev mode.
    pub fn set_software_steering(&mut self, pf: PciAddress) -> Result<(), Refusal> {
        let found = self.expect_pf(pf)?;
        if found.eswitch != Some(EswitchMode::Legacy) || found.driver.as_deref() == Some("ice") {
            return Err(refuse(EOPNOTSUPP));
        }
        found.software_steering = true;
        Ok(())
    }

    /// Returns the switch ID and the port name of the interface of a PF, which it has in legacy mode too.
    pub(in crate::sim) fn switch_port(&self, pf: PciAddress) -> Option<(String, String)> {
        let found = self.pf(pf)?;
        found.eswitch?;
        let id = found.link.as_ref()?.mac.to_string().replace(':', "");
        Some((id, format!("p{}", function_number(pf))))
    }
}

impl SimPf {
    /// Changes the mode of the eswitch.
    pub(super) fn enter_mode(&mut self, mode: EswitchMode) {
        self.eswitch = Some(mode);
        self.tc_offload = self.tc_offload.map(|_| mode == EswitchMode::Switchdev);
    }
}

/// Fails if `rule` does not allow the change to `mode`.
fn check_rule(rule: EswitchRule, pf: &SimPf, mode: EswitchMode) -> Result<(), Refusal> {
    let has_bound_vf = || pf.vfs.iter().any(|vf| vf.driver.is_some());
    let (errno, message) = match rule {
        EswitchRule::NoVfs if !pf.vfs.is_empty() => {
            (EOPNOTSUPP, "Changing eswitch mode is allowed only if there is no VFs created")
        }
        EswitchRule::FreeVfs if mode == EswitchMode::Switchdev && has_bound_vf() => {
            (EINVAL, "A driver holds a VF")
        }
        EswitchRule::Never => (EBUSY, "Asked to fail"),
        EswitchRule::Unsupported => (EOPNOTSUPP, "The firmware has no switchdev mode"),
        _ => return Ok(()),
    };
    Err(Refusal { errno, message: Some(message) })
}

/// Returns the PCI function number, which is the number of the port on a card with several ports.
pub(super) fn function_number(pf: PciAddress) -> u8 {
    pf.to_string().bytes().last().map_or(0, |digit| digit - b'0')
}
