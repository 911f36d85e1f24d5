//! Facts of the switch side of an attachment, and configuration that the networks of Open vSwitch share.

use vfleet_host::attachment::{AttachmentHost, AttachmentQuery};
use vfleet_plan::cni::config::{OvsFlatFile, flat_file_paths};
use vfleet_plan::cni::facts::{AttachmentFacts, FileFacts, PeerFacts, SwitchFacts, SwitchQuery};
use vfleet_plan::cni::go_cache::{parse_go_cache, parse_go_cache_name};
use vfleet_plan::cni::journal::{AttachmentKey, Plugin};
use vfleet_plan::cni::protocol::{CniError, Command};

use crate::call::PluginCall;
use crate::failure::host_failure;

/// Returns a call with the keys of the file that all networks of Open vSwitch share. Nothing in the file can prevent a DEL.
pub(super) fn with_shared_keys<H: AttachmentHost + ?Sized>(
    host: &H,
    call: &PluginCall,
) -> Result<PluginCall, CniError> {
    if !call.plugin.needs_ovs() {
        return Ok(call.clone());
    }
    let read = || {
        let paths = flat_file_paths(&call.network)?;
        let mut files = paths.iter().map(|path| host.read_file(path));
        let found = files.find(|file| !matches!(file, FileFacts::Missing { .. }));
        found.map_or(Ok(None), |file| OvsFlatFile::parse(&file))
    };
    let is_strict = matches!(call.invocation.command, Command::Add | Command::Check);
    match read() {
        Ok(Some(file)) => Ok(call.clone().with_ovs_file(file)),
        Ok(None) => Ok(call.clone()),
        Err(error) if is_strict => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the file with shared keys is ignored");
            Ok(call.clone())
        }
    }
}

/// Reads the facts of an attachment with those of its switch side.
pub(super) fn read_facts<H: AttachmentHost + ?Sized>(
    host: &H,
    query: &AttachmentQuery<'_>,
    switch: Option<&SwitchQuery>,
    own: &AttachmentKey,
) -> Result<AttachmentFacts, CniError> {
    let mut facts = host.attachment_facts(query).map_err(host_failure)?;
    facts.switch = switch.map(|switch| read_switch(host, switch, own, &facts.boot_id)).transpose()?;
    Ok(facts)
}

/// Reads the facts of the switch side.
pub(super) fn read_switch<H: AttachmentHost + ?Sized>(
    host: &H,
    query: &SwitchQuery,
    own: &AttachmentKey,
    boot_id: &str,
) -> Result<SwitchFacts, CniError> {
    let mut facts = host.switch_facts(query).map_err(host_failure)?;
    // Reading them takes long on a node with many pods.
    let is_needed = |plugin: &Plugin| *plugin != Plugin::Ovs || facts.may_have_stale_ports();
    if let Some(plugin) = query.peers_of.filter(is_needed) {
        facts.peers = read_peers(host, plugin, Some(own), boot_id)?;
    }
    Ok(facts)
}

/// Reads the other attachments of a plugin since the machine was booted. One that cannot be read is an error: it may need
/// what would be removed.
pub(super) fn read_peers<H: AttachmentHost + ?Sized>(
    host: &H,
    plugin: Plugin,
    own: Option<&AttachmentKey>,
    boot_id: &str,
) -> Result<Vec<PeerFacts>, CniError> {
    let mut peers = Vec::new();
    for key in host.attachment_keys().map_err(host_failure)? {
        if key.plugin != plugin || Some(&key) == own {
            continue;
        }
        let journal = host.read_journal(&key).map_err(host_failure)?;
        let journal = journal.filter(|journal| !journal.is_of_earlier_boot(boot_id));
        peers.extend(journal.as_ref().map(PeerFacts::of_journal));
    }
    if plugin == Plugin::AcceleratedBridge {
        peers.extend(read_go_peers(host, plugin, own)?);
    }
    Ok(peers)
}

/// Reads the other attachments of a Go plugin. A file that was cut off is one of an attachment that failed.
fn read_go_peers<H: AttachmentHost + ?Sized>(
    host: &H,
    plugin: Plugin,
    own: Option<&AttachmentKey>,
) -> Result<Vec<PeerFacts>, CniError> {
    let mut peers = Vec::new();
    for name in host.go_caches(plugin).map_err(host_failure)? {
        let Some(text) = host.read_go_cache(plugin, &name).map_err(host_failure)? else { continue };
        let Ok(cache) = parse_go_cache(plugin, &text) else { continue };
        let network = cache.network.clone().unwrap_or_default();
        let Some((container_id, interface)) = parse_go_cache_name(plugin, &network, &name) else { continue };
        let is_own = own.is_some_and(|own| own.container_id == container_id && own.interface == interface);
        if !is_own {
            peers.push(cache.to_peer(container_id, interface));
        }
    }
    Ok(peers)
}
