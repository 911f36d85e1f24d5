//! GC.

use vfleet_host::attachment::{AttachmentHost, AttachmentQuery, NamespaceQuery};
use vfleet_plan::cni::attachment::plan_gc;
use vfleet_plan::cni::facts::HolderFacts;
use vfleet_plan::cni::go_cache::{GoCache, go_cache_name, parse_go_cache, parse_go_cache_name};
use vfleet_plan::cni::journal::{AttachmentKey, Plugin};
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
/// the plugin `sriov`, which is that of the last pod that got the device: if several pods have a cache for it, nobody knows
/// which one that is, and the device is left alone.
fn collect_go_cache<H: AttachmentHost + ?Sized>(
    host: &H,
    call: &PluginCall,
    name: &str,
) -> Result<(), CniError> {
    let Some(text) = host.read_go_cache(call.plugin, name).map_err(host_failure)? else { return Ok(()) };
    let Ok(cache) = parse_go_cache(call.plugin, &text) else { return Ok(()) };
    let network = call.network.name.as_str();
    // The name of a file of `rdma` has the network, the other files have it in them, apart from those of mirrors: their ports
    // are removed by the plugin `ovs`, and mirrors that nobody uses with them.
    let is_of_network = call.plugin == Plugin::Rdma || cache.network.as_deref() == Some(network);
    let parsed = parse_go_cache_name(call.plugin, network, name).filter(|_| is_of_network);
    let Some((container_id, interface)) = parsed else { return Ok(()) };
    let key = AttachmentKey {
        plugin: call.plugin,
        container_id: container_id.to_owned(),
        interface: interface.to_owned(),
        device: cache.device,
    };
    let _lock = super::lock(host, &key, "GC")?;
    if has_other_go_cache(host, &cache, name)? {
        return host.remove_go_cache(call.plugin, name).map_err(host_failure);
    }
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
    if let Some(journal) = to_journal(host, call, &key, network, path, &cache)? {
        delete_recorded_by_go(host, journal)?;
    }
    host.remove_go_cache(call.plugin, name).map_err(host_failure)
}

/// Returns whether another pod of the same Go plugin has a cache for the device.
fn has_other_go_cache<H: AttachmentHost + ?Sized>(
    host: &H,
    cache: &GoCache,
    name: &str,
) -> Result<bool, CniError> {
    if cache.device.is_none() {
        return Ok(false);
    }
    for other in host.go_caches(cache.plugin).map_err(host_failure)? {
        let text = if other == name {
            None
        } else {
            host.read_go_cache(cache.plugin, &other).map_err(host_failure)?
        };
        let parsed = text.and_then(|text| parse_go_cache(cache.plugin, &text).ok());
        if parsed.is_some_and(|other| other.device == cache.device) {
            return Ok(true);
        }
    }
    Ok(false)
}
