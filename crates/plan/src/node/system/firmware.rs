//! Firmware of cards: how many VFs they show, and what their ports speak.

use vfleet_api::PciAddress;

use super::{Needs, SystemPlan};
use crate::facts::{HostFacts, LinkKind, PfFacts, Question, Unanswered};
use crate::firmware::{
    FirmwareChange, FirmwareFault, FirmwareSettings, MELLANOX, WantedPort, card_of, plan_port,
};
use crate::node::wanted::WantedPf;
use crate::node::{NodeOptions, planned};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// PFs that are managed outside are not asked: whether they are as wanted is checked where they are. A port whose firmware
/// cannot be what it needs does not hold up the other port of its card.
pub(super) fn plan(
    pfs: &[(&WantedPf, &PfFacts)],
    facts: &HostFacts,
    options: NodeOptions,
    plan: &mut SystemPlan,
    needs: &mut Needs,
) {
    let mut cards: BTreeMap<String, Vec<WantedPort<'_>>> = BTreeMap::new();
    for (wanted, found) in pfs.iter().filter(|(wanted, found)| found.vendor == MELLANOX && !wanted.external) {
        cards.entry(card_of(wanted.address)).or_default().push(port(wanted, found));
    }
    for (card, wanted) in cards {
        let whole = Card { ports: ports_of(&card, facts), name: card, wanted };
        let change = whole.change(facts, plan);
        whole.carry_out(change, facts, options, plan, needs);
    }
}

/// What cards may need that are not seen now. Those of other vendors need nothing, and nothing of the kind is known of them.
pub(super) fn of_unseen(unseen: &[&WantedPf]) -> impl Iterator<Item = String> {
    unseen.iter().filter(|wanted| !wanted.external).map(|wanted| need(&card_of(wanted.address)))
}

/// What the need for a restart is called.
fn need(card: &str) -> String {
    format!("firmware of {card}")
}

/// All ports of a card. A tool tells of its firmware at one of them.
fn ports_of<'a>(card: &str, facts: &'a HostFacts) -> Vec<&'a PfFacts> {
    facts.pfs.iter().filter(|pf| card_of(pf.address) == card).collect()
}

struct Card<'a> {
    name: String,
    ports: Vec<&'a PfFacts>,
    wanted: Vec<WantedPort<'a>>,
}

/// What is to be done with a card, and the PFs that need a restart for it.
#[derive(Default)]
struct Change {
    settings: FirmwareSettings,
    waiting: Vec<PciAddress>,
    /// Whether it is not known of all ports that they need none.
    is_open: bool,
}

impl Card<'_> {
    fn change(&self, facts: &HostFacts, plan: &mut SystemPlan) -> Change {
        let firmware = self.ports.iter().find_map(|port| port.firmware.as_ref());
        let mut all = FirmwareChange::default();
        let mut waiting = Vec::new();
        let mut is_open = false;
        for port in &self.wanted {
            is_open |= port.link.is_some() && port.found.link.is_none();
            match plan_port(port, firmware, facts.kernel.is_locked_down) {
                Ok(change) => {
                    waiting.extend(change.needs_restart.then_some(port.found.address));
                    all = all.with(change);
                }
                Err(fault) => {
                    is_open = true;
                    let fault = self.explained(fault, facts);
                    plan.of_pfs.insert(port.found.address, fault.into());
                }
            }
        }
        Change { settings: all.settings, waiting, is_open }
    }

    /// A tool that is there and fails is not one that is missing.
    fn explained(&self, fault: FirmwareFault, facts: &HostFacts) -> FirmwareFault {
        let is_asked = |unanswered: &&Unanswered| {
            unanswered.question == Question::Firmware
                && self.ports.iter().any(|port| port.address == unanswered.pf)
        };
        match (fault, facts.unanswered.iter().find(is_asked)) {
            (FirmwareFault::NoTool { need }, Some(Unanswered { error, .. })) => {
                FirmwareFault::ToolFailed { need, error: error.clone() }
            }
            (fault, _) => fault,
        }
    }

    /// The machine restarts only when the settings are seen to be there. Until then a card may take them up by a restart
    /// of its own; if that does not help, or was cut off, the next look at it shows that.
    fn carry_out(
        &self,
        change: Change,
        facts: &HostFacts,
        options: NodeOptions,
        plan: &mut SystemPlan,
        needs: &mut Needs,
    ) {
        let needs_restart = !change.waiting.is_empty();
        if needs_restart || change.is_open {
            needs.open.insert(need(&self.name));
        }
        let Some(pf) = self.ports.iter().find(|port| port.firmware.is_some()) else { return };
        if change.settings == FirmwareSettings::default() {
            if needs_restart {
                needs.cards.insert(need(&self.name), change.waiting);
            }
            return;
        }
        let disruption = if needs_restart { Disruption::Reboot } else { Disruption::None };
        let step = Step::SetFirmware { pf: pf.address, settings: change.settings };
        plan.pfs.push(planned(step, disruption, "VFs or a link type are wanted that need it"));
        plan.reboots |= needs_restart;
        if needs_restart && options.firmware_reset && self.may_restart(pf, facts) {
            plan.pfs.extend(restart_firmware(pf));
        }
    }

    /// Whether nobody but our own VFs on this port would be disturbed.
    fn may_restart(&self, pf: &PfFacts, facts: &HostFacts) -> bool {
        let is_ours = self.wanted.iter().any(|wanted| wanted.found.address == pf.address);
        let may_lose_vfs = |port: &PfFacts| port.vfs.is_empty() || (is_ours && port.address == pf.address);
        let is_in_use = |port: &PfFacts| {
            let mut vfs = port.vfs.iter();
            facts.in_use(port.address, port.link.as_ref()).is_some()
                || vfs.any(|vf| facts.in_use(vf.address, vf.link.as_ref()).is_some())
        };
        self.ports.iter().all(|port| may_lose_vfs(port) && !is_in_use(port))
    }
}

fn restart_firmware(pf: &PfFacts) -> Vec<PlannedStep> {
    let mut steps = Vec::new();
    if !pf.vfs.is_empty() {
        let step = Step::SetNumVfs { pf: pf.address, count: 0 };
        steps.push(planned(step, Disruption::Drain, "its firmware restarts"));
    }
    let why = "its firmware takes up new settings";
    steps.push(planned(Step::ResetFirmware { pf: pf.address }, Disruption::Reboot, why));
    steps
}

fn port<'a>(wanted: &WantedPf, found: &'a PfFacts) -> WantedPort<'a> {
    let link = match wanted.interface.link_type.as_deref() {
        Some(word) if word.eq_ignore_ascii_case("ETH") => Some(LinkKind::Ethernet),
        Some(word) if word.eq_ignore_ascii_case("IB") => Some(LinkKind::Infiniband),
        _ => None,
    };
    WantedPort { found, num_vfs: wanted.num_vfs, link }
}
