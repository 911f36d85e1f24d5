//! Features of interfaces, through ethtool netlink.

use super::netlink::generic::Family;
use super::netlink::{ethtool as wire, failed, invalid_answer};
use crate::HostError;

const EOPNOTSUPP: i32 = 95;

const TC_OFFLOAD: &str = "hw-tc-offload";

/// Reads whether TC offload of an interface is on; `None` if it cannot be switched.
pub(super) fn read_tc_offload(index: u32) -> Result<Option<bool>, HostError> {
    let attempt = format!("read the features of interface {index}");
    let Some(mut ethtool) = Family::open(wire::FAMILY)? else { return Ok(None) };
    match ethtool.get(&wire::get_features(index), &attempt) {
        Ok(answer) => {
            let feature = wire::parse_feature(&answer, TC_OFFLOAD).ok_or_else(|| invalid_answer(&attempt))?;
            Ok(feature.can_switch.then_some(feature.is_on))
        }
        Err(error) if error.errno() == Some(EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Switches TC offload of an interface.
pub(super) fn set_tc_offload(index: u32, on: bool, attempt: &str) -> Result<(), HostError> {
    let Some(mut ethtool) = Family::open(wire::FAMILY)? else {
        return Err(failed(attempt, std::io::Error::from_raw_os_error(EOPNOTSUPP)));
    };
    ethtool.change(&wire::set_feature(index, TC_OFFLOAD, on), attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_no_offload() {
        assert_eq!(read_tc_offload(1).unwrap(), None);
        assert_eq!(read_tc_offload(999_999).unwrap_err().errno(), Some(19));
    }
}
