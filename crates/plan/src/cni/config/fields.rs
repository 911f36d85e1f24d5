//! Values that several plugins have in their configuration.

use vfleet_api::{MacAddr, PciAddress};

use crate::cni::facts::LinkState;
use crate::cni::protocol::CniError;
use crate::cni::protocol::json::{KeyFault, Section};
use crate::prelude::*;

/// Reads the PCI address of the device.
pub(super) fn read_device(root: &Section<'_>) -> Result<PciAddress, CniError> {
    let text = root.text("deviceID")?.ok_or_else(|| {
        CniError::invalid_config("deviceID", "is missing")
            .with_details("request the resource of the device for the pod, so that its PCI address is added")
    })?;
    text.parse().map_err(|error| CniError::invalid_config("deviceID", error))
}

/// Reads the state that the PF forces on the link.
pub(super) fn read_link_state(root: &Section<'_>) -> Result<Option<LinkState>, KeyFault> {
    match root.text("link_state")? {
        None => Ok(None),
        Some("auto") => Ok(Some(LinkState::Auto)),
        Some("enable") => Ok(Some(LinkState::Enable)),
        Some("disable") => Ok(Some(LinkState::Disable)),
        Some(text) => {
            Err(KeyFault::new("link_state", format!("{text:?} is not one of auto, enable and disable")))
        }
    }
}

/// Reads a switch that is `on` or `off`.
pub(super) fn read_switch(root: &Section<'_>, key: &str) -> Result<Option<bool>, KeyFault> {
    match root.text(key)? {
        None => Ok(None),
        Some("on") => Ok(Some(true)),
        Some("off") => Ok(Some(false)),
        Some(text) => Err(KeyFault::new(key, format!("{text:?} is neither on nor off"))),
    }
}

/// Parses a MAC that an interface may have. The error says why it may not.
pub(super) fn parse_mac(text: &str) -> Result<MacAddr, String> {
    let mac: MacAddr = text.parse().map_err(|error: vfleet_api::ParseError| error.to_string())?;
    if mac.is_usable() {
        Ok(mac)
    } else {
        Err(format!("{mac} is zero or an address of a group of interfaces"))
    }
}
