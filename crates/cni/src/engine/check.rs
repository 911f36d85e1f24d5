//! CHECK and STATUS.

use vfleet_host::attachment::{AttachmentHost, AttachmentQuery, NamespaceQuery};
use vfleet_plan::cni::attachment::{plan_check, plan_ovs_status, plan_status};
use vfleet_plan::cni::config::read_ovs_socket;
use vfleet_plan::cni::facts::SwitchQuery;
use vfleet_plan::cni::protocol::{CniError, Command, ErrorCode};

use super::switch::read_facts;
use crate::call::{PluginCall, PluginSettings};
use crate::failure::host_failure;
use crate::ipam::Ipam;

/// Compares an attachment with what ADD left.
pub(super) fn check<H: AttachmentHost + ?Sized>(host: &H, call: &PluginCall) -> Result<(), CniError> {
    let settings = call.settings()?;
    let key = call.key(settings.device());
    let netns = call.invocation.netns.as_deref();
    let query = AttachmentQuery {
        device: key.device,
        namespace: NamespaceQuery::of_path(netns),
        key: Some(&key),
        with_addresses: true,
    };
    let journal = host.read_journal(&key).map_err(host_failure)?;
    let switch = journal.as_ref().and_then(|journal| journal.changes.switch_query(&key));
    let mut facts = read_facts(host, &query, switch.as_ref(), &key)?;
    super::allow_own_namespace(&mut facts, call);
    plan_check(journal.as_ref(), &key, call.network.previous.as_ref(), &facts)?;
    let ipam = journal.and_then(|journal| Ipam::run_for(call, &journal));
    ipam.map_or(Ok(()), |ipam| ipam.forward(host, Command::Check))
}

/// Checks whether an ADD can succeed at all.
pub(super) fn status<H: AttachmentHost + ?Sized>(host: &H, call: &PluginCall) -> Result<(), CniError> {
    let isolates_rdma = match call.settings() {
        Ok(PluginSettings::Infiniband(config)) => config.rdma_isolation,
        // A runtime may leave out the keys of a single pod.
        _ => false,
    };
    let has_exclusive_rdma = host.has_exclusive_rdma().map_err(not_available)?;
    plan_status(call.plugin, isolates_rdma, has_exclusive_rdma)?;
    check_ovs(host, call)?;
    host.check_storage().map_err(not_available)?;
    let ipam = Ipam::run_by(call);
    ipam.map_or(Ok(()), |ipam| ipam.forward(host, Command::Status))
}

/// Checks that Open vSwitch answers, if the plugin needs it. A runtime may leave out the keys of a single pod.
fn check_ovs<H: AttachmentHost + ?Sized>(host: &H, call: &PluginCall) -> Result<(), CniError> {
    if !call.plugin.needs_ovs() {
        return Ok(());
    }
    let socket = read_ovs_socket(&call.network, call.ovs_file.as_ref())?;
    let query = SwitchQuery { ovs: Some(socket.clone()), ..SwitchQuery::default() };
    let facts = host.switch_facts(&query).map_err(not_available)?;
    facts.ovs.map_or(Ok(()), |ovs| plan_ovs_status(&socket, &ovs))
}

fn not_available(error: vfleet_host::HostError) -> CniError {
    CniError { code: ErrorCode::NotAvailable, ..host_failure(error) }
}
