//! Software bridge of a PF: one Open vSwitch or Linux bridge with the PF as uplink.
//!
//! A bridge is ours if it has our mark: an entry in `external_ids` (Open vSwitch) or an alias (Linux). Everything else is
//! somebody else's, and so is a PF that already is a port of something else.

mod desired;
mod fault;
mod go_store;
mod linux;
mod ovs;
mod ovs_keys;
mod recorded;

use desired::DesiredSettings;
pub(super) use desired::{DesiredBridge, read_desired_bridges};
pub use fault::BridgeFault;
pub(super) use go_store::GoStore;
use go_store::plan_store;
pub(crate) use recorded::recorded_bridges;

use vfleet_api::PciAddress;
use vfleet_api::node_state::Interface;

use super::pf::PlannedBridge;
use super::problem::Cause;
use super::protection::HostProtection;
use super::udev;
use crate::facts::{BridgeKind, HostFacts, LinkFacts, Master, OvsFacts, PfFacts, Record, RecordedBridge};
use crate::prelude::*;
use crate::step::{PlannedStep, Step, Target};

/// Kind of the master of ports of Open vSwitch in the kernel.
const OPEN_VSWITCH: &str = "openvswitch";

/// Bridges that can be changed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BridgePhase {
    /// All bridges.
    All,
    /// Linux bridges only: Open vSwitch starts later.
    LinuxOnly,
}

/// Desired bridges of a node, and what is known about existing ones.
#[derive(Debug)]
pub(super) struct BridgeContext<'a> {
    /// Desired bridge of each PF. Invalid ones have a fault.
    desired: &'a BTreeMap<PciAddress, Result<DesiredBridge, BridgeFault>>,
    /// Bridges that the Go daemon created.
    go_store: &'a GoStore,
    /// Bridges that can be changed now.
    phase: BridgePhase,
    /// PFs whose bridges are left as they are if none is desired.
    kept: &'a BTreeSet<PciAddress>,
}

/// PF whose bridge is planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct BridgePf<'a> {
    pub(super) address: PciAddress,
    /// PF; `None` if the card is not present.
    pub(super) observed: Option<&'a PfFacts>,
    pub(super) record: Option<&'a Record>,
    /// MTU that the policies request; the bridge gets it.
    pub(super) mtu: Option<u32>,
    /// The steps before those of the bridge configure the PF. Otherwise no bridge is created.
    pub(super) can_create: bool,
    pub(super) protection: HostProtection<'a>,
    pub(super) facts: &'a HostFacts,
}

impl<'a> BridgePf<'a> {
    fn link(&self) -> Option<&'a LinkFacts> {
        self.observed?.link.as_ref()
    }

    fn recorded(&self) -> Option<&'a RecordedBridge> {
        self.record?.bridge.as_ref()
    }

    /// Returns whether the record has this bridge.
    fn has_recorded(&self, desired: &DesiredBridge) -> bool {
        self.recorded().is_some_and(|recorded| desired.is_recorded(recorded))
    }

    /// Returns the PF with the protection that applies to this bridge.
    fn with_desired_bridge(&self, desired: Option<&DesiredBridge>) -> Self {
        let is_recorded = desired.is_some_and(|desired| self.has_recorded(desired));
        Self { protection: self.protection.for_bridge(is_recorded), ..*self }
    }
}

/// Steps for the bridge of a PF.
#[derive(Debug, Default)]
pub(super) struct BridgeSteps {
    /// Steps before the PF is changed: they remove bridges that are not desired.
    pub(super) remove: Vec<PlannedStep>,
    /// Steps after the PF is configured, and before its VFs are.
    pub(super) set_up: Vec<PlannedStep>,
    /// [`Record::bridge`] during the steps of `remove`: bridges are owned as before.
    pub(super) removing: Option<RecordedBridge>,
    /// [`Record::bridge`] during the steps of `set_up`.
    pub(super) begun: Option<RecordedBridge>,
    /// [`Record::bridge`] after the steps.
    pub(super) finished: Option<RecordedBridge>,
    /// After the steps another bridge of the PF still exists, or it is unknown whether one does.
    pub(super) is_left: bool,
    /// After the steps the desired bridge and no other one is configured, though it may not work yet.
    pub(super) is_reached: bool,
    /// Causes that prevent the desired state of the bridge.
    pub(super) causes: Vec<Cause>,
}

impl BridgeSteps {
    /// Returns whether no bridge has to be changed, and nothing prevents the desired state. Files do not matter.
    pub(super) fn is_verified(&self) -> bool {
        let is_of_bridge = |planned: &PlannedStep| matches!(planned.step.target(), Target::Bridge(_));
        self.causes.is_empty() && !self.remove.iter().chain(&self.set_up).any(is_of_bridge)
    }

    /// Returns the MTU to which Open vSwitch sets the PF by the steps.
    pub(super) fn requested_mtu(&self) -> Option<u32> {
        let requested = self.set_up.iter().find_map(|planned| match &planned.step {
            Step::SetOvsBridge { bridge, .. } => bridge.uplink.mtu_request,
            _ => None,
        });
        u32::try_from(requested?).ok()
    }

    /// Returns the fault if Open vSwitch keeps the PF below this MTU after the steps: another program, or a bridge that
    /// cannot be changed, requests a lower one.
    pub(super) fn check_mtu(&self, mtu: u32, link: &LinkFacts, facts: &HostFacts) -> Result<(), BridgeFault> {
        let is_of_ovs = |planned: &PlannedStep| {
            matches!(
                planned.step,
                Step::SetOvsBridge { .. } | Step::RemoveOvsBridge { .. } | Step::RemoveOvsPort { .. }
            )
        };
        let port = facts.bridges.ovs.database().and_then(|ovs| ovs.port_of(&link.name));
        let Some((bridge, port)) = port.filter(|_| !self.remove.iter().chain(&self.set_up).any(is_of_ovs))
        else {
            return Ok(());
        };
        let interface = port.interfaces.iter().find(|interface| interface.name == link.name);
        match interface.and_then(|interface| interface.mtu_request) {
            Some(held) if held < i64::from(mtu) => Err(BridgeFault::MtuHeld {
                bridge: bridge.name.clone(),
                interface: link.name.clone(),
                requested: mtu,
                held,
            }),
            _ => Ok(()),
        }
    }
}

/// Result of planning the removal of existing bridges.
#[derive(Debug, Default)]
struct Removal {
    steps: Vec<PlannedStep>,
    faults: Vec<BridgeFault>,
    /// A bridge still exists after the steps, or it is unknown whether one does.
    is_left: bool,
}

impl<'a> BridgeContext<'a> {
    /// Returns the context in which no bridge is left as it is.
    pub(super) fn new(
        desired: &'a BTreeMap<PciAddress, Result<DesiredBridge, BridgeFault>>,
        go_store: &'a GoStore,
        phase: BridgePhase,
    ) -> Self {
        static NONE: BTreeSet<PciAddress> = BTreeSet::new();
        Self { desired, go_store, phase, kept: &NONE }
    }

    /// Returns the context in which bridges of the PFs in `kept` are left as they are if none is desired.
    pub(super) fn with_kept(self, kept: &'a BTreeSet<PciAddress>) -> Self {
        Self { kept, ..self }
    }

    /// Returns whether a bridge is desired for the PF, possibly an invalid one.
    pub(super) fn has_desired(&self, pf: PciAddress) -> bool {
        self.desired.contains_key(&pf)
    }

    /// Returns the steps for the bridge of a PF.
    pub(super) fn plan(&self, pf: &BridgePf<'_>) -> BridgeSteps {
        let desired = match self.desired.get(&pf.address) {
            None => None,
            Some(Ok(desired)) => Some(desired),
            // An invalid bridge is neither created nor removed.
            Some(Err(fault)) => return keep(pf, fault.clone()),
        };
        let pf = &pf.with_desired_bridge(desired);
        if desired.is_none() && self.kept.contains(&pf.address) {
            return self.leave(pf);
        }
        let recorded = pf.recorded();
        let Removal { steps: mut remove, mut faults, is_left } = self.plan_removal(desired, pf);
        // The record names another bridge only if that is created or exists. A bridge that is left stays in the record:
        // while Open vSwitch cannot be read, only the record has it.
        let is_kept = |recorded: &&RecordedBridge| {
            is_left
                || !self.changes(recorded.kind)
                || desired.is_some_and(|desired| desired.is_recorded(recorded))
        };
        let mut begun = recorded.filter(is_kept).cloned();
        let mut finished = begun.clone();
        let mut set_up = Vec::new();
        let mut is_waiting = false;
        if let Some(desired) = desired.filter(|_| !is_left) {
            let exists = self.exists(desired, pf);
            let is_possible = self.changes(desired.kind()) && (exists || pf.can_create);
            let planned = is_possible.then(|| self.plan_set_up(desired, pf));
            is_waiting = planned.is_none();
            if exists || matches!(planned, Some(Ok(_))) {
                begun = Some(desired.begun_record(pf));
                finished.clone_from(&begun);
            }
            match planned {
                Some(Ok(steps)) => {
                    set_up.extend(udev::write_bridge_rule(pf.address, &desired.name, pf.facts));
                    set_up.extend(steps);
                    finished = Some(desired.finished_record(pf));
                }
                Some(Err(fault)) => {
                    if fault.is_foreign_bridge() && !exists {
                        set_up.extend(udev::remove_bridge_rule(pf.address, pf.facts));
                    }
                    faults.push(fault);
                }
                None => {}
            }
        } else if !is_left && recorded.is_none_or(|recorded| self.changes(recorded.kind)) {
            remove.extend(udev::remove_bridge_rule(pf.address, pf.facts));
        }
        let removing = if remove.is_empty() { begun.clone() } else { recorded.cloned() };
        let is_applied = !is_left || !faults.is_empty();
        let is_reached = is_applied && !is_waiting && faults.iter().all(BridgeFault::is_after_change);
        let causes = faults.into_iter().map(Cause::from).collect();
        BridgeSteps { remove, set_up, removing, begun, finished, is_left, is_reached, causes }
    }

    /// Returns the steps of a PF whose bridges are left as they are.
    fn leave(&self, pf: &BridgePf<'_>) -> BridgeSteps {
        let removal = self.plan_removal(None, pf);
        let recorded = pf.recorded().cloned();
        BridgeSteps {
            removing: recorded.clone(),
            begun: recorded.clone(),
            finished: recorded,
            is_left: removal.is_left || !removal.steps.is_empty(),
            ..BridgeSteps::default()
        }
    }

    /// Returns whether the PF has a bridge of ours, recorded or found.
    pub(super) fn has_any(&self, pf: &BridgePf<'_>) -> bool {
        let removal = self.plan_removal(None, pf);
        pf.recorded().is_some() || removal.is_left || !removal.steps.is_empty()
    }

    /// Returns whether the change of the PF's bridge is refused because of what only a running machine shows: addresses
    /// and routes, bonds, and bridges of others. The uplink of a bridge is not refused.
    pub(super) fn is_refused(&self, pf: &BridgePf<'_>) -> bool {
        let desired = match self.desired.get(&pf.address) {
            None => None,
            Some(Ok(desired)) => Some(desired),
            Some(Err(_)) => return true,
        };
        let pf = &pf.with_desired_bridge(desired);
        let removal = self.plan_removal(desired, pf);
        removal.faults.iter().any(BridgeFault::is_of_use)
            || desired.is_some_and(|desired| self.is_attachment_refused(desired, pf))
    }

    fn is_attachment_refused(&self, desired: &DesiredBridge, pf: &BridgePf<'_>) -> bool {
        // Nothing is known about a bridge that cannot be read, or about its uplink without an interface.
        let is_unknown = pf.link().is_none()
            || desired.kind() == BridgeKind::Ovs && pf.facts.bridges.ovs.database().is_none();
        if is_unknown && pf.has_recorded(desired) {
            return false;
        }
        if self.has_uplink(desired, pf) {
            return false;
        }
        let is_attachable = check_attachable(&desired.name, desired.kind(), pf, self.go_store).is_ok();
        let has_foreign_name = !self.exists(desired, pf) && is_name_taken(&desired.name, pf, self.go_store);
        has_foreign_name || !is_attachable
    }

    /// Returns whether the PF is the uplink of the desired bridge, which is ours.
    fn has_uplink(&self, desired: &DesiredBridge, pf: &BridgePf<'_>) -> bool {
        let uplink = || match &desired.settings {
            DesiredSettings::Ovs(settings) => {
                let existing = ovs::find_existing(&desired.name, settings, pf)?;
                ovs::find_uplink(existing, &pf.link()?.name).map(|_| ())
            }
            DesiredSettings::Linux(_) => linux::find_uplink(&desired.name, pf).map(|_| ()),
        };
        self.exists(desired, pf) && uplink().is_some()
    }

    /// Returns whether bridges of this kind can be changed now.
    fn changes(&self, kind: BridgeKind) -> bool {
        self.phase == BridgePhase::All || kind == BridgeKind::Linux
    }

    /// Returns whether the desired bridge exists, is ours, and is not recreated.
    fn exists(&self, desired: &DesiredBridge, pf: &BridgePf<'_>) -> bool {
        match &desired.settings {
            DesiredSettings::Ovs(settings) => {
                let existing = ovs::find_existing(&desired.name, settings, pf);
                existing.is_some_and(|bridge| ovs::is_owned(bridge, pf, self.go_store))
            }
            DesiredSettings::Linux(_) => {
                let existing = pf.facts.bridges.linux_bridge(&desired.name);
                existing.is_some_and(|bridge| linux::is_owned(bridge, pf))
            }
        }
    }

    /// Returns whether an Open vSwitch bridge is desired for the PF.
    pub(super) fn wants_ovs(&self, pf: PciAddress) -> bool {
        let desired = self.desired.get(&pf).and_then(|desired| desired.as_ref().ok());
        desired.is_some_and(|desired| desired.kind() == BridgeKind::Ovs)
    }

    /// Returns the steps that create and configure the desired bridge.
    fn plan_set_up(
        &self,
        desired: &DesiredBridge,
        pf: &BridgePf<'_>,
    ) -> Result<Vec<PlannedStep>, BridgeFault> {
        match &desired.settings {
            DesiredSettings::Ovs(settings) => ovs::plan(&desired.name, settings, pf, self.go_store),
            DesiredSettings::Linux(settings) => linux::plan(&desired.name, settings, pf, self.go_store),
        }
    }

    /// Returns the step that updates the list of bridges for the Go daemon. `planned` has the
    /// bridge of each planned PF.
    pub(super) fn plan_store(
        &self,
        planned: &BTreeMap<PciAddress, PlannedBridge>,
        interfaces: &[Interface],
        facts: &HostFacts,
    ) -> Option<PlannedStep> {
        let desired_of = |pf, is_ours: bool| self.desired.get(pf)?.as_ref().ok().filter(|_| is_ours);
        // The list has the bridges that exist, with the settings that they have.
        let changed = planned.iter().filter(|(_, bridge)| bridge.is_reached || !bridge.is_ours);
        let bridges = changed.map(|(pf, bridge)| (*pf, desired_of(pf, bridge.is_ours)));
        plan_store(self.go_store, bridges, interfaces, facts)
    }

    /// Returns the steps that remove our bridges of a PF other than the desired one.
    fn plan_removal(&self, desired: Option<&DesiredBridge>, pf: &BridgePf<'_>) -> Removal {
        let mut removal = Removal::default();
        let desired_ovs = desired.and_then(|desired| match &desired.settings {
            DesiredSettings::Ovs(settings) => Some((desired.name.as_str(), settings)),
            DesiredSettings::Linux(_) => None,
        });
        let desired_linux = desired
            .filter(|desired| desired.kind() == BridgeKind::Linux)
            .map(|desired| desired.name.as_str());
        if self.changes(BridgeKind::Ovs) {
            ovs::plan_removal(desired_ovs, pf, self.go_store, &mut removal);
        }
        linux::plan_removal(desired_linux, pf, &mut removal);
        removal
    }
}

/// Returns the steps of a bridge that is left as it is, for the reason `fault`.
fn keep(pf: &BridgePf<'_>, fault: BridgeFault) -> BridgeSteps {
    let recorded = pf.recorded().cloned();
    BridgeSteps {
        removing: recorded.clone(),
        begun: recorded.clone(),
        finished: recorded,
        is_left: true,
        is_reached: false,
        causes: vec![fault.into()],
        ..BridgeSteps::default()
    }
}

/// Returns whether somebody else has a bridge of this name.
fn is_name_taken(name: &str, pf: &BridgePf<'_>, go_store: &GoStore) -> bool {
    let linux = pf.facts.bridges.linux_bridge(name);
    ovs::check_name(name, pf, go_store).is_err() || linux.is_some_and(|bridge| !linux::is_owned(bridge, pf))
}

/// Returns the interface of a PF that can be attached to a bridge of this kind. Steps before this one remove it from our
/// other bridges.
///
/// Open vSwitch knows ports that have no master in the kernel: those of userspace datapaths. It takes over interfaces of
/// its own datapath in the kernel, a Linux bridge does not.
fn check_attachable<'a>(
    name: &str,
    kind: BridgeKind,
    pf: &BridgePf<'a>,
    go_store: &GoStore,
) -> Result<&'a LinkFacts, BridgeFault> {
    let bridge = name.to_owned();
    let (Some(observed), Some(link)) = (pf.observed, pf.link()) else {
        return Err(BridgeFault::NoUplink { bridge });
    };
    if let Some(in_use) = pf.protection.pf(observed) {
        return Err(BridgeFault::UplinkInUse { bridge, in_use });
    }
    let port = pf.facts.bridges.ovs.database().and_then(|ovs| ovs.port_of(&link.name));
    if let Some((other, port)) = port
        && (!ovs::is_owned(other, pf, go_store) || port.interfaces.len() > 1)
    {
        return Err(BridgeFault::PortOfOther { bridge, other: other.name.clone(), port: port.name.clone() });
    }
    let is_ours = |master: &Master| match master.kind.as_str() {
        OPEN_VSWITCH => kind == BridgeKind::Ovs || port.is_some(),
        _ => pf.facts.bridges.linux_bridge(&master.name).is_some_and(|bridge| linux::is_owned(bridge, pf)),
    };
    let Some(master) = link.master.as_ref().filter(|master| !is_ours(master)) else { return Ok(link) };
    let name = master.name.clone();
    // ovs-vswitchd leaves ports of earlier bridges in the kernel while it has no bridge there.
    if master.kind == OPEN_VSWITCH && pf.facts.bridges.ovs.database().is_some() {
        return Err(BridgeFault::StaleDatapath { bridge, datapath: name, port: link.name.clone() });
    }
    Err(BridgeFault::HasMaster { bridge, master: name })
}

/// Returns the fault if Open vSwitch cannot be read; `None` if it can.
fn unreadable_ovs(bridge: &str, ovs: &OvsFacts) -> Option<BridgeFault> {
    let bridge = bridge.to_owned();
    match ovs {
        OvsFacts::Database(_) => None,
        OvsFacts::NotRead => Some(BridgeFault::OvsNotRead { bridge }),
        OvsFacts::NotRunning { socket } => {
            Some(BridgeFault::OvsNotRunning { bridge, socket: socket.clone() })
        }
        OvsFacts::Unreadable { error, reason } => {
            Some(BridgeFault::OvsUnreadable { bridge, error: error.clone(), reason })
        }
    }
}
