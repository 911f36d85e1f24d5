//! Cache of the Go plugin `rdma`.

use crate::cni::protocol::json::{KeyFault, Section};
use crate::prelude::*;

/// Reads the name of the RDMA device in the container. It is the same as in the host.
pub(super) fn read(root: &Section<'_>) -> Result<String, KeyFault> {
    let version = root.text("version")?.ok_or_else(|| KeyFault::new("version", "is missing"))?;
    if version.split('.').next() != Some("1") {
        return Err(KeyFault::new("version", format!("{version:?} is not supported")));
    }
    let in_container = root.text("containerRdmaDevName")?;
    let name = match in_container {
        None => root.text("sandboxRdmaDevName")?,
        name => name,
    };
    Ok(name.ok_or_else(|| KeyFault::new("containerRdmaDevName", "is missing"))?.to_owned())
}
