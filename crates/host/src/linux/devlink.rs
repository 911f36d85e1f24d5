//! The embedded switch of a card, through devlink.

use vfleet_plan::{EswitchMode, Fact};

use super::netlink::devlink as wire;
pub(super) use super::netlink::devlink::Handle;
use super::netlink::generic::Family;
use super::netlink::unreadable;
use crate::HostError;

const EPERM: i32 = 1;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// Reads the mode of a card's embedded switch.
pub(super) fn eswitch(device: &Handle) -> Result<Fact<EswitchMode>, HostError> {
    let attempt = format!("read the eswitch mode of {}", device.name);
    let Some(mut devlink) = Family::open(wire::FAMILY)? else { return Ok(Fact::None) };
    match devlink.get(&wire::get_eswitch(device), &attempt) {
        Ok(answer) => wire::eswitch_mode(&answer).ok_or_else(|| unreadable(&attempt)),
        // Not known to devlink, or (EPERM) another processor on the card has the switch.
        Err(error) if matches!(error.errno(), Some(ENODEV | EPERM)) => Ok(Fact::None),
        // mlx5 before Linux 6.0 has no mode without VFs. Others may have no switch: the answer is the same.
        Err(error) if error.errno() == Some(EOPNOTSUPP) => Ok(Fact::Unknown),
        Err(error) => Err(error),
    }
}

/// Sets the mode of a card's embedded switch.
pub(super) fn set_eswitch(device: &Handle, mode: EswitchMode, attempt: &str) -> Result<(), HostError> {
    let no_switch = || HostError::NoEswitch { device: device.name.clone() };
    let mut devlink = Family::open(wire::FAMILY)?.ok_or_else(no_switch)?;
    match devlink.change(&wire::set_eswitch(device, mode), attempt) {
        // Not EOPNOTSUPP: drivers that change the mode only at certain times (ice: without VFs) refuse it so.
        Err(error) if error.errno() == Some(ENODEV) => Err(no_switch()),
        set => set,
    }
}

/// Sets a parameter that is a text. A device that has no such parameter, or does not take the value, is left as it is.
pub(super) fn set_text_if_taken(
    device: &Handle,
    parameter: &str,
    value: &str,
    attempt: &str,
) -> Result<(), HostError> {
    match try_to_set_text(device, parameter, value, attempt) {
        Err(error) if matches!(error.errno(), Some(ENODEV | EINVAL | EOPNOTSUPP)) => Ok(()),
        tried => tried,
    }
}

fn try_to_set_text(device: &Handle, parameter: &str, value: &str, attempt: &str) -> Result<(), HostError> {
    let Some(mut devlink) = Family::open(wire::FAMILY)? else { return Ok(()) };
    let answer = devlink.get(&wire::get_parameter(device, parameter), attempt)?;
    let (mode, found) = wire::text_parameter(&answer).ok_or_else(|| unreadable(attempt))?;
    if found == value {
        return Ok(());
    }
    devlink.change(&wire::set_text_parameter(device, parameter, mode, value), attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_devlink_does_not_know_has_no_switch() {
        let device = Handle::pci("0000:03:00.1".parse().unwrap());
        assert_eq!(eswitch(&device).unwrap(), Fact::None);
        let error = set_eswitch(&device, EswitchMode::Switchdev, "set x eswitch switchdev").unwrap_err();
        assert_eq!(error.reason(), "NoEswitch");
        set_text_if_taken(&device, "flow_steering_mode", "smfs", "set x flow steering").unwrap();
    }
}
