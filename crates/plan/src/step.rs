//! Steps: changes of a machine as data. A step contains every value that its execution needs.

mod plan;
mod text;

pub use plan::{Disruption, Plan, PlannedStep};

use core::fmt;

use vfleet_api::bridge::BridgeVlanProtocol;
use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};

use crate::facts::{BootLoader, EswitchMode, ModeTrial, OvsBridgeFacts, Reboots, Record, VdpaKind};
use crate::files;
use crate::firmware::FirmwareSettings;
use crate::prelude::*;

/// One change of a machine. Executing a step twice has the same result as executing it once.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    // A PF.
    /// Writes the record of a PF.
    WriteRecord { record: Record },
    /// Removes the record of a PF.
    RemoveRecord { pf: PciAddress },
    /// Sets the interface of a PF up.
    SetLinkUp { pf: PciAddress },
    /// Sets the MTU of a PF.
    SetPfMtu { pf: PciAddress, mtu: u32 },
    /// Sets `sriov_drivers_autoprobe` of a PF: whether the kernel binds new VFs to a driver.
    SetAutoprobe { pf: PciAddress, on: bool },
    /// Creates `count` VFs on a PF that has none, or removes all VFs (`count` 0).
    SetNumVfs { pf: PciAddress, count: u16 },
    /// Sets the eswitch mode of a PF. An eswitch without VFs is in legacy mode. If the kernel refuses the mode, the
    /// refusal of `trial` is stored in the record of the PF, and the step fails.
    SetEswitchMode { pf: PciAddress, mode: EswitchMode, trial: Option<ModeTrial> },
    /// Sets `hw-tc-offload` of a PF.
    SetTcOffload { pf: PciAddress, on: bool },
    /// Sets software steering of flows (devlink `flow_steering_mode` = `smfs`). The step also succeeds on a card that
    /// has no such parameter or does not accept it.
    SetSoftwareSteering { pf: PciAddress },
    /// Sets the firmware settings that are `Some`, for the time after the next reset.
    SetFirmware { pf: PciAddress, settings: FirmwareSettings },
    /// Resets the firmware of a card, so that new settings take effect. The card must have no VFs.
    ResetFirmware { pf: PciAddress },
    /// Triggers udev for the interfaces of a PF, so that the current rules apply.
    ReplayUdev { pf: PciAddress },

    // A VF.
    /// Sets the administrative MAC of a VF, which takes effect when the VF is bound next.
    SetVfMac { vf: VfRef, mac: MacAddr },
    /// Sets the node and port GUID of a VF, which take effect when the VF is bound next.
    SetVfGuid { vf: VfRef, guid: Guid },
    /// Binds a VF to a driver, or rebinds it.
    BindVf { vf: VfRef, driver: VfDriver },
    /// Sets the MTU of a VF's interface.
    SetVfMtu { vf: VfRef, mtu: u32 },
    /// Creates a vDPA device on a VF, with this driver.
    MakeVdpa { vf: VfRef, kind: VdpaKind },
    /// Removes the vDPA device of a VF.
    RemoveVdpa { vf: VfRef },

    // A software bridge.
    /// Creates an Open vSwitch bridge and its uplink, or changes their settings, in one transaction. Fails if the bridge
    /// is no longer `observed` (`None`: there is no bridge of this name).
    SetOvsBridge { pf: PciAddress, bridge: OvsBridgeChange, observed: Option<OvsBridgeFacts> },
    /// Removes an Open vSwitch bridge with its internal port and these ports. Fails if the bridge is no longer
    /// `observed`.
    RemoveOvsBridge { pf: PciAddress, observed: OvsBridgeFacts },
    /// Removes a port from an Open vSwitch bridge. Fails if the bridge is no longer `observed`.
    RemoveOvsPort { pf: PciAddress, port: String, observed: OvsBridgeFacts },
    /// Creates a Linux bridge with this alias, or gives the alias to the bridge that an interrupted step created.
    CreateLinuxBridge { pf: PciAddress, name: String, alias: String },
    /// Sets VLAN filtering, VLAN protocol and MTU of a Linux bridge, and sets it up. It accepts no router
    /// advertisements: with an address the node would use the bridge.
    SetLinuxBridge { pf: PciAddress, name: String, settings: LinuxBridgeState },
    /// Makes the interface of a PF a port of a Linux bridge.
    AttachUplink { pf: PciAddress, bridge: String },
    /// Removes the interface of a PF from a Linux bridge.
    DetachUplink { pf: PciAddress, bridge: String },
    /// Changes settings of the PF as a port of a Linux bridge, with names and values of bridge(8).
    SetBridgePort { pf: PciAddress, bridge: String, settings: BTreeMap<String, String> },
    /// Removes a Linux bridge that has this alias and no ports.
    RemoveLinuxBridge { pf: PciAddress, name: String, alias: String },

    // The machine.
    /// Sets `other_config:hw-offload` of Open vSwitch to `true`.
    EnableOvsOffload,
    /// Loads a kernel module with these options (`name=value`).
    LoadModule { module: String, options: Vec<String> },
    /// Writes a file of [`crate::files`].
    WriteFile { pf: Option<PciAddress>, file: HostFile },
    /// Removes a file of [`crate::files`].
    RemoveFile { pf: Option<PciAddress>, path: String },
    /// Installs the running program where systemd units start it at boot.
    InstallProgram { path: String },
    /// Enables a systemd unit.
    EnableUnit { unit: String },
    /// Disables a systemd unit.
    DisableUnit { unit: String },
    /// Changes the kernel arguments of the next boot.
    SetKernelArguments { loader: BootLoader, add: Vec<String>, remove: Vec<String> },
    /// Writes the requested reboots to disk.
    CountReboot { reboots: Reboots },
    /// Removes the requested reboots from disk, when their purpose is reached.
    ForgetReboots,
    /// Reboots the machine.
    Reboot,
}

/// File on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// Path below the host's root.
    pub path: String,
    /// Content.
    pub text: String,
    /// The file is executable.
    pub is_program: bool,
}

/// Open vSwitch bridge with its uplink after a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsBridgeChange {
    /// Name of the bridge.
    pub name: String,
    /// Datapath type; empty for `system`.
    pub datapath_type: String,
    /// `secure` or `standalone`; `None` for an empty column.
    pub fail_mode: Option<String>,
    /// Column external_ids of the bridge.
    pub external_ids: MapChange,
    /// Column other_config of the bridge.
    pub other_config: MapChange,
    /// Uplink of the bridge.
    pub uplink: OvsUplinkChange,
    /// Ports to remove: uplinks with an earlier name of the PF.
    pub stale_ports: Vec<String>,
}

/// Uplink of an Open vSwitch bridge after a step: a port with one interface of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsUplinkChange {
    /// Name of the port and of the interface.
    pub name: String,
    /// Column external_ids of the port.
    pub port_external_ids: MapChange,
    /// Type of the interface; empty for `system`.
    pub type_: String,
    /// Column options of the interface.
    pub options: MapChange,
    /// Column external_ids of the interface.
    pub external_ids: MapChange,
    /// Column other_config of the interface.
    pub other_config: MapChange,
    /// Column mtu_request of the interface; `None` for an empty column.
    pub mtu_request: Option<i64>,
}

/// Change of a map. Entries that are not mentioned are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapChange {
    /// Entries that the map has afterwards.
    pub set: BTreeMap<String, String>,
    /// Keys that the map does not have afterwards, unless they are in `set`.
    pub remove: BTreeSet<String>,
}

impl MapChange {
    /// Returns whether `map` already has the result.
    pub fn is_done(&self, map: &BTreeMap<String, String>) -> bool {
        self.set.iter().all(|(key, value)| map.get(key) == Some(value))
            && !self.remove.iter().any(|key| map.contains_key(key) && !self.set.contains_key(key))
    }

    /// Returns `map` after the change.
    #[must_use]
    pub fn apply(&self, map: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let kept = map.iter().filter(|(key, _)| !self.remove.contains(*key));
        let set = self.set.iter();
        kept.chain(set).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// Settings of a Linux bridge after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxBridgeState {
    /// VLAN filtering is enabled.
    pub vlan_filtering: bool,
    /// VLAN protocol.
    pub vlan_protocol: BridgeVlanProtocol,
    /// MTU.
    pub mtu: u32,
}

/// Part of a machine that a step changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The whole machine: modules, files, units, kernel arguments.
    Machine,
    /// PF with all its VFs.
    Pf(PciAddress),
    /// Software bridge with this PF as uplink.
    Bridge(PciAddress),
    /// Single VF.
    Vf(VfRef),
}

impl Target {
    /// Returns the PF of the target; `None` for the machine.
    pub const fn pf(self) -> Option<PciAddress> {
        match self {
            Self::Machine => None,
            Self::Pf(pf) | Self::Bridge(pf) => Some(pf),
            Self::Vf(vf) => Some(vf.pf),
        }
    }

    /// Returns the lane of the target. Steps of one lane run in order, steps of different lanes are independent.
    #[must_use]
    pub const fn lane(self) -> Self {
        match self {
            Self::Machine | Self::Pf(_) => self,
            Self::Bridge(pf) => Self::Pf(pf),
            Self::Vf(vf) => Self::Pf(vf.pf),
        }
    }

    /// Returns whether steps on `self` and `other` must not run at the same time. Two VFs of one PF can be changed in
    /// parallel, a PF and its VFs cannot.
    pub fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Vf(one), Self::Vf(other)) => one == other,
            _ => self.lane() == other.lane(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the machine"),
            Self::Pf(pf) => pf.fmt(f),
            Self::Bridge(pf) => write!(f, "the bridge of {pf}"),
            Self::Vf(vf) => vf.fmt(f),
        }
    }
}

impl Step {
    /// Returns the part of the machine that the step changes.
    pub fn target(&self) -> Target {
        match self {
            Self::WriteRecord { record } => Target::Pf(record.pf),
            Self::RemoveRecord { pf }
            | Self::SetLinkUp { pf }
            | Self::SetPfMtu { pf, .. }
            | Self::SetAutoprobe { pf, .. }
            | Self::SetNumVfs { pf, .. }
            | Self::SetEswitchMode { pf, .. }
            | Self::SetTcOffload { pf, .. }
            | Self::SetSoftwareSteering { pf }
            | Self::SetFirmware { pf, .. }
            | Self::ResetFirmware { pf }
            | Self::ReplayUdev { pf } => Target::Pf(*pf),
            Self::SetVfMac { vf, .. }
            | Self::SetVfGuid { vf, .. }
            | Self::BindVf { vf, .. }
            | Self::SetVfMtu { vf, .. }
            | Self::MakeVdpa { vf, .. }
            | Self::RemoveVdpa { vf } => Target::Vf(*vf),
            Self::SetOvsBridge { pf, .. }
            | Self::RemoveOvsBridge { pf, .. }
            | Self::RemoveOvsPort { pf, .. }
            | Self::CreateLinuxBridge { pf, .. }
            | Self::SetLinuxBridge { pf, .. }
            | Self::AttachUplink { pf, .. }
            | Self::DetachUplink { pf, .. }
            | Self::SetBridgePort { pf, .. }
            | Self::RemoveLinuxBridge { pf, .. } => Target::Bridge(*pf),
            Self::WriteFile { pf, .. } | Self::RemoveFile { pf, .. } => {
                pf.map_or(Target::Machine, Target::Pf)
            }
            Self::EnableOvsOffload
            | Self::LoadModule { .. }
            | Self::InstallProgram { .. }
            | Self::EnableUnit { .. }
            | Self::DisableUnit { .. }
            | Self::SetKernelArguments { .. }
            | Self::CountReboot { .. }
            | Self::ForgetReboots
            | Self::Reboot => Target::Machine,
        }
    }

    /// Returns the PF that the step changes; `None` for the machine.
    pub fn pf(&self) -> Option<PciAddress> {
        self.target().pf()
    }

    /// Returns the VF that the step changes; `None` for a whole PF and for the machine.
    pub fn vf(&self) -> Option<VfRef> {
        match self.target() {
            Target::Vf(vf) => Some(vf),
            Target::Pf(_) | Target::Bridge(_) | Target::Machine => None,
        }
    }

    /// Returns whether the step helps to create, configure or repair a bridge. VFs do not need it.
    pub fn sets_up_bridge(&self) -> bool {
        match self {
            Self::SetOvsBridge { .. }
            | Self::CreateLinuxBridge { .. }
            | Self::SetLinuxBridge { .. }
            | Self::AttachUplink { .. }
            | Self::SetBridgePort { .. }
            | Self::EnableOvsOffload => true,
            Self::WriteFile { file, .. } => files::is_for_bridges(&file.path),
            _ => false,
        }
    }

    /// Returns whether a new plan follows if the kernel refuses the step.
    pub const fn is_trial(&self) -> bool {
        matches!(self, Self::SetEswitchMode { trial: Some(_), .. })
    }

    /// Returns whether the step reboots the machine, or only matters if a reboot follows.
    pub fn leads_to_reboot(&self) -> bool {
        matches!(self, Self::SetKernelArguments { .. } | Self::CountReboot { .. } | Self::Reboot)
    }

    /// Returns whether the step must wait while another step changes `running`. This is the only rule about parallel
    /// steps: targets that exclude each other are not changed in parallel, and no step that leads to a reboot runs
    /// while anything is changed. A running step that `is_overdue` does not delay a reboot, since a driver that hangs
    /// may never return.
    pub fn waits_for(&self, running: Target, is_overdue: bool) -> bool {
        self.target().excludes(running) || (self.leads_to_reboot() && !is_overdue)
    }
}

/// Driver of a VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VfDriver {
    /// Driver that the kernel selects.
    Kernel,
    /// Driver with this name.
    Named(String),
}

/// Returns whether `name` is a userspace driver.
pub fn is_userspace_driver(name: &str) -> bool {
    matches!(name, "vfio-pci" | "uio_pci_generic" | "igb_uio")
}
