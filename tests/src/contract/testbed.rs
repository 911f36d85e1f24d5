//! Test bed of the contract suite: the machine on which a case runs.

use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_host::attachment::AttachmentHost;
use vfleet_host::{Host, HostError, format_error_chain};
use vfleet_plan::{FirmwareFacts, VdpaKind};

use super::bridges::{BridgeObserver, LinuxBridgeAdministrator, OvsAdministrator};
use super::coverage::Environment;
use super::observed::{ObservedEswitch, ObservedGuids, ObservedPf};
use super::pods::{PodAdministrator, PodObserver};
use super::switch_ports::PortObserver;

/// Machine on which a case runs. It has two cards with MTU 1500, autoprobe on, link down, no records, no VFs and no
/// software bridges, unless the setup of the case (`Case::setup`) says otherwise: then [`TestBed::pf`] is set up accordingly.
pub trait TestBed {
    /// Returns the host under test.
    fn host(&self) -> &dyn Host;
    /// Returns the host under test, as CNI plugins use it.
    fn attachments(&self) -> &dyn AttachmentHost;
    /// Creates a host for the same machine, as another process would.
    fn new_host(&self) -> Box<dyn Host + '_>;
    /// Returns the card that the case configures.
    fn pf(&self) -> PciAddress;
    /// Returns the second card, which the case must leave alone.
    fn other_pf(&self) -> PciAddress;
    /// Returns the observer, which reads the machine without the host.
    fn observer(&self) -> &dyn Observer;
    /// Returns the administrator, who changes the machine without the host.
    fn admin(&self) -> &dyn Administrator;
    /// Returns the environment of this test bed.
    fn environment(&self) -> Environment;

    /// Returns whether changes take only milliseconds, so that a case can try all variants and not only a few.
    fn is_fast(&self) -> bool {
        self.environment() == Environment::Sim
    }
}

/// Independent reader of the machine, which never uses the facts of a host.
pub trait Observer: BridgeObserver + PodObserver + PortObserver + Send + Sync {
    /// Reads all cards that can have VFs.
    fn pfs(&self) -> Result<Vec<ObservedPf>, CaseError>;
    /// Reads the record of a PF.
    fn record(&self, pf: PciAddress) -> Result<Option<ObservedFile>, CaseError>;
    /// Reads the record of a PF that is in the format and directory of the Go daemon.
    fn go_record(&self, pf: PciAddress) -> Result<Option<ObservedFile>, CaseError>;
    /// Reads the file at `path`.
    fn file(&self, path: &str) -> Result<Option<ObservedFile>, CaseError>;
    /// Returns whether `path` is an executable file.
    fn has_program(&self, path: &str) -> Result<bool, CaseError>;
    /// Returns whether systemd starts a unit at boot.
    fn is_unit_enabled(&self, unit: &str) -> Result<bool, CaseError>;
    /// Returns whether a kernel module is loaded.
    fn is_module_loaded(&self, module: &str) -> Result<bool, CaseError>;
    /// Reads the command line of the kernel.
    fn command_line(&self) -> Result<String, CaseError>;
    /// Reads the boot ID of the kernel.
    fn boot_id(&self) -> Result<String, CaseError>;
    /// Returns whether an IOMMU is enabled.
    fn has_iommu(&self) -> Result<bool, CaseError>;
    /// Reads the permanent MAC address of a card.
    fn permanent_mac(&self, pf: PciAddress) -> Result<Option<MacAddr>, CaseError>;
    /// Reads the embedded switch of a card.
    fn eswitch(&self, pf: PciAddress) -> Result<ObservedEswitch, CaseError>;
    /// Reads the GUIDs of a card and its VFs.
    fn guids(&self, pf: PciAddress) -> Result<ObservedGuids, CaseError>;
    /// Reads the vDPA devices of the VFs of a card, by index.
    fn vdpa(&self, pf: PciAddress) -> Result<Vec<Option<VdpaKind>>, CaseError>;
    /// Reads the firmware settings of a card, or `None` if there is no tool for them.
    fn firmware(&self, pf: PciAddress) -> Result<Option<FirmwareFacts>, CaseError>;

    /// Reads one card.
    fn pf(&self, pf: PciAddress) -> Result<ObservedPf, CaseError> {
        let found = self.pfs()?.into_iter().find(|observed| observed.address == pf);
        found.ok_or_else(|| CaseError::Failed(format!("the observer finds no PF at {pf}")))
    }
}

/// File on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedFile {
    pub text: String,
    /// Permissions, or `None` if the machine is a model without permissions.
    pub mode: Option<u32>,
}

impl ObservedFile {
    /// Parses the text as JSON.
    pub fn parse_json(&self) -> Result<serde_json::Value, CaseError> {
        serde_json::from_str(&self.text)
            .map_err(|error| CaseError::Failed(format!("{error} in {}", self.text)))
    }
}

/// PF or VF whose interface is used.
#[derive(Clone, Copy, Debug)]
pub enum PciFunction {
    Pf(PciAddress),
    Vf(VfRef),
}

/// Path of a default route to an interface.
#[derive(Clone, Copy, Debug)]
pub enum RoutePath {
    Direct,
    /// Through a VLAN interface on top of the interface.
    Vlan,
    /// Through a bridge that the interface is a port of.
    Bridge,
}

/// Administrator of the machine, who changes it without the host under test. Also stands for pods, udev and the Go
/// daemon.
///
/// All effects are visible when a call returns.
pub trait Administrator:
    LinuxBridgeAdministrator + OvsAdministrator + PodAdministrator + Send + Sync
{
    fn set_num_vfs(&self, pf: PciAddress, count: u16) -> CaseResult;
    fn set_autoprobe(&self, pf: PciAddress, on: bool) -> CaseResult;
    fn set_up(&self, pf: PciAddress, up: bool) -> CaseResult;
    fn set_mtu(&self, pf: PciAddress, mtu: u32) -> CaseResult;
    fn set_alt_name(&self, pf: PciAddress, name: &str) -> CaseResult;
    fn set_vf_mac(&self, vf: VfRef, mac: MacAddr) -> CaseResult;
    fn set_override(&self, vf: VfRef, driver: Option<&str>) -> CaseResult;
    fn unbind(&self, vf: VfRef) -> CaseResult;
    /// Renames the interface of a VF, as udev does shortly after the interface appeared.
    fn rename(&self, vf: VfRef, name: &str) -> CaseResult;
    /// Moves the interface of a VF to another network namespace, as if a pod used it.
    fn move_to_other_netns(&self, vf: VfRef) -> CaseResult;
    /// Moves the interface of a VF back from the other network namespace.
    fn move_back_from_other_netns(&self, vf: VfRef) -> CaseResult;
    /// Sets a VLAN, trust, spoof checking and a maximum rate of a VF through its PF.
    fn set_vf_options(&self, vf: VfRef) -> CaseResult;
    /// Creates a software RDMA device on the interface of a VF.
    fn add_soft_rdma(&self, vf: VfRef) -> CaseResult;
    /// Sets an interface up and adds a default route through it.
    fn add_default_route(&self, function: PciFunction, path: RoutePath) -> CaseResult;
    /// Removes the default route, with the VLAN or bridge that was created for it.
    fn remove_default_route(&self) -> CaseResult;
    /// Writes a record of a PF in the directory and format of the Go daemon. Tests of `vfleet-host` compare the format
    /// with records that the Go daemon wrote.
    fn write_go_record(&self, interface: &Interface) -> CaseResult;
    /// Truncates the existing record of a PF; with `with_copy` also the copy in the format of the Go daemon.
    fn truncate_record(&self, pf: PciAddress, with_copy: bool) -> CaseResult;
    /// Writes a file, or removes it if `text` is `None`.
    fn write_file(&self, path: &str, text: Option<&str>) -> CaseResult;
    /// Rewrites the list of kernel modules, as the installation of a module does.
    fn rewrite_module_list(&self) -> CaseResult;
    /// Unloads a kernel module if it is loaded.
    fn unload_module(&self, module: &str) -> CaseResult;
    /// Sets whether network namespaces share RDMA devices.
    fn set_rdma_mode(&self, mode: RdmaMode) -> CaseResult;
    /// Waits until udev has handled all events of the kernel.
    fn settle(&self) -> CaseResult;
}

/// Result of a case, or of a part of a case.
pub type CaseResult = Result<(), CaseError>;

/// Reason why a case did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseError {
    /// The host violates the contract.
    Failed(String),
    /// The test bed lacks something that the case needs.
    Unsupported(String),
}

impl From<HostError> for CaseError {
    fn from(error: HostError) -> Self {
        Self::Failed(format_error_chain(&error))
    }
}
