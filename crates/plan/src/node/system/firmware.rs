//! Firmware settings of cards: maximum number of VFs, and link types.

use vfleet_api::PciAddress;

use super::{RebootNeeds, SystemPlan};
use crate::facts::{ExternalQuery, FailedQuery, HostFacts, LinkKind, PfFacts};
use crate::firmware::{
    DesiredPort, FirmwareChange, FirmwareFault, FirmwareSettings, MELLANOX, card_of, plan_port,
};
use crate::node::desired::DesiredPf;
use crate::node::{NodeOptions, planned};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// Plans firmware settings. Externally managed PFs are skipped. A port whose firmware does not support the desired
/// settings does not prevent those of the other port.
pub(super) fn plan(
    pfs: &[(&DesiredPf, &PfFacts)],
    facts: &HostFacts,
    options: NodeOptions,
    plan: &mut SystemPlan,
    needs: &mut RebootNeeds,
) {
    let mut cards: BTreeMap<String, Vec<DesiredPort<'_>>> = BTreeMap::new();
    for (desired, observed) in
        pfs.iter().filter(|(desired, observed)| observed.vendor == MELLANOX && !desired.external)
    {
        cards.entry(card_of(desired.address)).or_default().push(desired_port(desired, observed));
    }
    for (card, desired) in cards {
        let whole = FirmwareCard { ports: ports_of(&card, facts), name: card, desired };
        let change = whole.plan_change(facts, plan);
        whole.plan_steps(change, facts, options, plan, needs);
    }
}

/// Returns the needs of cards that are missing now, for which reboot counts may exist.
pub(super) fn needs_of_missing(missing: &[&DesiredPf]) -> impl Iterator<Item = String> {
    missing.iter().filter(|desired| !desired.external).map(|desired| need_name(&card_of(desired.address)))
}

/// Returns the name of the need for a reboot, which is stored with its reboot count.
fn need_name(card: &str) -> String {
    format!("firmware of {card}")
}

/// Returns all ports of a card. The firmware tool reports the settings at one of them.
fn ports_of<'a>(card: &str, facts: &'a HostFacts) -> Vec<&'a PfFacts> {
    facts.pfs.iter().filter(|pf| card_of(pf.address) == card).collect()
}

/// Card with its desired ports, as firmware settings are decided for the card as a whole.
struct FirmwareCard<'a> {
    name: String,
    ports: Vec<&'a PfFacts>,
    desired: Vec<DesiredPort<'a>>,
}

/// Firmware settings to change, and PFs that need a reset for them.
#[derive(Default)]
struct CardChange {
    settings: FirmwareSettings,
    waiting: Vec<PciAddress>,
    /// True if some port may need a reset, and it is not known yet.
    may_need_reset: bool,
}

impl FirmwareCard<'_> {
    fn plan_change(&self, facts: &HostFacts, plan: &mut SystemPlan) -> CardChange {
        let firmware = self.ports.iter().find_map(|port| port.firmware.as_ref());
        let mut all = FirmwareChange::default();
        let mut waiting = Vec::new();
        let mut may_need_reset = false;
        for port in &self.desired {
            may_need_reset |= port.link.is_some() && port.observed.link.is_none();
            match plan_port(port, firmware, facts.kernel.is_locked_down) {
                Ok(change) => {
                    waiting.extend(change.needs_reset.then_some(port.observed.address));
                    all = all.with(change);
                }
                Err(fault) => {
                    may_need_reset = true;
                    let fault = self.with_tool_error(fault, facts);
                    plan.pf_causes.insert(port.observed.address, fault.into());
                }
            }
        }
        CardChange { settings: all.settings, waiting, may_need_reset }
    }

    /// Replaces the fault "no tool" if the tool exists and failed.
    fn with_tool_error(&self, fault: FirmwareFault, facts: &HostFacts) -> FirmwareFault {
        let is_firmware_query = |failed: &&FailedQuery| {
            failed.query == ExternalQuery::Firmware && self.ports.iter().any(|port| port.address == failed.pf)
        };
        match (fault, facts.failed_queries.iter().find(is_firmware_query)) {
            (FirmwareFault::NoTool { need }, Some(FailedQuery { error, .. })) => {
                FirmwareFault::ToolFailed { need, error: error.clone() }
            }
            (fault, _) => fault,
        }
    }

    /// Plans the steps for a change. The machine reboots only when the settings were read back. Before that, a reset of
    /// the card may be enough; the next plan shows whether it was.
    fn plan_steps(
        &self,
        change: CardChange,
        facts: &HostFacts,
        options: NodeOptions,
        plan: &mut SystemPlan,
        needs: &mut RebootNeeds,
    ) {
        let needs_reset = !change.waiting.is_empty();
        if needs_reset || change.may_need_reset {
            needs.open.insert(need_name(&self.name));
        }
        let Some(pf) = self.ports.iter().find(|port| port.firmware.is_some()) else { return };
        if change.settings == FirmwareSettings::default() {
            if needs_reset {
                needs.cards.insert(need_name(&self.name), change.waiting);
            }
            return;
        }
        let disruption = if needs_reset { Disruption::Reboot } else { Disruption::None };
        let step = Step::SetFirmware { pf: pf.address, settings: change.settings };
        plan.pfs.push(planned(step, disruption, "required by the requested VFs or link type"));
        plan.reboots |= needs_reset;
        if needs_reset && options.firmware_reset && self.can_reset(pf, facts) {
            plan.pfs.extend(reset_firmware(pf));
        }
    }

    /// Returns whether a firmware reset affects only VFs of this port that vfleet created.
    fn can_reset(&self, pf: &PfFacts, facts: &HostFacts) -> bool {
        let is_ours = self.desired.iter().any(|desired| desired.observed.address == pf.address);
        let may_lose_vfs = |port: &PfFacts| port.vfs.is_empty() || (is_ours && port.address == pf.address);
        let is_in_use = |port: &PfFacts| {
            let mut vfs = port.vfs.iter();
            facts.in_use(port.address, port.link.as_ref()).is_some()
                || vfs.any(|vf| facts.in_use(vf.address, vf.link.as_ref()).is_some())
        };
        self.ports.iter().all(|port| may_lose_vfs(port) && !is_in_use(port))
    }
}

fn reset_firmware(pf: &PfFacts) -> Vec<PlannedStep> {
    let mut steps = Vec::new();
    if !pf.vfs.is_empty() {
        let step = Step::SetNumVfs { pf: pf.address, count: 0 };
        steps.push(planned(step, Disruption::Drain, "the firmware is reset"));
    }
    let why = "new firmware settings take effect";
    steps.push(planned(Step::ResetFirmware { pf: pf.address }, Disruption::Reboot, why));
    steps
}

fn desired_port<'a>(desired: &DesiredPf, observed: &'a PfFacts) -> DesiredPort<'a> {
    let link = match desired.interface.link_type.as_deref() {
        Some(word) if word.eq_ignore_ascii_case("ETH") => Some(LinkKind::Ethernet),
        Some(word) if word.eq_ignore_ascii_case("IB") => Some(LinkKind::Infiniband),
        _ => None,
    };
    DesiredPort { observed, num_vfs: desired.num_vfs, link }
}
