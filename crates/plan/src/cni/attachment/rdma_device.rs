//! RDMA device of a device: on the host, in a pod, or on its way between them.

use vfleet_api::PciAddress;

use crate::cni::facts::{AttachmentFacts, DevicePart};
use crate::cni::protocol::{CniError, ErrorCode};
use crate::cni::step::CniStep;
use crate::prelude::*;

use super::ReleasePlan;
use super::pod::open_pod;

/// Returns the RDMA device of the device, which must be the only one, on the host.
pub(in crate::cni) fn require_rdma(facts: &AttachmentFacts) -> Result<&str, CniError> {
    let device = facts.device.address;
    let failed =
        |problem: String| CniError::new(ErrorCode::DeviceFailed, format!("device {device} {problem}"));
    match facts.device.rdma.as_slice() {
        [rdma] => Ok(rdma),
        [] => Err(failed("has no RDMA device on the host".to_owned()).with_details(
            "load the RDMA module of its driver, or check whether another pod has the RDMA device",
        )),
        several => Err(failed(format!("has {} RDMA devices: {}", several.len(), several.join(", ")))
            .with_details("only a device with one RDMA device can be isolated")),
    }
}

/// Adds the return of an RDMA device that ADD moved to the pod to a plan. Returns whether it is returned by a step.
pub(in crate::cni) fn return_rdma(rdma: &str, facts: &AttachmentFacts, plan: &mut ReleasePlan) -> bool {
    let device: PciAddress = facts.device.address;
    let Ok(pod) = open_pod(facts) else {
        if is_away(facts) {
            plan.waits_for.insert(DevicePart::RdmaDevice);
        }
        return false;
    };
    if !pod.rdma.iter().any(|name| name == rdma) {
        return false;
    }
    let (rdma, namespace) = (rdma.to_owned(), pod.namespace.clone());
    plan.steps.push(CniStep::ReturnRdmaToHost { device, rdma, namespace });
    true
}

/// Returns whether the RDMA device of a device is in a namespace other than the host's. A device with a driver for userspace,
/// or without any, has none.
fn is_away(facts: &AttachmentFacts) -> bool {
    let device = &facts.device;
    let has_driver = device.driver.is_some() && !device.is_for_userspace();
    facts.has_exclusive_rdma && has_driver && device.rdma.is_empty()
}
