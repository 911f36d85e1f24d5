//! Requests to the firmware of cards.

use vfleet_api::PciAddress;
use vfleet_plan::firmware::card_of;
use vfleet_plan::{FirmwareFacts, FirmwareLinkType, FirmwareSettings};

use super::eswitch::function_number;
use super::{EBUSY, EINVAL, ENODEV, Refusal, refuse};
use crate::sim::devices::{SimLink, SimPf};
use crate::sim::kernel::Kernel;
use crate::sim::machine::CardLinkKind;

impl Kernel {
    /// Changes firmware settings of a card for the next reset. They apply to all ports of the card.
    pub fn set_firmware(&mut self, pf: PciAddress, settings: &FirmwareSettings) -> Result<(), Refusal> {
        let limit = self.card(pf).map_or(0, |card| card.total_vfs);
        self.expect_pf(pf)?.firmware.as_ref().ok_or(refuse(ENODEV))?;
        if settings.num_vfs.is_some_and(|count| count > limit) {
            return Err(refuse(EINVAL));
        }
        for port in self.pfs.iter_mut().filter(|port| card_of(port.address) == card_of(pf)) {
            if let Some(firmware) = &mut port.firmware {
                merge_settings(&mut firmware.next_boot, settings);
            }
        }
        Ok(())
    }

    /// Resets the firmware of a card, which must have no VFs on any port.
    pub fn reset_firmware(&mut self, pf: PciAddress) -> Result<(), Refusal> {
        self.expect_pf(pf)?.firmware.as_ref().ok_or(refuse(ENODEV))?;
        let ports: Vec<&SimPf> =
            self.pfs.iter().filter(|port| card_of(port.address) == card_of(pf)).collect();
        if ports.iter().any(|port| !port.vfs.is_empty()) {
            return Err(refuse(EBUSY));
        }
        let next: Vec<(PciAddress, FirmwareSettings)> =
            ports.iter().filter_map(|port| Some((port.address, port.firmware.clone()?.next_boot))).collect();
        for (port, settings) in next {
            self.apply_firmware_settings(port, settings);
        }
        self.event_count += 1;
        Ok(())
    }

    /// Applies firmware settings: the number of supported VFs and the link type of a card.
    pub(in crate::sim) fn apply_firmware_settings(&mut self, pf: PciAddress, settings: FirmwareSettings) {
        let kind = match settings.link_types.get(usize::from(function_number(pf))) {
            Some(Some(FirmwareLinkType::Ethernet)) => Some(CardLinkKind::Ethernet),
            Some(Some(FirmwareLinkType::Infiniband)) => Some(CardLinkKind::Infiniband),
            _ => None,
        };
        if let (Some(kind), Some(card)) = (kind, self.machine.pfs.iter_mut().find(|card| card.address == pf))
        {
            card.link_kind = kind;
        }
        let Some(card) = self.card(pf).cloned() else { return };
        let link = SimLink::from_machine_pf(&card, &self.seed);
        self.remove_bridge_ports(std::slice::from_ref(&link.name));
        if let Some(found) = self.pf_mut(pf) {
            found.firmware = Some(FirmwareFacts { current: settings.clone(), next_boot: settings });
            found.link = found.link.is_some().then_some(link);
            found.set_supported_vfs(&card);
        }
    }
}

fn merge_settings(next: &mut FirmwareSettings, settings: &FirmwareSettings) {
    next.sriov = settings.sriov.or(next.sriov);
    next.num_vfs = settings.num_vfs.or(next.num_vfs);
    for (old, new) in next.link_types.iter_mut().zip(&settings.link_types) {
        if new.is_some() {
            old.clone_from(new);
        }
    }
}
