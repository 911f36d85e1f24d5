//! Step that changes a vDPA device.

use vfleet_api::{MacAddr, PciAddress};

use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::steps::verify;
use crate::linux::vdpa;

const EOPNOTSUPP: i32 = 95;

/// Sets the MAC address of a vDPA device of a VF.
pub(super) fn set_mac(
    root: &HostRoot,
    device: PciAddress,
    name: &str,
    mac: MacAddr,
) -> Result<(), HostError> {
    let attempt = format!("set the MAC address of vDPA device {name} of {device} to {mac}");
    if !read_stable(|| vdpa::list_names(root, device))?.iter().any(|found| found == name) {
        return Err(HostError::NotVerified {
            attempt,
            expected: "the vDPA device".to_owned(),
            found: "none: check the policy of the VF".to_owned(),
        });
    }
    if vdpa::read_config(name)?.mac == Some(mac) {
        return Ok(());
    }
    match vdpa::set_mac(name, mac, &attempt) {
        Err(error) if error.errno() == Some(EOPNOTSUPP) => {
            return Err(HostError::VdpaMacUnsupported { attempt });
        }
        result => result?,
    }
    let found = vdpa::read_config(name)?.mac;
    verify(
        &attempt,
        &mac.to_string(),
        &found.map_or_else(|| "no MAC address".to_owned(), |mac| mac.to_string()),
    )
}
