//! Cache of the Go plugin `ib-sriov`.

use vfleet_api::Guid;

use crate::cni::facts::{LinkState, VfSettings};
use crate::cni::protocol::json::{KeyFault, Section};
use crate::cni::step::OriginalInterface;
use crate::prelude::*;

/// GUID that the plugin writes instead of none: drivers take it for "not set", and refuse zero.
const NO_GUID: Guid = Guid([0xff; 8]);

/// Changes that DEL undoes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restored {
    pub(super) guid: Option<Guid>,
    pub(super) original_guid: Option<Guid>,
    pub(super) original: VfSettings,
    pub(super) link_state: Option<LinkState>,
    pub(super) interface: Option<OriginalInterface>,
    pub(super) rdma: Option<String>,
}

/// Reads the changes. The original GUID is present only if ADD set one. The original link state is not recorded: it is
/// reset to `auto` if the configuration has one.
pub(super) fn read(root: &Section<'_>) -> Result<Restored, KeyFault> {
    // The plugin writes this key always, also for a device without an interface.
    if !root.has("HostIFNames") {
        return Err(KeyFault::new("HostIFNames", "is missing"));
    }
    let original_guid = root.text("HostIFGUID")?.map(|text| parse_guid("HostIFGUID", text)).transpose()?;
    let original_guid = original_guid.map(|guid| if guid.0 == [0; 8] { NO_GUID } else { guid });
    let guid = match original_guid {
        None => None,
        Some(original) => Some(read_guid(root)?.unwrap_or(original)),
    };
    let link_state = root.text("link_state")?.map(|text| match text {
        "enable" => LinkState::Enable,
        "disable" => LinkState::Disable,
        _ => LinkState::Auto,
    });
    let original = VfSettings { link_state: link_state.map(|_| LinkState::Auto), ..VfSettings::default() };
    let interface = root.text("HostIFNames")?;
    let is_isolated = root.flag("rdmaIsolation")?.unwrap_or_default();
    let rdma = match root.section("RdmaNetState")?.filter(|_| is_isolated) {
        None => None,
        Some(state) => state.text("containerRdmaDevName")?.map(ToOwned::to_owned),
    };
    Ok(Restored {
        guid,
        original_guid,
        original,
        link_state,
        interface: interface
            .map(|name| OriginalInterface { name: name.to_owned(), ..OriginalInterface::default() }),
        rdma,
    })
}

/// Reads the GUID that ADD set, which the plugin itself does not store.
fn read_guid(root: &Section<'_>) -> Result<Option<Guid>, KeyFault> {
    let runtime = root.section("runtimeConfig")?;
    let by_runtime = runtime.as_ref().map(|section| section.text("infinibandGUID")).transpose()?.flatten();
    let args = root.section("args")?.map(|args| args.section("cni")).transpose()?.flatten();
    let by_pod = args.map(|args| args.exact_text("guid")).transpose()?.flatten();
    Ok(by_runtime.or(by_pod).and_then(|text| text.parse().ok()))
}

fn parse_guid(key: &str, text: &str) -> Result<Guid, KeyFault> {
    text.parse().map_err(|error: vfleet_api::ParseError| KeyFault::new(key, error.to_string()))
}
