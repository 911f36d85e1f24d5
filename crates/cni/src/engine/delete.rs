//! DEL.

use vfleet_host::attachment::{AttachmentHost, AttachmentQuery, NamespaceQuery};
use vfleet_host::format_error_chain;
use vfleet_plan::cni::config::read_ovs_socket;
use vfleet_plan::cni::facts::{Namespace, NamespaceFacts, NamespaceId};
use vfleet_plan::cni::go_cache::go_cache_name;
use vfleet_plan::cni::go_cache::{GoAttachment, GoCache, parse_go_cache};
use vfleet_plan::cni::journal::{AttachmentKey, Journal, Phase};
use vfleet_plan::cni::protocol::{CniError, Command, ErrorCode};

use super::release::{ReleaseOutcome, read_facts, release_device};
use crate::call::PluginCall;
use crate::failure::host_failure;
use crate::ipam::Ipam;

/// Detaches a pod. Succeeds if nothing is attached.
pub(super) fn delete<H: AttachmentHost + ?Sized>(host: &H, call: &PluginCall) -> Result<(), CniError> {
    let delete_addresses = |ipam: Option<Ipam>| ipam.map_or(Ok(()), |ipam| ipam.forward(host, Command::Del));
    let keys = host.attachment_keys().map_err(host_failure)?;
    let own: Vec<AttachmentKey> = keys.into_iter().filter(|key| call.is_own(key)).collect();
    if own.is_empty() {
        return match find_go_cache(host, call)? {
            Some(cache) => delete_go_attachment(host, call, &cache, delete_addresses),
            None => delete_addresses(Ipam::run_by(call)),
        };
    }
    for key in own {
        let _lock = super::lock(host, &key, "DEL")?;
        // Another process may have released it while this one waited for the lock.
        if let Some(journal) = host.read_journal(&key).map_err(host_failure)? {
            delete_addresses(Ipam::run_for(call, &journal))?;
            delete_attachment(host, journal)?;
        }
    }
    remove_go_cache(host, call)
}

/// Releases an attachment, and removes its journal.
pub(super) fn delete_attachment<H: AttachmentHost + ?Sized>(
    host: &H,
    mut journal: Journal,
) -> Result<(), CniError> {
    if journal.phase == Phase::Returned {
        return host.remove_journal(&journal.key).map_err(host_failure);
    }
    let is_retry = journal.phase == Phase::Releasing;
    if !is_retry {
        journal.phase = Phase::Releasing;
        if let Err(error) = host.write_journal(&journal) {
            // A full disk does not keep a pod: files can still be removed. If this release does not end, the journal in its
            // earlier phase is good enough for the next one.
            let error = format_error_chain(&error);
            tracing::warn!(
                error,
                "the beginning of the release is not recorded: free space below /var/lib/cni"
            );
        }
    }
    match release_device(host, &journal) {
        Ok(ReleaseOutcome::Released) => host.remove_journal(&journal.key).map_err(host_failure),
        Ok(ReleaseOutcome::Waiting) => {
            tracing::warn!(
                "the kernel has not returned the device yet: the next ADD or the agent finishes the release"
            );
            Ok(())
        }
        // A pod must not stay for ever because of a setting that cannot be restored. The journal stays: nobody gets the
        // device before it is restored.
        Err(error) if is_retry && is_out_of_pod(host, &journal) => {
            tracing::warn!(%error, "not restored completely: the next ADD or the agent tries again");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Releases an attachment of which only a Go plugin has a record. It gets a journal first, because the release is finished
/// from there if it is interrupted. Without space for one, the record of the Go plugin must stay until the end.
pub(super) fn delete_recorded_by_go<H: AttachmentHost + ?Sized>(
    host: &H,
    journal: Journal,
) -> Result<(), CniError> {
    let Err(error) = host.write_journal(&journal) else { return delete_attachment(host, journal) };
    match release_device(host, &journal)? {
        ReleaseOutcome::Released => Ok(()),
        ReleaseOutcome::Waiting => Err(host_failure(error)),
    }
}

/// Returns whether the pod does not have the interface of the device any more.
fn is_out_of_pod<H: AttachmentHost + ?Sized>(host: &H, journal: &Journal) -> bool {
    read_facts(host, journal).is_ok_and(|facts| match &facts.namespace {
        NamespaceFacts::NotGiven | NamespaceFacts::Gone => true,
        NamespaceFacts::Unknown { .. } => false,
        NamespaceFacts::Present { links, .. } => {
            facts.device.as_ref().is_some_and(|device| device.link.is_some())
                || !links.iter().any(|link| link.is_called(&journal.key.interface))
        }
    })
}

/// Cache of the Go plugin for the attachment of a call.
pub(super) struct FoundGoCache {
    pub(super) name: String,
    pub(super) cache: GoCache,
}

/// Reads the cache of the Go plugin; `None` if it has none.
fn find_go_cache<H: AttachmentHost + ?Sized>(
    host: &H,
    call: &PluginCall,
) -> Result<Option<FoundGoCache>, CniError> {
    let name = go_cache_name_of(call);
    let Some(text) = host.read_go_cache(call.plugin, &name).map_err(host_failure)? else { return Ok(None) };
    match parse_go_cache(call.plugin, &text) {
        Ok(cache) => Ok(Some(FoundGoCache { name, cache })),
        // The Go plugin does the same. Without the state before there is nothing to restore.
        Err(error) => {
            tracing::warn!(%error, name, "the cache of the Go plugin cannot be used: its attachment is not restored");
            host.remove_go_cache(call.plugin, &name).map_err(host_failure)?;
            Ok(None)
        }
    }
}

fn go_cache_name_of(call: &PluginCall) -> String {
    let invocation = &call.invocation;
    go_cache_name(call.plugin, &call.network.name, &invocation.container_id, &invocation.interface)
}

fn remove_go_cache<H: AttachmentHost + ?Sized>(host: &H, call: &PluginCall) -> Result<(), CniError> {
    host.remove_go_cache(call.plugin, &go_cache_name_of(call)).map_err(host_failure)
}

/// Releases an attachment of the Go plugin.
fn delete_go_attachment<H: AttachmentHost + ?Sized>(
    host: &H,
    call: &PluginCall,
    found: &FoundGoCache,
    delete_addresses: impl Fn(Option<Ipam>) -> Result<(), CniError>,
) -> Result<(), CniError> {
    let key = call.key(found.cache.device);
    let _lock = super::lock(host, &key, "DEL")?;
    let netns = call.invocation.netns.as_deref();
    let journal = to_journal(host, call, &key, &call.network.name, netns, &found.cache)?;
    delete_addresses(Ipam::run_by(call))?;
    if let Some(journal) = journal {
        delete_recorded_by_go(host, journal)?;
    }
    host.remove_go_cache(call.plugin, &found.name).map_err(host_failure)
}

/// Returns the journal of an attachment of the Go plugin; `None` if its device is no VF any more, so that there is nothing to
/// restore.
pub(super) fn to_journal<H: AttachmentHost + ?Sized>(
    host: &H,
    call: &PluginCall,
    key: &AttachmentKey,
    network: &str,
    netns: Option<&str>,
    cache: &GoCache,
) -> Result<Option<Journal>, CniError> {
    let namespace = NamespaceQuery::of_path(netns);
    let query = AttachmentQuery { device: key.device, namespace, key: Some(key), with_addresses: false };
    let facts = host.attachment_facts(&query).map_err(host_failure)?;
    let namespace = match &facts.namespace {
        NamespaceFacts::Present { namespace, .. } => namespace.clone(),
        // No namespace has this identity.
        _ => Namespace { path: netns.unwrap_or_default().to_owned(), id: NamespaceId::NONE },
    };
    let attachment = GoAttachment {
        container_id: &key.container_id,
        interface: &key.interface,
        network,
        namespace,
        boot_id: "",
        vf: facts.device.as_ref().and_then(|device| Some(device.pf.as_ref()?.vf)),
        socket: read_ovs_socket(&call.network, call.ovs_file.as_ref()).unwrap_or_default(),
        config: None,
        cni_path: "",
    };
    match cache.to_journal(&attachment) {
        Ok(journal) => Ok(Some(journal)),
        Err(error) if facts.device.is_none_or(|device| device.exists) => {
            Err(CniError::new(ErrorCode::DeviceFailed, error.to_string()))
        }
        Err(_) => Ok(None),
    }
}
