//! Configuration of the plugins `ovs-mirror-producer` and `ovs-mirror-consumer`.

use super::log::{LogSettings, read_log};
use super::network::NetworkConfig;
use super::ovs::{OvsFlatFile, read_bridge, read_ovs_socket};
use crate::cni::facts::OvsSocket;
use crate::cni::protocol::json::{KeyFault, Section};
use crate::cni::protocol::{CniArgs, CniError};
use crate::cni::step::MirrorRole;
use crate::prelude::*;

/// Configuration of the plugins for mirrors, which follow the plugin `ovs` in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// Bridge of the mirrors.
    pub bridge: String,
    /// Part of the port in each mirror, by the name of the mirror.
    pub mirrors: BTreeMap<String, MirrorRole>,
    /// Names of the interfaces of the result before. The first that is a port of Open vSwitch counts.
    pub interfaces: Vec<String>,
    /// Database of Open vSwitch.
    pub socket: OvsSocket,
    /// Log.
    pub log: LogSettings,
}

impl MirrorConfig {
    /// Parses the keys of a producer, which is a source of its mirrors, or of a consumer, which is their output. Those that
    /// are not set are taken from `file`.
    pub fn parse(
        is_producer: bool,
        network: &NetworkConfig,
        _args: &CniArgs,
        file: Option<&OvsFlatFile>,
    ) -> Result<Self, CniError> {
        let Some(previous) = &network.previous else {
            return Err(CniError::invalid_config("prevResult", "is missing")
                .with_details("mirror plugins follow the plugin ovs in a list of plugins"));
        };
        let root = network.root();
        let bridge = read_bridge(&root, file)?.ok_or_else(|| {
            CniError::invalid_config("bridge", "is missing").with_details("name the bridge of the port")
        })?;
        Ok(Self {
            bridge,
            mirrors: read_mirrors(is_producer, &root)?,
            interfaces: previous.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            socket: read_ovs_socket(network, file)?,
            log: read_log(&root)?,
        })
    }
}

/// Reads the mirrors. A mirror that is listed twice has both directions of its entries.
fn read_mirrors(is_producer: bool, root: &Section<'_>) -> Result<BTreeMap<String, MirrorRole>, CniError> {
    let mut mirrors = BTreeMap::new();
    for entry in root.objects("mirrors")? {
        let name = entry.text("name")?;
        let name = name.ok_or_else(|| KeyFault::new(entry.path_of("name"), "is missing"))?;
        let role = read_role(is_producer, &entry)?;
        mirrors.entry(name.to_owned()).and_modify(|earlier| unite(earlier, role)).or_insert(role);
    }
    if mirrors.is_empty() {
        return Err(CniError::invalid_config("mirrors", "has no mirror")
            .with_details("name at least one, for example [{\"name\": \"mirror-1\", \"ingress\": true}]"));
    }
    Ok(mirrors)
}

fn read_role(is_producer: bool, entry: &Section<'_>) -> Result<MirrorRole, CniError> {
    let ingress = entry.flag("ingress")?.unwrap_or_default();
    let egress = entry.flag("egress")?.unwrap_or_default();
    match (is_producer, ingress || egress) {
        (false, _) => Ok(MirrorRole::Output),
        (true, true) => Ok(MirrorRole::Source { ingress, egress }),
        (true, false) => {
            Err(CniError::invalid_config(&entry.path_of("ingress"), "neither ingress nor egress is true")
                .with_details("set ingress for frames from the pod, egress for frames to the pod, or both"))
        }
    }
}

fn unite(earlier: &mut MirrorRole, later: MirrorRole) {
    if let (
        MirrorRole::Source { ingress, egress },
        MirrorRole::Source { ingress: more_in, egress: more_out },
    ) = (earlier, later)
    {
        *ingress |= more_in;
        *egress |= more_out;
    }
}

#[cfg(test)]
mod tests;
