//! Caches of the Go plugins for mirrors: `{PrevResult}`.

use crate::cni::protocol::json::{KeyFault, Section};
use crate::prelude::*;

/// Reads the names of the interfaces of the result before, one of which is the port.
pub(super) fn read(root: &Section<'_>) -> Result<Vec<String>, KeyFault> {
    let previous = root.section("PrevResult")?;
    let previous = previous.ok_or_else(|| KeyFault::new("PrevResult", "is missing"))?;
    let mut names = Vec::new();
    for interface in previous.objects("interfaces")? {
        names.extend(interface.text("name")?.map(ToOwned::to_owned));
    }
    Ok(names)
}
