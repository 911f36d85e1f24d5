use vfleet_api::PciAddress;
use vfleet_plan::EswitchMode;
use vfleet_plan::files::UDEV_RULES;

use super::{EBUSY, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::kernel::Kernel;

impl Kernel {
    /// Set the mode of the embedded switch (devlink). Representors come and go with it. ice changes it only without
    /// VFs; others while no driver holds one.
    pub fn set_eswitch_mode(&mut self, pf: PciAddress, mode: EswitchMode) -> Result<(), Refusal> {
        let found = self.expect_pf(pf)?;
        let before = found.eswitch.ok_or(refuse(ENODEV))?;
        if before == mode {
            return Ok(());
        }
        if found.driver.as_deref() == Some("ice") && !found.vfs.is_empty() {
            let message = Some("Changing eswitch mode is allowed only if there is no VFs created");
            return Err(Refusal { errno: EOPNOTSUPP, message });
        }
        if found.vfs.iter().any(|vf| vf.driver.is_some()) {
            return Err(refuse(EBUSY));
        }
        found.eswitch = Some(mode);
        self.show_representors(pf);
        self.announced += 1;
        Ok(())
    }

    /// In switchdev mode each VF has a representor, and udev names it at once, by the rules that there are.
    pub(super) fn show_representors(&mut self, pf: PciAddress) {
        let has_rule = self.files.contains_key(&format!("{UDEV_RULES}/20-switchdev-{pf}.rules"));
        let Some(found) = self.pf_mut(pf) else { return };
        let is_on = found.eswitch == Some(EswitchMode::Switchdev);
        let name = found.link.as_ref().map(|link| link.name.clone()).filter(|_| is_on);
        let port = function(pf);
        for (index, vf) in found.vfs.iter_mut().enumerate() {
            vf.representor = name.as_ref().map(|name| {
                if has_rule { format!("{name}_{index}") } else { format!("{name}npf{port}vf{index}") }
            });
        }
    }

    /// Have udev look at the interfaces of a PF again.
    pub fn replay_udev(&mut self, pf: PciAddress) -> Result<(), Refusal> {
        self.expect_pf(pf)?;
        self.show_representors(pf);
        self.announced += 1;
        Ok(())
    }

    /// Switch `hw-tc-offload` (ethtool).
    pub fn set_tc_offload(&mut self, pf: PciAddress, on: bool) -> Result<(), Refusal> {
        let found = self.expect_pf(pf)?;
        found.tc_offload = Some(found.tc_offload.map(|_| on).ok_or(refuse(EOPNOTSUPP))?);
        Ok(())
    }

    /// Let software steer flows (devlink parameter `flow_steering_mode`), which only mlx5 has.
    pub fn set_software_steering(&mut self, pf: PciAddress) -> Result<(), Refusal> {
        let found = self.expect_pf(pf)?;
        if found.driver.as_deref() != Some("mlx5_core") {
            return Err(refuse(EOPNOTSUPP));
        }
        found.software_steering = true;
        Ok(())
    }

    /// Which switch an interface in switchdev mode is a port of, and which port.
    pub(in crate::sim) fn switch_port(&self, pf: PciAddress) -> Option<(String, String)> {
        let found = self.pf(pf)?;
        found.eswitch.filter(|mode| *mode == EswitchMode::Switchdev)?;
        let id = found.link.as_ref()?.mac.to_string().replace(':', "");
        Some((id, format!("p{}", function(pf))))
    }
}

/// The number of the port of a card with several.
pub(super) fn function(pf: PciAddress) -> u8 {
    pf.to_string().bytes().last().map_or(0, |digit| digit - b'0')
}
