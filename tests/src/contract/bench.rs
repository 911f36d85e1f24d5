use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_host::{Host, HostError, with_causes};
use vfleet_plan::{FirmwareFacts, VdpaKind};

use super::coverage::Environment;
use super::seen::{SeenGuids, SeenPf, SeenSwitch};

/// Where a case is tried: a machine with two cards, each with MTU 1500 and autoprobe on, set down, and without
/// records. Neither has VFs, unless the case wants to be given some (`Case::given`): then [`Bench::pf`] has them.
pub trait Bench {
    /// The host under test.
    fn host(&self) -> &dyn Host;
    /// Another process with a host of its own on the same machine.
    fn new_host(&self) -> Box<dyn Host + '_>;
    /// The card to work on.
    fn pf(&self) -> PciAddress;
    /// The other card.
    fn other_pf(&self) -> PciAddress;
    /// Looks at the machine.
    fn witness(&self) -> &dyn Witness;
    /// Changes the machine.
    fn outsider(&self) -> &dyn Outsider;
    /// Where this is.
    fn environment(&self) -> Environment;

    /// Whether changes cost milliseconds, so that a case can try all of something and not only some.
    fn is_fast(&self) -> bool {
        self.environment() == Environment::Sim
    }
}

/// Looks at the machine by means of its own, never through a host's facts.
pub trait Witness: Send + Sync {
    /// All cards that can have VFs.
    fn pfs(&self) -> Result<Vec<SeenPf>, Stop>;
    /// The record of a PF.
    fn record(&self, pf: PciAddress) -> Result<Option<SeenFile>, Stop>;
    /// The Go daemon's record of a PF.
    fn go_record(&self, pf: PciAddress) -> Result<Option<SeenFile>, Stop>;
    /// The file at `path`.
    fn file(&self, path: &str) -> Result<Option<SeenFile>, Stop>;
    /// Whether there is a program at `path` that may be started.
    fn has_program(&self, path: &str) -> Result<bool, Stop>;
    /// Whether systemd starts a unit at boot.
    fn is_enabled(&self, unit: &str) -> Result<bool, Stop>;
    /// Whether a module of the kernel is at work.
    fn is_loaded(&self, module: &str) -> Result<bool, Stop>;
    /// The arguments that the kernel was started with.
    fn command_line(&self) -> Result<String, Stop>;
    /// What this boot is called.
    fn boot_id(&self) -> Result<String, Stop>;
    /// Whether an IOMMU is at work.
    fn has_iommu(&self) -> Result<bool, Stop>;
    /// The address that a card was made with.
    fn permanent_mac(&self, pf: PciAddress) -> Result<Option<MacAddr>, Stop>;
    /// The embedded switch of a card.
    fn switch(&self, pf: PciAddress) -> Result<SeenSwitch, Stop>;
    /// The GUIDs of a card and its VFs.
    fn guids(&self, pf: PciAddress) -> Result<SeenGuids, Stop>;
    /// The vDPA devices of a card's VFs, by index.
    fn vdpa(&self, pf: PciAddress) -> Result<Vec<Option<VdpaKind>>, Stop>;
    /// The settings in the firmware of a card, where a tool can read them.
    fn firmware(&self, pf: PciAddress) -> Result<Option<FirmwareFacts>, Stop>;

    /// One card.
    fn pf(&self, pf: PciAddress) -> Result<SeenPf, Stop> {
        let found = self.pfs()?.into_iter().find(|seen| seen.address == pf);
        found.ok_or_else(|| Stop::Failed(format!("the witness sees no PF at {pf}")))
    }
}

/// A file as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFile {
    /// What it says.
    pub text: String,
    /// Its permissions, where there is a file.
    pub mode: Option<u32>,
}

impl SeenFile {
    /// What it says, in JSON.
    pub fn content(&self) -> Result<serde_json::Value, Stop> {
        serde_json::from_str(&self.text).map_err(|error| Stop::Failed(format!("{error} in {}", self.text)))
    }
}

/// An interface that somebody may use.
#[derive(Clone, Copy, Debug)]
pub enum Port {
    Pf(PciAddress),
    Vf(VfRef),
}

/// How a default route reaches an interface.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Direct,
    /// Through a VLAN on top of it.
    Vlan,
    /// Through a bridge that it is a port of.
    Bridge,
}

/// Somebody else on the machine, who has all effects when a call returns.
pub trait Outsider: Send + Sync {
    fn set_num_vfs(&self, pf: PciAddress, count: u16) -> Shown;
    fn set_autoprobe(&self, pf: PciAddress, on: bool) -> Shown;
    fn set_up(&self, pf: PciAddress, up: bool) -> Shown;
    fn set_mtu(&self, pf: PciAddress, mtu: u32) -> Shown;
    fn set_alt_name(&self, pf: PciAddress, name: &str) -> Shown;
    fn set_vf_mac(&self, vf: VfRef, mac: MacAddr) -> Shown;
    fn set_override(&self, vf: VfRef, driver: Option<&str>) -> Shown;
    fn unbind(&self, vf: VfRef) -> Shown;
    /// Gives the VF's interface another name, as udev does a moment after it appeared.
    fn rename(&self, vf: VfRef, name: &str) -> Shown;
    /// Moves the VF's interface into another network namespace, as a pod's.
    fn hold_elsewhere(&self, vf: VfRef) -> Shown;
    /// Moves it back.
    fn bring_back(&self, vf: VfRef) -> Shown;
    /// Gives a VF, through its PF, a VLAN, trust, no spoof checking and a highest rate.
    fn tune(&self, vf: VfRef) -> Shown;
    /// Makes a software RDMA device on top of a VF's interface.
    fn add_soft_rdma(&self, vf: VfRef) -> Shown;
    /// Has the node's default route lead through an interface, which is set up for it.
    fn lead_default_route(&self, port: Port, way: Way) -> Shown;
    /// Removes that route, and what it went through.
    fn remove_default_route(&self) -> Shown;
    /// Writes a record of a PF in the Go daemon's place and form: that the form is the same to the byte is shown by the
    /// tests of `vfleet-host`, with records of the Go daemon's own code.
    fn write_go_record(&self, interface: &Interface) -> Shown;
    /// Tears the record of a PF that is there: vfleet's, and the Go daemon's as well where `with_copy` says so.
    fn tear_record(&self, pf: PciAddress, with_copy: bool) -> Shown;
    /// Writes a file, or removes it.
    fn write_file(&self, path: &str, text: Option<&str>) -> Shown;
    /// Writes the lists of the kernel's modules anew, as the installation of a module does.
    fn list_modules_anew(&self) -> Shown;
    /// Takes a module from the kernel, if it is there.
    fn unload_module(&self, module: &str) -> Shown;
    /// Has network namespaces share the RDMA devices, or not.
    fn set_rdma_mode(&self, mode: RdmaMode) -> Shown;
    /// Waits until those who follow the kernel's events (udev) have finished.
    fn settle(&self) -> Shown;
}

/// The outcome of a case, or of a part of one.
pub type Shown = Result<(), Stop>;

/// Why a case ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The host does not do what the contract says.
    Failed(String),
    /// It cannot be shown on this bench, and why.
    CannotShow(String),
}

impl From<HostError> for Stop {
    fn from(error: HostError) -> Self {
        Self::Failed(with_causes(&error))
    }
}
