//! Readiness of a plugin.

use crate::cni::facts::{OvsSocket, OvsSwitchFacts};
use crate::cni::journal::Plugin;
use crate::cni::protocol::{CniError, ErrorCode};
use crate::prelude::*;

/// Decides STATUS: an error only if every ADD of the network would fail. `isolates_rdma` is `rdmaIsolation` of the plugin
/// `ib-sriov`.
pub fn plan_status(plugin: Plugin, isolates_rdma: bool, has_exclusive_rdma: bool) -> Result<(), CniError> {
    let needs_exclusive = plugin == Plugin::Rdma || plugin == Plugin::Infiniband && isolates_rdma;
    if needs_exclusive && !has_exclusive_rdma {
        return Err(CniError::new(
            ErrorCode::NotAvailable,
            "the RDMA subsystem is in shared mode, in which pods cannot have RDMA devices of their own",
        )
        .with_details(super::EXCLUSIVE_MODE_REMEDY));
    }
    Ok(())
}

/// Decides STATUS of a plugin that needs Open vSwitch: an error only if the database of its configuration does not answer.
pub fn plan_ovs_status(socket: &OvsSocket, ovs: &OvsSwitchFacts) -> Result<(), CniError> {
    match ovs {
        OvsSwitchFacts::Running { .. } => Ok(()),
        OvsSwitchFacts::Down { reason } => {
            let message = format!("Open vSwitch at {socket} does not answer: {reason}");
            Err(CniError::new(ErrorCode::NotAvailable, message).with_details("start ovsdb-server"))
        }
    }
}
