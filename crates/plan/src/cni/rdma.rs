//! Decisions of the plugin `rdma`.

use super::attachment::{
    AddContext, AddPlan, CheckedAttachment, EXCLUSIVE_MODE_REMEDY, ReleasePlan, open_pod, refuse_holders,
    require_device, require_rdma, return_rdma,
};
use super::config::RdmaConfig;
use super::facts::{AttachmentFacts, DeviceFacts, HolderFacts};
use super::journal::{DeviceChanges, Plugin, RdmaChanges};
use super::protocol::CniError;
use super::step::CniStep;
use crate::prelude::*;

/// Plans an ADD. The interface of the device is in the pod already: another plugin has attached it.
pub fn plan_add(
    config: &RdmaConfig,
    context: AddContext<'_>,
    facts: &AttachmentFacts,
) -> Result<AddPlan, CniError> {
    let pod = open_pod(facts)?;
    let device = require_device(facts)?;
    if !facts.has_exclusive_rdma {
        return Err(CniError::invalid_config("rdma", "the RDMA subsystem is in shared mode")
            .with_details(EXCLUSIVE_MODE_REMEDY));
    }
    refuse_holders(facts, &context.key)?;
    let is_infiniband =
        pod.links.iter().any(|link| link.device == Some(config.device) && link.is_infiniband());
    let follows_infiniband = facts.holders.iter().any(|holder| {
        matches!(holder, HolderFacts::Journal { journal, .. } if journal.key.plugin == Plugin::Infiniband)
    });
    if is_infiniband || follows_infiniband {
        return Err(CniError::invalid_config(
            "rdma",
            "it cannot follow the plugin ib-sriov, whose interface would be lost",
        )
        .with_details("remove rdma from the network, and set rdmaIsolation of ib-sriov"));
    }
    let rdma = require_rdma(device)?.to_owned();
    let namespace = pod.namespace.clone();
    let step = CniStep::MoveRdmaToPod { device: config.device, rdma: rdma.clone(), namespace };
    let journal = context.journal(&pod, DeviceChanges::Rdma(RdmaChanges { rdma }));
    Ok(AddPlan::new(journal, vec![step], Vec::new(), false))
}

/// Plans the release of an RDMA device. When a namespace is deleted, the kernel returns the RDMA device itself.
pub(super) fn plan_release(
    changes: &RdmaChanges,
    device: &DeviceFacts,
    facts: &AttachmentFacts,
) -> ReleasePlan {
    let mut plan = ReleasePlan::default();
    return_rdma(&changes.rdma, device, facts, &mut plan);
    plan
}

/// Checks that the pod has the RDMA device.
pub(super) fn check(changes: &RdmaChanges, checked: CheckedAttachment<'_>) -> Result<(), CniError> {
    checked.check_rdma(&changes.rdma)
}
