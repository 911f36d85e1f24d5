//! RDMA device of a device: on the host, in a pod, or on its way between them.

use crate::cni::facts::{AttachmentFacts, DeviceFacts, DevicePart};
use crate::cni::protocol::{CniError, ErrorCode};
use crate::cni::step::CniStep;
use crate::prelude::*;

use super::ReleasePlan;
use super::pod::open_pod;

/// Returns the RDMA device of the device, which must be the only one, on the host.
pub(in crate::cni) fn require_rdma(device: &DeviceFacts) -> Result<&str, CniError> {
    let address = device.address;
    let failed =
        |problem: String| CniError::new(ErrorCode::DeviceFailed, format!("device {address} {problem}"));
    match device.rdma.as_slice() {
        [rdma] => Ok(rdma),
        [] => Err(failed("has no RDMA device on the host".to_owned()).with_details(
            "load the RDMA module of its driver, or check whether another pod has the RDMA device",
        )),
        several => Err(failed(format!("has {} RDMA devices: {}", several.len(), several.join(", ")))
            .with_details("only a device with one RDMA device can be isolated")),
    }
}

/// Adds the return of an RDMA device that ADD moved to the pod to a plan. Returns whether it is returned by a step.
pub(in crate::cni) fn return_rdma(
    rdma: &str,
    device: &DeviceFacts,
    facts: &AttachmentFacts,
    plan: &mut ReleasePlan,
) -> bool {
    let Ok(pod) = open_pod(facts) else {
        if facts.has_exclusive_rdma && is_away(device) {
            plan.waits_for.insert(DevicePart::RdmaDevice);
        }
        return false;
    };
    if !pod.rdma.iter().any(|name| name == rdma) {
        return false;
    }
    let (rdma, namespace) = (rdma.to_owned(), pod.namespace.clone());
    plan.steps.push(CniStep::ReturnRdmaToHost { device: device.address, rdma, namespace });
    true
}

/// Returns whether the RDMA device of a device is in a namespace other than the host's. A device with a driver for userspace,
/// or without any, has none.
fn is_away(device: &DeviceFacts) -> bool {
    device.driver.is_some() && !device.is_for_userspace() && device.rdma.is_empty()
}
