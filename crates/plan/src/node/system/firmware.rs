//! Firmware of cards: how many VFs they show, and what their ports speak.

use super::{Needs, SystemPlan};
use crate::facts::{HostFacts, LinkKind, PfFacts, Question, Unanswered};
use crate::firmware::{
    FirmwareChange, FirmwareFault, FirmwareSettings, MELLANOX, WantedPort, card_of, plan_firmware,
};
use crate::node::wanted::WantedPf;
use crate::node::{Cause, NodeOptions, planned};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// PFs that are managed outside are not asked: whether they are as wanted is checked where they are.
pub(super) fn plan(
    pfs: &[(WantedPf, &PfFacts)],
    facts: &HostFacts,
    options: NodeOptions,
    plan: &mut SystemPlan,
    needs: &mut Needs,
) {
    let mut cards: BTreeMap<String, Vec<&(WantedPf, &PfFacts)>> = BTreeMap::new();
    for port in pfs.iter().filter(|(wanted, found)| found.vendor == MELLANOX && !wanted.external) {
        cards.entry(card_of(port.0.address)).or_default().push(port);
    }
    for (card, ports) in cards {
        let whole = Card { ports: ports_of(&card, facts), name: card, wanted: ports };
        match whole.change(facts) {
            Ok(change) => whole.carry_out(change, options, plan, needs),
            Err(problem) => plan.problems.push(problem),
        }
    }
}

/// All ports of a card. A tool tells of its firmware at one of them.
fn ports_of<'a>(card: &str, facts: &'a HostFacts) -> Vec<&'a PfFacts> {
    facts.pfs.iter().filter(|pf| card_of(pf.address) == card).collect()
}

struct Card<'a> {
    name: String,
    ports: Vec<&'a PfFacts>,
    wanted: Vec<&'a (WantedPf, &'a PfFacts)>,
}

impl Card<'_> {
    fn change(&self, facts: &HostFacts) -> Result<FirmwareChange, crate::node::Problem> {
        let wanted: Vec<WantedPort<'_>> =
            self.wanted.iter().map(|(wanted, found)| port(wanted, found)).collect();
        let firmware = self.ports.iter().find_map(|port| port.firmware.as_ref());
        plan_firmware(&wanted, firmware, facts.kernel.is_locked_down).map_err(|(pf, fault)| {
            let cause = Cause::Firmware(self.explained(fault, facts));
            match self.wanted.iter().find(|(wanted, _)| wanted.address == pf) {
                Some((wanted, _)) => wanted.problem(cause),
                None => crate::node::Problem { pf: Some(pf), name: None, policies: Vec::new(), cause },
            }
        })
    }

    /// A tool that is there and fails is not one that is missing.
    fn explained(&self, fault: FirmwareFault, facts: &HostFacts) -> FirmwareFault {
        let is_asked = |unanswered: &&Unanswered| {
            unanswered.question == Question::Firmware
                && self.ports.iter().any(|port| port.address == unanswered.pf)
        };
        match facts.unanswered.iter().find(is_asked) {
            Some(Unanswered { error, .. }) if fault == FirmwareFault::NoTool => {
                FirmwareFault::ToolFailed { error: error.clone() }
            }
            _ => fault,
        }
    }

    /// The machine restarts only when the settings are seen to be there. Until then a card may take them up by a restart
    /// of its own; if that does not help, or was cut off, the next look at it shows that.
    fn carry_out(
        &self,
        change: FirmwareChange,
        options: NodeOptions,
        plan: &mut SystemPlan,
        needs: &mut Needs,
    ) {
        let Some(pf) = self.ports.iter().find(|port| port.firmware.is_some()) else { return };
        if change.settings == FirmwareSettings::default() {
            needs.cards.extend(change.needs_restart.then(|| self.name.clone()));
            return;
        }
        let disruption = if change.needs_restart { Disruption::Reboot } else { Disruption::None };
        let step = Step::SetFirmware { pf: pf.address, settings: change.settings };
        plan.pfs.push(planned(step, disruption, "VFs or a link type are wanted that need it"));
        plan.reboots |= change.needs_restart;
        if change.needs_restart && options.firmware_reset && self.may_restart(pf) {
            plan.pfs.extend(restart_firmware(pf));
        }
    }

    /// Whether nobody but our own VFs on this port would be disturbed.
    fn may_restart(&self, pf: &PfFacts) -> bool {
        let links = self.ports.iter().flat_map(|port| {
            let vfs = port.vfs.iter().filter_map(|vf| vf.link.as_ref());
            port.link.iter().chain(vfs)
        });
        let is_ours = self.wanted.iter().any(|(wanted, _)| wanted.address == pf.address);
        let may_lose_vfs = |port: &PfFacts| port.vfs.is_empty() || (is_ours && port.address == pf.address);
        self.ports.iter().all(|port| may_lose_vfs(port))
            && links.into_iter().all(|link| link.host_use.is_none())
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
