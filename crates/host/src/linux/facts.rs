//! Everything about the machine. Each card is read by itself and all of them at once: one that hangs or makes no sense
//! does not hide the others.

use std::sync::Arc;
use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_plan::{HostFacts, KernelFacts, Unread};

use super::network::Network;
use super::pci::{self, FoundCard};
use super::settle::settled;
use super::{Machine, card, files, rdma, records, system, uses};
use crate::supervisor::{Running, Supervisor};
use crate::{HostError, with_causes};

/// The facts of a machine. No question waits for longer than `limit`.
pub(super) fn read(
    machine: &Arc<Machine>,
    supervisor: &Supervisor,
    limit: Duration,
) -> Result<HostFacts, HostError> {
    let asked = Arc::clone(machine);
    let common = supervisor.start_read(None, limit, move || Common::read(&asked))?.wait()?;
    let network = Arc::new(common.network);
    // All are asked before the first answer is waited for.
    let start = |pf, card| {
        let (machine, network) = (Arc::clone(machine), Arc::clone(&network));
        supervisor.start_read(Some(pf), limit, move || card::read(&machine.root, pf, card, &network))
    };
    let reads: Vec<(PciAddress, Result<Running<_>, HostError>)> =
        common.cards.into_iter().map(|(pf, card)| (pf, card.and_then(|card| start(pf, card)))).collect();
    let mut facts = common.facts;
    for (pf, read) in reads {
        match read.and_then(Running::wait) {
            Ok(Some((pf, unanswered))) => {
                facts.pfs.push(pf);
                facts.unanswered.extend(unanswered);
            }
            Ok(None) => {}
            Err(error) => facts.unread.push(unread(pf, &error)),
        }
    }
    set_apart_unread(&mut facts);
    uses::remember(&machine.root, &mut facts, network.is_complete(), machine.protection)?;
    Ok(facts)
}

/// What is read once for the whole machine.
struct Common {
    cards: Vec<FoundCard>,
    network: Network,
    /// With all but the cards; those whose records are damaged are unread.
    facts: HostFacts,
}

impl Common {
    fn read(machine: &Machine) -> Result<Self, HostError> {
        let root = &machine.root;
        let mut facts = HostFacts {
            kernel: KernelFacts { rdma_mode: rdma::mode(root)?, ..system::kernel(root)? },
            files: files::texts(root)?,
            enabled_units: files::enabled_units(root)?,
            working_units: files::working_units(root)?,
            has_boot_program: files::has_boot_program(root)?,
            guid_file: files::guids(root)?,
            ..HostFacts::default()
        };
        read_records(machine, &mut facts)?;
        Ok(Self {
            cards: pci::cards(root, machine.has_lone_vfs)?,
            network: settled(|| Network::read(root, &machine.node_addresses))?,
            facts,
        })
    }
}

fn read_records(machine: &Machine, facts: &mut HostFacts) -> Result<(), HostError> {
    for (pf, record) in records::read_all(&machine.root)? {
        match record {
            Ok(record) => facts.records.push(record),
            Err(error) => {
                facts.unread.push(unread(pf, &error));
                facts.unread_records.insert(pf);
            }
        }
    }
    Ok(())
}

fn unread(pf: PciAddress, error: &HostError) -> Unread {
    Unread { pf, error: with_causes(&error), reason: error.reason() }
}

/// A card is read or unread, for one reason: its record's, where that cannot be read.
fn set_apart_unread(facts: &mut HostFacts) {
    facts.unread.sort_by_key(|unread| unread.pf);
    facts.unread.dedup_by_key(|unread| unread.pf);
    facts.pfs.retain(|pf| !facts.unread.iter().any(|unread| unread.pf == pf.address));
}
