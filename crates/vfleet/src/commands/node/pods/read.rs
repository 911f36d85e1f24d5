//! Attachments from journals, caches and allocations of the Go plugins, and network namespaces.

use std::time::Duration;

use anyhow::Context;
use vfleet_api::{PciAddress, VfRef};
use vfleet_host::attachment::{AttachmentQuery, DeviceLockError, LockSubject, NamespaceQuery};
use vfleet_host::{HostError, format_error_chain};
use vfleet_plan::cni::facts::{
    AttachmentFacts, HolderFacts, HolderNamespace, Namespace, NamespaceId, OvsSocket, ParentPf,
};
use vfleet_plan::cni::go_cache::{CONSUMER_SUFFIX, GoAttachment, PRODUCER_SUFFIX, parse_go_cache};
use vfleet_plan::cni::journal::{AttachmentKey, DeviceChanges, Journal, Plugin};
use vfleet_plan::pods::AttachmentState;
use vfleet_plan::{Fact, VfAttachment};

use super::super::machine::NodeMachine;
use super::{AttachmentLine, HOLDER, Setting};

/// Returns all attachments: of vfleet, and then of the Go plugins.
pub(super) fn attachments(machine: &dyn NodeMachine) -> anyhow::Result<Vec<AttachmentLine>> {
    let keys = machine.attachment_keys().context("cannot list the attachments of pods")?;
    let mut lines: Vec<AttachmentLine> = keys.iter().filter_map(|key| of_journal(machine, key)).collect();
    for plugin in Plugin::ALL {
        let names = machine.go_caches(plugin).context("cannot list the attachments of the Go plugins")?;
        let is_ours =
            |name: &String| keys.iter().any(|key| key.plugin == plugin && name.ends_with(&suffix(key)));
        let of_go = names.iter().filter(|name| !is_ours(name));
        lines.extend(of_go.filter_map(|name| of_go_cache(machine, plugin, name)));
    }
    let listed: Vec<PciAddress> = lines.iter().filter_map(|line| line.device).collect();
    lines.extend(of_go_allocations(machine, &listed)?);
    Ok(lines)
}

/// Returns the end of the name of the Go plugin's cache for the same attachment.
fn suffix(key: &AttachmentKey) -> String {
    format!("{}-{}", key.container_id, key.interface)
}

/// Returns the state of an attachment; `None` if it is released meanwhile, or cannot be read.
pub(super) fn state(machine: &dyn NodeMachine, key: &AttachmentKey) -> Option<AttachmentState> {
    Some(journal_and_state(machine, key)?.1)
}

/// Returns an attachment with its state; `None` if it is released meanwhile, or cannot be read.
pub(super) fn journal_and_state(
    machine: &dyn NodeMachine,
    key: &AttachmentKey,
) -> Option<(Journal, AttachmentState)> {
    let journal = machine.read_journal(key).ok()??;
    let facts = read_facts(machine, &journal).ok()?;
    let state = AttachmentState::of(&journal, &facts);
    Some((journal, state))
}

fn read_facts(machine: &dyn NodeMachine, journal: &Journal) -> Result<AttachmentFacts, HostError> {
    machine.attachment_facts(&AttachmentQuery {
        device: journal.key.device,
        namespace: NamespaceQuery::Recorded { namespace: &journal.namespace, boot_id: &journal.boot_id },
        key: Some(&journal.key),
        with_addresses: false,
    })
}

fn of_journal(machine: &dyn NodeMachine, key: &AttachmentKey) -> Option<AttachmentLine> {
    let unreadable = |error: &HostError| AttachmentState::Unreadable { error: format_error_chain(error) };
    let journal = match machine.read_journal(key) {
        Ok(journal) => journal?,
        Err(error) => return Some(line_of_key(key, unreadable(&error))),
    };
    let (journal, facts, state) = match read_facts(machine, &journal) {
        Ok(facts) => {
            let state = AttachmentState::of(&journal, &facts);
            unless_in_progress(machine, journal, facts, state)?
        }
        Err(error) => {
            let line = line_of_key(key, unreadable(&error));
            return Some(with_journal(line, &journal));
        }
    };
    let mut line = with_journal(line_of_key(key, state), &journal);
    (line.pf, line.vf_index) = vf_of(&facts, journal.changes.vf());
    Some(line)
}

/// Returns what is left behind only if no process works on it at the moment; `None` if such a process has just released it.
fn unless_in_progress(
    machine: &dyn NodeMachine,
    journal: Journal,
    facts: AttachmentFacts,
    state: AttachmentState,
) -> Option<(Journal, AttachmentFacts, AttachmentState)> {
    if !state.is_repairable() || state == AttachmentState::AddressesLeft {
        return Some((journal, facts, state));
    }
    match machine.lock(&LockSubject::of(&journal.key), HOLDER, Duration::ZERO) {
        Ok(_lock) => {
            let (journal, state) = journal_and_state(machine, &journal.key)?;
            Some((journal, facts, state))
        }
        Err(DeviceLockError::Busy { holder, .. }) => {
            Some((journal, facts, AttachmentState::InProgress { holder }))
        }
        // A user who may not write to the machine.
        Err(DeviceLockError::Failed { .. }) => Some((journal, facts, state)),
    }
}

/// Returns the attachment of a Go plugin; `None` if it is released meanwhile.
fn of_go_cache(machine: &dyn NodeMachine, plugin: Plugin, name: &str) -> Option<AttachmentLine> {
    let (container_id, interface) = parse_cache_name(plugin, name)?;
    let line = |state: AttachmentState| AttachmentLine {
        container_id: Some(container_id.to_owned()),
        interface: Some(interface.to_owned()),
        ..line_of_plugin(plugin, state)
    };
    let unreadable = |error: String| line(AttachmentState::Unreadable { error });
    let text = match machine.read_go_cache(plugin, name) {
        Ok(text) => text?,
        Err(error) => return Some(unreadable(format_error_chain(&error))),
    };
    let cache = match parse_go_cache(plugin, &text) {
        Ok(cache) => cache,
        Err(error) => {
            return Some(unreadable(format!("cache {name} of the Go plugin: {error}; delete its pod")));
        }
    };
    let facts = match go_facts(machine, cache.device) {
        Ok(facts) => facts,
        Err(error) => {
            let line = unreadable(format_error_chain(&error));
            return Some(AttachmentLine { device: cache.device, ..line });
        }
    };
    let (path, namespace) = go_holder(&facts).unwrap_or(("", HolderNamespace::Unknown));
    let attachment = GoAttachment {
        container_id,
        interface,
        network: "",
        namespace: Namespace { path: path.to_owned(), id: NamespaceId::NONE },
        boot_id: "",
        vf: parent_of(&facts).map(|pf| pf.vf),
        socket: OvsSocket::default(),
        config: None,
        cni_path: "",
    };
    let journal = cache.to_journal(&attachment).ok();
    let mut line = line(AttachmentState::of_go_plugin(namespace));
    if let Some(journal) = &journal {
        line = with_journal(line, journal);
    }
    line.device = cache.device;
    (line.pf, line.vf_index) = vf_of(&facts, None);
    Some(line)
}

/// Returns the devices of which the Go plugin has only an allocation: it was killed before or after it had a cache.
fn of_go_allocations(
    machine: &dyn NodeMachine,
    listed: &[PciAddress],
) -> anyhow::Result<Vec<AttachmentLine>> {
    let facts = machine.facts().context("cannot read the machine")?;
    if let Some(unread) = facts.unread_attachments {
        anyhow::bail!("{unread}");
    }
    let vfs = facts.pfs.iter().flat_map(|pf| &pf.vfs);
    let allocated = vfs.filter(|vf| vf.attachment == Fact::Value(VfAttachment::GoAllocation));
    let devices = allocated.map(|vf| vf.address).filter(|device| !listed.contains(device));
    Ok(devices.filter_map(|device| of_go_allocation(machine, device)).collect())
}

fn of_go_allocation(machine: &dyn NodeMachine, device: PciAddress) -> Option<AttachmentLine> {
    let facts = match go_facts(machine, Some(device)) {
        Ok(facts) => facts,
        Err(error) => {
            let state = AttachmentState::Unreadable { error: format_error_chain(&error) };
            return Some(AttachmentLine { device: Some(device), ..line_of_plugin(Plugin::Sriov, state) });
        }
    };
    let (path, namespace) = go_holder(&facts)?;
    let (pf, vf_index) = vf_of(&facts, None);
    let line = line_of_plugin(Plugin::Sriov, AttachmentState::of_go_plugin(namespace));
    Some(AttachmentLine { device: Some(device), namespace: Some(path.to_owned()), pf, vf_index, ..line })
}

fn go_facts(
    machine: &dyn NodeMachine,
    device: Option<PciAddress>,
) -> Result<AttachmentFacts, HostError> {
    let namespace = NamespaceQuery::NotGiven;
    machine.attachment_facts(&AttachmentQuery { device, namespace, key: None, with_addresses: false })
}

fn go_holder(facts: &AttachmentFacts) -> Option<(&str, HolderNamespace)> {
    facts.holders.iter().find_map(|holder| match holder {
        HolderFacts::GoAllocation { path, namespace } => Some((path.as_str(), *namespace)),
        HolderFacts::Journal { .. } => None,
    })
}

/// Returns container and interface from the name of a cache of a Go plugin. Some names begin with the network.
fn parse_cache_name(plugin: Plugin, name: &str) -> Option<(&str, &str)> {
    let has_mirror_suffix = |name: &str| name.ends_with(PRODUCER_SUFFIX) || name.ends_with(CONSUMER_SUFFIX);
    match plugin {
        Plugin::Sriov | Plugin::Infiniband => name.split_once('-'),
        // Mirrors are in the same directory.
        Plugin::Ovs => Some(name).filter(|name| !has_mirror_suffix(name))?.split_once('-'),
        Plugin::OvsMirrorProducer => name.strip_suffix(PRODUCER_SUFFIX)?.split_once('-'),
        Plugin::OvsMirrorConsumer => name.strip_suffix(CONSUMER_SUFFIX)?.split_once('-'),
        Plugin::Rdma | Plugin::AcceleratedBridge => {
            let (rest, interface) = name.rsplit_once('-')?;
            Some((rest.rsplit_once('-')?.1, interface))
        }
    }
}

/// Returns PF and index of a VF: of the device now, or as it was at ADD.
fn vf_of(facts: &AttachmentFacts, recorded: Option<VfRef>) -> (Option<String>, Option<u16>) {
    match (parent_of(facts), recorded) {
        (Some(pf), _) => (Some(pf.name.clone()), Some(pf.vf.index)),
        (None, Some(vf)) => (Some(vf.pf.to_string()), Some(vf.index)),
        (None, None) => (None, None),
    }
}

fn parent_of(facts: &AttachmentFacts) -> Option<&ParentPf> {
    facts.device.as_ref()?.pf.as_ref()
}

fn settings_of(changes: &DeviceChanges) -> Vec<Setting> {
    changes.fields().into_iter().map(|(key, value)| Setting { key, value }).collect()
}

fn with_journal(line: AttachmentLine, journal: &Journal) -> AttachmentLine {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    AttachmentLine {
        pod: journal.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
        network: text(&journal.network),
        namespace: text(&journal.namespace.path),
        settings: settings_of(&journal.changes),
        ..line
    }
}

fn line_of_key(key: &AttachmentKey, state: AttachmentState) -> AttachmentLine {
    AttachmentLine {
        container_id: Some(key.container_id.clone()),
        interface: Some(key.interface.clone()),
        device: key.device,
        ..line_of_plugin(key.plugin, state)
    }
}

/// Returns a line with nothing but plugin and state.
fn line_of_plugin(plugin: Plugin, state: AttachmentState) -> AttachmentLine {
    AttachmentLine {
        pod: None,
        container_id: None,
        interface: None,
        device: None,
        pf: None,
        vf_index: None,
        plugin: plugin.name(),
        network: None,
        namespace: None,
        settings: Vec::new(),
        message: state.to_string(),
        state,
    }
}
