//! The features of network cards, through ethtool's netlink.

use super::netlink::generic::Family;
use super::netlink::{ethtool as wire, failed, unreadable};
use crate::HostError;

const EOPNOTSUPP: i32 = 95;

const TC_OFFLOAD: &str = "hw-tc-offload";

/// Returns whether traffic control may be offloaded to an interface; `None` when that cannot be switched.
pub(super) fn tc_offload(index: u32) -> Result<Option<bool>, HostError> {
    let attempt = format!("read the features of interface {index}");
    let Some(mut ethtool) = Family::open(wire::FAMILY)? else { return Ok(None) };
    match ethtool.get(&wire::get_features(index), &attempt) {
        Ok(answer) => {
            let feature = wire::feature(&answer, TC_OFFLOAD).ok_or_else(|| unreadable(&attempt))?;
            Ok(feature.can_switch.then_some(feature.is_on))
        }
        Err(error) if error.errno() == Some(EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lets traffic control be offloaded to an interface, or not.
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
    fn the_loopback_has_nothing_to_offload_to() {
        assert_eq!(tc_offload(1).unwrap(), None);
        assert_eq!(tc_offload(999_999).unwrap_err().errno(), Some(19));
    }
}
