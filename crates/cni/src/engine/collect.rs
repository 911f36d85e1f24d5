//! GC.

use vfleet_host::attachment::{AttachmentHost, AttachmentQuery, NamespaceQuery};
use vfleet_plan::cni::attachment::plan_gc;
use vfleet_plan::cni::facts::HolderFacts;
use vfleet_plan::cni::go_cache::go_cache_name;
use vfleet_plan::cni::go_cache::parse_go_cache;
use vfleet_plan::cni::journal::AttachmentKey;
use vfleet_plan::cni::protocol::{CniError, Command};

use super::delete::{delete_attachment, delete_recorded_by_go, to_journal};
use crate::call::PluginCall;
use crate::failure::host_failure;
use crate::ipam::Ipam;

/// Releases the attachments of this network and plugin that are not valid. One that fails does not keep the others.
pub(super) fn collect<H: AttachmentHost + ?Sized>(host: &H, call: &PluginCall) -> Result<(), CniError> {
    let mut failures = Vec::new();
    for key in plan(host, call)? {
        failures.extend(collect_attachment(host, &key).err());
    }
    for name in invalid_go_caches(host, call)? {
        failures.extend(collect_go_cache(host, call, &name).err());
    }
    if let Some(ipam) = Ipam::run_by(call) {
        failures.extend(ipam.forward(host, Command::Gc).err());
    }
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else { return Ok(()) };
    let others: Vec<String> = failures.map(|failure| failure.to_string()).collect();
    if others.is_empty() {
        return Err(first);
    }
    let details = [first.details.clone()].into_iter().filter(|text| !text.is_empty()).chain(others);
    let details = details.collect::<Vec<_>>().join("; ");
    Err(first.with_details(details))
}

fn plan<H: AttachmentHost + ?Sized>(host: &H, call: &PluginCall) -> Result<Vec<AttachmentKey>, CniError> {
    let keys = host.attachment_keys().map_err(host_failure)?;
    let mut attachments = Vec::new();
    for key in keys.into_iter().filter(|key| key.plugin == call.plugin) {
        match host.read_journal(&key) {
            Ok(Some(journal)) => attachments.push((key, journal.network)),
            Ok(None) => {}
            // Its network is unknown, so it is not collected.
            Err(error) => tracing::warn!(%error, "a journal cannot be read"),
        }
    }
    let valid = &call.network.valid_attachments;
    let attachments = attachments.iter().map(|(key, network)| (key, network.as_str()));
    Ok(plan_gc(attachments, &call.network.name, call.plugin, valid))
}

fn collect_attachment<H: AttachmentHost + ?Sized>(host: &H, key: &AttachmentKey) -> Result<(), CniError> {
    let _lock = super::lock(host, key, "GC")?;
    let Some(journal) = host.read_journal(key).map_err(host_failure)? else { return Ok(()) };
    tracing::info!(
        container = key.container_id,
        interface = key.interface,
        "releasing an attachment that is not valid"
    );
    if let Some(ipam) = Ipam::of_journal(&journal) {
        ipam.forward(host, Command::Del)?;
    }
    delete_attachment(host, journal)
}

/// Lists the caches of the Go plugin that no valid attachment has. Those of other networks are among them.
fn invalid_go_caches<H: AttachmentHost + ?Sized>(
    host: &H,
    call: &PluginCall,
) -> Result<Vec<String>, CniError> {
    let network = &call.network.name;
    let name_of = |valid: &vfleet_plan::cni::config::ValidAttachment| {
        go_cache_name(call.plugin, network, &valid.container_id, &valid.interface)
    };
    let valid: Vec<String> = call.network.valid_attachments.iter().map(name_of).collect();
    let names = host.go_caches(call.plugin).map_err(host_failure)?;
    Ok(names.into_iter().filter(|name| !valid.contains(name)).collect())
}

/// Releases an attachment of the Go plugin, if it belongs to this network. The namespace is known only from the allocation of
/// the plugin `sriov`.
fn collect_go_cache<H: AttachmentHost + ?Sized>(
    host: &H,
    call: &PluginCall,
    name: &str,
) -> Result<(), CniError> {
    let Some(text) = host.read_go_cache(call.plugin, name).map_err(host_failure)? else { return Ok(()) };
    let Ok(cache) = parse_go_cache(call.plugin, &text) else { return Ok(()) };
    let (network, rest) = match &cache.network {
        Some(network) => (network.as_str(), name),
        None => match name.strip_prefix(&format!("{}-", call.network.name)) {
            Some(rest) => (call.network.name.as_str(), rest),
            None => return Ok(()),
        },
    };
    let Some((container_id, interface)) = rest.split_once('-') else { return Ok(()) };
    if network != call.network.name {
        return Ok(());
    }
    let key = AttachmentKey {
        plugin: call.plugin,
        container_id: container_id.to_owned(),
        interface: interface.to_owned(),
        device: cache.device,
    };
    let _lock = super::lock(host, &key, "GC")?;
    let query = AttachmentQuery {
        device: key.device,
        namespace: NamespaceQuery::NotGiven,
        key: Some(&key),
        with_addresses: false,
    };
    let facts = host.attachment_facts(&query).map_err(host_failure)?;
    let path = facts.holders.iter().find_map(|holder| match holder {
        HolderFacts::GoAllocation { path, .. } => Some(path.as_str()),
        HolderFacts::Journal { .. } => None,
    });
    if let Some(journal) = to_journal(host, &key, network, path, &cache)? {
        delete_recorded_by_go(host, journal)?;
    }
    host.remove_go_cache(call.plugin, name).map_err(host_failure)
}
