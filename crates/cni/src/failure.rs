//! Errors of the machine as errors of CNI.

use std::error::Error;

use vfleet_host::attachment::DeviceLockError;
use vfleet_host::{HostError, format_error_chain};
use vfleet_plan::cni::protocol::{CniError, ErrorCode};

/// Returns the error of CNI for an error of the machine.
#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(crate) fn host_failure(error: HostError) -> CniError {
    let code = match &error {
        HostError::Io { .. } | HostError::InvalidContent { .. } | HostError::DamagedRecord { .. } => {
            ErrorCode::Io
        }
        _ => ErrorCode::DeviceFailed,
    };
    with_causes(code, &error)
}

/// Returns the error of CNI for a device that cannot be locked.
#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(crate) fn lock_failure(error: DeviceLockError) -> CniError {
    let code = match &error {
        DeviceLockError::Busy { .. } => ErrorCode::TryAgainLater,
        DeviceLockError::Failed { .. } => ErrorCode::Io,
    };
    with_causes(code, &error)
}

fn with_causes(code: ErrorCode, error: &dyn Error) -> CniError {
    let causes = error.source().map(format_error_chain).unwrap_or_default();
    CniError::new(code, error.to_string()).with_details(causes)
}
