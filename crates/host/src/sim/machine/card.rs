//! Descriptions of cards.

use serde::{Deserialize, Serialize};
use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_plan::firmware::{FirmwareLinkType, FirmwareSettings};
use vfleet_plan::{EswitchMode, HostUse, LinkKind};

use super::VfRules;

/// Description of a network card that supports VFs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of a card")]
pub struct MachinePf {
    /// PCI address.
    pub address: PciAddress,
    /// Name of the interface.
    pub name: String,
    /// Alternative names of the interface.
    #[serde(default)]
    pub alt_names: Vec<String>,
    /// MAC address.
    #[serde(default)]
    pub mac: Option<MacAddr>,
    /// MAC address of the hardware.
    #[serde(default)]
    pub permanent_mac: Option<MacAddr>,
    /// PCI vendor ID of the PF and its VFs.
    pub vendor: HexId,
    /// PCI device ID.
    pub device: HexId,
    /// PCI device ID of its VFs.
    pub vf_device: HexId,
    /// Driver. A card without a driver has no interface.
    #[serde(default)]
    pub driver: Option<String>,
    /// Driver that the kernel binds to VFs.
    pub vf_driver: String,
    /// Maximum number of VFs.
    pub total_vfs: u16,
    /// Distance of routing IDs from the PF to its first VF.
    #[serde(default = "vf_offset")]
    pub vf_offset: u16,
    /// Distance of routing IDs between VFs.
    #[serde(default = "vf_stride")]
    pub vf_stride: u16,
    /// MTU.
    #[serde(default = "mtu")]
    pub mtu: u32,
    /// Maximum MTU.
    #[serde(default)]
    pub max_mtu: Option<u32>,
    /// Administrative state of the interface.
    #[serde(default = "yes")]
    pub up: bool,
    /// Speed in Mbit/s while the interface is up.
    #[serde(default)]
    pub speed: Option<u32>,
    /// `sriov_drivers_autoprobe`.
    #[serde(default = "yes")]
    pub autoprobe: bool,
    /// Number of VFs at the start.
    #[serde(default)]
    pub num_vfs: u16,
    /// NUMA node.
    #[serde(default)]
    pub numa_node: Option<u16>,
    /// Link type.
    #[serde(default)]
    pub link_kind: CardLinkKind,
    /// eswitch mode; `None` without an eswitch.
    #[serde(default)]
    pub eswitch: Option<EswitchMode>,
    /// Representors keep the names from the kernel: another program sets them up immediately, and kernels before 6.2 do
    /// not rename an interface that is up.
    #[serde(default)]
    pub stuck_representors: bool,
    /// Rule for changes of the eswitch mode.
    #[serde(default)]
    pub eswitch_rule: EswitchRule,
    /// `hw-tc-offload`; `None` if it cannot be switched.
    #[serde(default)]
    pub tc_offload: Option<bool>,
    /// The PF and its VFs have RDMA devices.
    #[serde(default)]
    pub rdma: bool,
    /// Node GUID of its RDMA device.
    #[serde(default)]
    pub node_guid: Option<Guid>,
    /// GUID of its port.
    #[serde(default)]
    pub port_guid: Option<Guid>,
    /// Firmware settings.
    #[serde(default)]
    pub firmware: Option<CardFirmware>,
    /// The card is a lone VF.
    #[serde(default)]
    pub lone_vf: bool,
    /// Network in a cloud, in the format of `netFilter`.
    #[serde(default)]
    pub net_filter: Option<String>,
    /// Use by the node.
    #[serde(default)]
    pub host_use: Option<HostUse>,
    /// Rules for the settings of VFs; default: those of the driver.
    #[serde(default)]
    pub vf_rules: Option<VfRules>,
    /// RDMA devices of VFs have the lowest free number as their name, which may be another one after each bind.
    #[serde(default)]
    pub numbers_rdma: bool,
}

impl MachinePf {
    /// Returns the address of the VF with this index.
    pub fn vf_address(&self, index: u16) -> Option<PciAddress> {
        let distance = index.checked_mul(self.vf_stride)?.checked_add(self.vf_offset)?;
        self.address.offset(distance)
    }

    /// Returns whether the PF and its VFs have RDMA devices, as InfiniBand cards always do.
    pub fn has_rdma(&self) -> bool {
        self.rdma || self.link_kind == CardLinkKind::Infiniband
    }

    /// Returns the rules for the settings of its VFs.
    pub fn vf_rules(&self) -> VfRules {
        self.vf_rules.clone().unwrap_or_else(|| VfRules::of_driver(self.driver.as_deref()))
    }

    /// Returns the first contradiction in the description of this card.
    pub(super) fn find_problem(&self) -> Option<String> {
        if self.total_vfs == 0 {
            return Some("totalVfs is 0: a card must support at least one VF".to_owned());
        }
        if self.num_vfs > self.total_vfs {
            return Some(format!("numVfs {} is more than totalVfs {}", self.num_vfs, self.total_vfs));
        }
        if self.vf_offset == 0 || self.vf_stride == 0 || self.vf_address(self.total_vfs - 1).is_none() {
            return Some(
                "with this vfOffset and vfStride the VFs do not fit into the PCI address space".to_owned(),
            );
        }
        if self.max_mtu.is_some_and(|max| self.mtu > max) {
            return Some(format!("mtu {} is more than maxMtu", self.mtu));
        }
        if self.lone_vf && (self.num_vfs > 0 || self.eswitch.is_some() || self.firmware.is_some()) {
            return Some("a loneVf has neither numVfs nor eswitch nor firmware".to_owned());
        }
        None
    }
}

const fn vf_offset() -> u16 {
    128
}

const fn vf_stride() -> u16 {
    1
}

const fn mtu() -> u32 {
    1500
}

const fn yes() -> bool {
    true
}

/// Rule for changes of the mode of an eswitch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EswitchRule {
    /// As the driver of the card: [`Self::NoVfs`] for ice, [`Self::FreeVfs`] for mlx5, else [`Self::AnyTime`].
    #[default]
    OfDriver,
    /// Allowed at any time.
    AnyTime,
    /// Allowed only with VFs. Without VFs the mode is legacy and is not reported, as by mlx5 before Linux 6.0.
    NeedsVfs,
    /// Allowed only without VFs.
    NoVfs,
    /// A change to switchdev is allowed only while no VF has a driver.
    FreeVfs,
    /// Every change is refused with EBUSY.
    Never,
    /// Every change is refused with EOPNOTSUPP.
    Unsupported,
}

impl EswitchRule {
    /// Returns the rule of a card with this driver.
    pub(in crate::sim) fn for_driver(self, driver: Option<&str>) -> Self {
        match (self, driver) {
            (Self::OfDriver, Some("ice")) => Self::NoVfs,
            (Self::OfDriver, Some("mlx5_core")) => Self::FreeVfs,
            (Self::OfDriver, _) => Self::AnyTime,
            (rule, _) => rule,
        }
    }
}

/// Link type of a card, as in node states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CardLinkKind {
    /// Ethernet.
    #[default]
    #[serde(rename = "ETH")]
    Ethernet,
    /// InfiniBand.
    #[serde(rename = "IB")]
    Infiniband,
}

impl From<CardLinkKind> for LinkKind {
    fn from(kind: CardLinkKind) -> Self {
        match kind {
            CardLinkKind::Ethernet => Self::Ethernet,
            CardLinkKind::Infiniband => Self::Infiniband,
        }
    }
}

/// Firmware settings of a card, which all its ports share. `None` is a setting that the card does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CardFirmware {
    /// `SRIOV_EN`.
    #[serde(default)]
    pub sriov: Option<bool>,
    /// `NUM_OF_VFS`.
    #[serde(default)]
    pub num_vfs: Option<u16>,
    /// `LINK_TYPE_P1` and `LINK_TYPE_P2`: `ETH`, `IB` or another value.
    #[serde(default)]
    pub link_types: Vec<String>,
}

impl From<&CardFirmware> for FirmwareSettings {
    fn from(card: &CardFirmware) -> Self {
        let link_type = |port: usize| card.link_types.get(port).map(|value| parse_firmware_link_type(value));
        Self { sriov: card.sriov, num_vfs: card.num_vfs, link_types: [link_type(0), link_type(1)] }
    }
}

fn parse_firmware_link_type(value: &str) -> FirmwareLinkType {
    match value {
        "ETH" => FirmwareLinkType::Ethernet,
        "IB" => FirmwareLinkType::Infiniband,
        other => FirmwareLinkType::Other(other.to_owned()),
    }
}

/// PCI ID as in node states: `10c9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HexId(pub u16);

impl TryFrom<String> for HexId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_id = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u16::from_str_radix(&text, 16) {
            Ok(id) if is_id => Ok(Self(id)),
            _ => Err(format!("{text:?} is not a PCI ID of four hexadecimal digits, such as \"10c9\"")),
        }
    }
}

impl From<HexId> for String {
    fn from(id: HexId) -> Self {
        format!("{:04x}", id.0)
    }
}
