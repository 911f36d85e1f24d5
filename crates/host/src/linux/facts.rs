//! Facts of the machine. All cards are read in parallel and independently: a card that hangs or returns invalid values
//! does not affect the others.

use std::sync::Arc;
use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_plan::{HostFacts, KernelFacts, UnreadableCard};

use super::network::Network;
use super::pci::{self, ListedCard};
use super::stable_read::read_stable;
use super::{HostSettings, attached, bridge, card, files, host_use, ovs, rdma, records, system};
use crate::supervisor::{Supervisor, TaskHandle};
use crate::{HostError, format_error_chain};

/// Reads the facts of a machine. No single read takes longer than `limit`.
pub(super) fn read(
    settings: &Arc<HostSettings>,
    supervisor: &Supervisor,
    limit: Duration,
) -> Result<HostFacts, HostError> {
    let common_settings = Arc::clone(settings);
    let common = supervisor.start_read(None, limit, move || CommonFacts::read(&common_settings))?.wait()?;
    let mut facts = common.facts;
    // Has its own deadlines, which are longer than the one of a read.
    facts.bridges.ovs = ovs::read(settings, &facts);
    let (network_settings, ovs) = (Arc::clone(settings), facts.bridges.ovs.clone());
    let read_network = move || {
        let HostSettings { root, node_addresses, .. } = &*network_settings;
        read_stable(|| Network::read(root, node_addresses, ovs.database().filter(|ovs| !ovs.is_behind)))
    };
    let network = Arc::new(supervisor.start_read(None, limit, read_network)?.wait()?);
    // All reads are started before the first one is awaited.
    let start = |pf, kind| {
        let (settings, network) = (Arc::clone(settings), Arc::clone(&network));
        supervisor.start_read(Some(pf), limit, move || card::read(&settings.root, pf, kind, &network))
    };
    let reads: Vec<(PciAddress, Result<TaskHandle<_>, HostError>)> =
        common.cards.into_iter().map(|(pf, kind)| (pf, kind.and_then(|kind| start(pf, kind)))).collect();
    facts.bridges.linux = bridge::list(&network.links(), |name| bridge::accepts_ra(&settings.root, name))?;
    for (pf, read) in reads {
        match read.and_then(TaskHandle::wait) {
            Ok(Some((pf, failed_queries))) => {
                facts.pfs.push(pf);
                facts.failed_queries.extend(failed_queries);
            }
            Ok(None) => {}
            Err(error) => facts.unreadable.push(unreadable_card(pf, &error)),
        }
    }
    remove_unreadable_pfs(&mut facts);
    // After the cards: a CNI plugin writes its file before it changes a VF.
    let (root, boot_id) = (settings.root.clone(), facts.kernel.boot_id.clone());
    let attached = supervisor.start_read(None, limit, move || attached::read(&root, &boot_id));
    attached::add(&mut facts, attached.and_then(TaskHandle::wait));
    host_use::update(&settings.root, &mut facts, network.is_complete(), settings.protection)?;
    Ok(facts)
}

/// Facts that are read once for the whole machine.
struct CommonFacts {
    cards: Vec<ListedCard>,
    /// Facts without the cards. Cards with damaged records are unreadable.
    facts: HostFacts,
}

impl CommonFacts {
    fn read(settings: &HostSettings) -> Result<Self, HostError> {
        let root = &settings.root;
        let mut facts = HostFacts {
            kernel: KernelFacts { rdma_mode: rdma::read_mode(root)?, ..system::read_kernel_facts(root)? },
            files: files::read_managed_files(root)?,
            enabled_units: files::read_enabled_units(root)?,
            running_units: files::read_running_units(root)?,
            has_boot_program: files::has_boot_program(root)?,
            guid_file: files::read_guid_file(root)?,
            ..HostFacts::default()
        };
        read_records(settings, &mut facts)?;
        Ok(Self { cards: pci::list_cards(root, settings.has_lone_vfs)?, facts })
    }
}

fn read_records(settings: &HostSettings, facts: &mut HostFacts) -> Result<(), HostError> {
    for (pf, record) in records::read_all(&settings.root)? {
        match record {
            Ok(record) => facts.records.push(record),
            Err(error) => {
                facts.unreadable.push(unreadable_card(pf, &error));
                facts.unreadable_records.insert(pf);
            }
        }
    }
    Ok(())
}

fn unreadable_card(pf: PciAddress, error: &HostError) -> UnreadableCard {
    UnreadableCard { pf, error: format_error_chain(&error), reason: error.reason() }
}

/// Removes unreadable cards from the list of PFs, and keeps one reason per card: the first, which is the one of its
/// record.
fn remove_unreadable_pfs(facts: &mut HostFacts) {
    facts.unreadable.sort_by_key(|unread| unread.pf);
    facts.unreadable.dedup_by_key(|unread| unread.pf);
    facts.pfs.retain(|pf| !facts.unreadable.iter().any(|unread| unread.pf == pf.address));
}
