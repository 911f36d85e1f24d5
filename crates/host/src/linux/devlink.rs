//! eswitch of a card, through devlink.

use vfleet_plan::{EswitchMode, Fact};

use super::netlink::devlink as wire;
pub(super) use super::netlink::devlink::{DevlinkHandle, DevlinkPort};
use super::netlink::generic::Family;
use super::netlink::invalid_answer;
use crate::HostError;

const EPERM: i32 = 1;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// Reads the eswitch mode of a card.
pub(super) fn read_eswitch_mode(device: &DevlinkHandle) -> Result<Fact<EswitchMode>, HostError> {
    let attempt = format!("read the eswitch mode of {}", device.name);
    let Some(mut devlink) = Family::open(wire::FAMILY)? else { return Ok(Fact::None) };
    match devlink.get(&wire::get_eswitch(device), &attempt) {
        Ok(answer) => wire::parse_eswitch_mode(&answer).ok_or_else(|| invalid_answer(&attempt)),
        // ENODEV: not a devlink device. EPERM: the eswitch belongs to another processor on the card.
        Err(error) if matches!(error.errno(), Some(ENODEV | EPERM)) => Ok(Fact::None),
        // mlx5 before Linux 6.0 reports no mode without VFs. Drivers without an eswitch return the same error.
        Err(error) if error.errno() == Some(EOPNOTSUPP) => Ok(Fact::Unknown),
        Err(error) => Err(error),
    }
}

/// Sets the eswitch mode of a card.
pub(super) fn set_eswitch_mode(
    device: &DevlinkHandle,
    mode: EswitchMode,
    attempt: &str,
) -> Result<(), HostError> {
    let no_eswitch = || HostError::NoEswitch { device: device.name.clone() };
    let mut devlink = Family::open(wire::FAMILY)?.ok_or_else(no_eswitch)?;
    match devlink.change(&wire::set_eswitch(device, mode), attempt) {
        // Not EOPNOTSUPP: drivers return it also if they can change the mode only in another state (ice: without VFs).
        Err(error) if error.errno() == Some(ENODEV) => Err(no_eswitch()),
        result => result,
    }
}

/// Lists the ports of a card; none if it is not a devlink device.
pub(super) fn list_ports(device: &DevlinkHandle) -> Result<Vec<DevlinkPort>, HostError> {
    let attempt = format!("list the devlink ports of {}", device.name);
    let Some(mut devlink) = Family::open(wire::FAMILY)? else { return Ok(Vec::new()) };
    match devlink.dump(&wire::list_ports(device), &attempt, DevlinkPort::parse) {
        Ok(ports) => Ok(ports.into_iter().filter(|port| port.is_of(device)).collect()),
        Err(error) if matches!(error.errno(), Some(ENODEV | EOPNOTSUPP)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Sets a text parameter. A device that does not support the parameter or the value is left alone.
pub(super) fn set_text_if_supported(
    device: &DevlinkHandle,
    parameter: &str,
    value: &str,
    attempt: &str,
) -> Result<(), HostError> {
    match set_text(device, parameter, value, attempt) {
        Err(error) if matches!(error.errno(), Some(ENODEV | EINVAL | EOPNOTSUPP)) => Ok(()),
        result => result,
    }
}

fn set_text(device: &DevlinkHandle, parameter: &str, value: &str, attempt: &str) -> Result<(), HostError> {
    let Some(mut devlink) = Family::open(wire::FAMILY)? else { return Ok(()) };
    let answer = devlink.get(&wire::get_parameter(device, parameter), attempt)?;
    let (mode, found) = wire::parse_text_parameter(&answer).ok_or_else(|| invalid_answer(attempt))?;
    if found == value {
        return Ok(());
    }
    devlink.change(&wire::set_text_parameter(device, parameter, mode, value), attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_devlink_does_not_know_has_no_eswitch() {
        let device = DevlinkHandle::pci("0000:03:00.1".parse().unwrap());
        assert_eq!(read_eswitch_mode(&device).unwrap(), Fact::None);
        let error =
            set_eswitch_mode(&device, EswitchMode::Switchdev, "set x eswitch mode switchdev").unwrap_err();
        assert_eq!(error.reason(), "NoEswitch");
        assert_eq!(list_ports(&device).unwrap(), []);
        set_text_if_supported(&device, "flow_steering_mode", "smfs", "set x flow steering").unwrap();
    }
}
