//! ADD.

use serde_json::Value;
use vfleet_host::attachment::{AttachmentHost, AttachmentQuery, NamespaceQuery};
use vfleet_plan::cni::attachment::{AddContext, AddPlan, describe_holder, plan_addressing};
use vfleet_plan::cni::facts::{AttachmentFacts, HolderFacts, HolderNamespace};
use vfleet_plan::cni::journal::{AttachmentKey, Journal, Phase, Plugin};
use vfleet_plan::cni::protocol::result::CniResult;
use vfleet_plan::cni::protocol::{CniError, CniVersion, Command, ErrorCode};
use vfleet_plan::cni::step::CniStep;

use super::release::{ReleaseOutcome, mark_returned, repair};
use super::switch::read_switch;
use crate::call::PluginCall;
use crate::failure::host_failure;
use crate::ipam::Ipam;

/// Attaches a pod.
pub(super) fn add<H: AttachmentHost + ?Sized>(host: &H, call: &PluginCall) -> Result<Value, CniError> {
    let settings = call.settings()?;
    let key = call.key(settings.device());
    let _lock = super::lock(host, &key, "ADD")?;
    let mut facts = read_after_repairs(host, call, &key)?;
    // What an uplink needs is decided and done at once. The lock is not held while the IPAM plugin runs.
    let uplinks = if settings.shares_uplink() { Some(super::lock_uplinks(host, &key, "ADD")?) } else { None };
    let query = settings.switch_query();
    facts.switch = query.map(|query| read_switch(host, &query, &key, &facts.boot_id)).transpose()?;
    let context = AddContext {
        key,
        network: &call.network.name,
        boot_id: &facts.boot_id,
        cni_path: &call.invocation.path_text,
        config: &call.recorded_config(),
        pod: call.invocation.args.pod_identity(),
    };
    let plan = settings.plan_add(context, &facts)?;
    let ipam = Ipam::run_for(call, &plan.journal);
    if let Some(ipam) = &ipam {
        ipam.check_installed(host)?;
    }
    host.write_journal(&plan.journal).map_err(host_failure)?;
    let mut journal = plan.journal.clone();
    let mut is_ipam_started = false;
    let steps = execute_steps(host, &plan);
    drop(uplinks);
    let attached = steps.and_then(|()| attach(host, call, &plan, ipam.as_ref(), &mut is_ipam_started));
    let result = attached.and_then(|result| {
        journal.phase = Phase::Attached;
        journal.result = Some(result.to_json(CniVersion::LATEST));
        host.write_journal(&journal).map_err(host_failure)?;
        Ok(result)
    });
    match result {
        Ok(result) => {
            finish(host, &plan);
            announce(host, &journal, &result);
            Ok(result.to_json(call.network.version))
        }
        Err(error) => Err(undo(host, &journal, ipam.as_ref().filter(|_| is_ipam_started), error)),
    }
}

/// Reads the facts of an ADD. Attachments of the device that were interrupted, or whose namespace is gone, are released
/// first: a VF is never attached half released.
fn read_after_repairs<H: AttachmentHost + ?Sized>(
    host: &H,
    call: &PluginCall,
    key: &AttachmentKey,
) -> Result<AttachmentFacts, CniError> {
    let netns = call.invocation.netns.as_deref();
    let query = AttachmentQuery {
        device: key.device,
        namespace: NamespaceQuery::of_path(netns),
        key: None,
        with_addresses: false,
    };
    let mut facts = host.attachment_facts(&query).map_err(host_failure)?;
    facts.holders.extend(find_earlier(host, key)?);
    let stale: Vec<Journal> =
        facts.holders.iter().filter_map(|holder| find_stale(holder, &facts)).cloned().collect();
    for journal in &stale {
        match repair(host, journal)? {
            ReleaseOutcome::Released => {}
            ReleaseOutcome::Waiting => {
                let message = format!("the kernel has not returned {} yet", key.subject());
                return Err(CniError::new(ErrorCode::TryAgainLater, message)
                    .with_details("the namespace of the pod that had it is being deleted"));
            }
        }
    }
    if !stale.is_empty() {
        facts = host.attachment_facts(&query).map_err(host_failure)?;
        facts.holders.extend(find_earlier(host, key)?);
    }
    super::allow_own_namespace(&mut facts, call);
    super::forget_returned(&mut facts);
    let own = facts
        .holders
        .iter()
        .find(|holder| matches!(holder, HolderFacts::Journal { journal, .. } if journal.key == *key));
    match own {
        None => Ok(facts),
        Some(own) => Err(CniError::new(
            ErrorCode::TryAgainLater,
            format!("{} is attached already: {}", key.subject(), describe_holder(own)),
        )
        .with_details("delete that attachment first")),
    }
}

/// Returns an earlier attempt of an attachment without a device, which no other one can hold.
fn find_earlier<H: AttachmentHost + ?Sized>(
    host: &H,
    key: &AttachmentKey,
) -> Result<Option<HolderFacts>, CniError> {
    if key.device.is_some() {
        return Ok(None);
    }
    let Some(journal) = host.read_journal(key).map_err(host_failure)? else { return Ok(None) };
    let namespace = host.namespace_state(&journal).map_err(host_failure)?;
    Ok(Some(HolderFacts::Journal { journal, namespace }))
}

/// Returns the journal of an attachment that nobody works on and that no pod has: its process was killed, or its namespace
/// is gone. The lock of the device is held, so no other process is in the middle of an operation.
fn find_stale<'a>(holder: &'a HolderFacts, facts: &AttachmentFacts) -> Option<&'a Journal> {
    let HolderFacts::Journal { journal, namespace } = holder else { return None };
    let is_abandoned = vfleet_plan::cni::attachment::is_abandoned(journal, *namespace, &facts.boot_id);
    // The kernel gives the identity of a deleted namespace to a later one, and a runtime may leave a file that is none, but a
    // pod whose device is on the host has lost it.
    let is_lost = is_abandoned || is_on_host(journal, facts);
    let is_stale = match journal.phase {
        // Unknown is not gone.
        Phase::Attaching | Phase::Releasing => is_lost || *namespace != HolderNamespace::Unknown,
        Phase::Attached => is_lost,
        Phase::Returned => false,
    };
    is_stale.then_some(journal)
}

/// Returns whether the interface that an attachment moved to its pod is in the namespace of the host.
fn is_on_host(journal: &Journal, facts: &AttachmentFacts) -> bool {
    let is_on_host = facts.device.as_ref().is_some_and(|device| device.link.is_some());
    is_on_host && journal.changes.moves_interface()
}

/// Executes the steps of a plan up to the addresses.
fn execute_steps<H: AttachmentHost + ?Sized>(host: &H, plan: &AddPlan) -> Result<(), CniError> {
    plan.steps.iter().try_for_each(|step| execute(host, step))
}

/// Runs the IPAM plugin, and configures its addresses.
fn attach<H: AttachmentHost + ?Sized>(
    host: &H,
    call: &PluginCall,
    plan: &AddPlan,
    ipam: Option<&Ipam>,
    is_ipam_started: &mut bool,
) -> Result<CniResult, CniError> {
    let mut result = if plan.interfaces.is_empty() {
        call.network.previous.clone().unwrap_or_default()
    } else {
        CniResult { interfaces: plan.interfaces.clone(), ..CniResult::default() }
    };
    if let Some(ipam) = ipam {
        *is_ipam_started = true;
        let assigned = ipam.add(host)?;
        (result.ips, result.routes, result.dns) = (assigned.ips, assigned.routes, assigned.dns);
        for step in plan_addressing(plan, &mut result)? {
            execute(host, &step)?;
        }
    }
    let AttachmentKey { plugin, device, .. } = plan.journal.key;
    if let Some(device) = device.filter(|_| plugin == Plugin::Sriov) {
        let path = plan.journal.namespace.path.clone();
        execute(host, &CniStep::WriteGoAllocation { device, path })?;
    }
    Ok(result)
}

/// Executes the steps without which the attachment is complete, too.
fn finish<H: AttachmentHost + ?Sized>(host: &H, plan: &AddPlan) {
    for note in &plan.notes {
        tracing::warn!(note, "attached");
    }
    for step in &plan.last {
        if let Err(error) = execute(host, step) {
            tracing::warn!(%error, %step, "not executed");
        }
    }
}

fn execute<H: AttachmentHost + ?Sized>(host: &H, step: &CniStep) -> Result<(), CniError> {
    tracing::debug!(%step, "executing");
    host.execute_cni(step).map_err(host_failure)
}

/// Announces the addresses of the interface. The attachment is complete without it.
fn announce<H: AttachmentHost + ?Sized>(host: &H, journal: &Journal, result: &CniResult) {
    if !journal.changes.has_ethernet_interface() || result.ips.is_empty() {
        return;
    }
    let ips = result.ips.iter().map(|ip| ip.address.address).collect();
    let step =
        CniStep::Announce { namespace: journal.namespace.clone(), name: journal.key.interface.clone(), ips };
    if let Err(error) = host.execute_cni(&step) {
        tracing::warn!(%error, "the addresses were not announced");
    }
}

/// Undoes an ADD that failed. Returns its error, with everything that could not be undone in the details.
fn undo<H: AttachmentHost + ?Sized>(
    host: &H,
    journal: &Journal,
    ipam: Option<&Ipam>,
    error: CniError,
) -> CniError {
    let mut faults = Vec::new();
    match super::release::release_device(host, journal) {
        Ok(ReleaseOutcome::Released) => {}
        Ok(ReleaseOutcome::Waiting) => faults.push("the device is not back yet".to_owned()),
        Err(fault) => faults.push(fault.to_string()),
    }
    let is_released = faults.is_empty();
    if let Some(Err(fault)) = ipam.map(|ipam| ipam.forward(host, Command::Del)) {
        faults.push(fault.to_string());
        if let Some(Err(fault)) = is_released.then(|| mark_returned(host, journal)) {
            faults.push(fault.to_string());
        }
    }
    if faults.is_empty()
        && let Err(fault) = host.remove_journal(&journal.key)
    {
        faults.push(fault.to_string());
    }
    if faults.is_empty() {
        return error;
    }
    let undone = format!("not undone completely, the next DEL or ADD does it: {}", faults.join("; "));
    let details = if error.details.is_empty() { undone } else { format!("{}; {undone}", error.details) };
    error.with_details(details)
}
