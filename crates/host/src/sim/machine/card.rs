use serde::{Deserialize, Serialize};
use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_plan::firmware::{FirmwareLinkType, FirmwareSettings};
use vfleet_plan::{EswitchMode, HostUse, LinkKind};

/// A network card that can have VFs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of a card")]
pub struct MachinePf {
    /// PCI address.
    pub address: PciAddress,
    /// Name of its interface.
    pub name: String,
    /// Other names of it.
    #[serde(default)]
    pub alt_names: Vec<String>,
    /// Its Ethernet address.
    #[serde(default)]
    pub mac: Option<MacAddr>,
    /// The Ethernet address that it was made with.
    #[serde(default)]
    pub permanent_mac: Option<MacAddr>,
    /// PCI vendor id, of its VFs too.
    pub vendor: HexId,
    /// PCI device id.
    pub device: HexId,
    /// PCI device id of its VFs.
    pub vf_device: HexId,
    /// Driver; without one it has no interface.
    #[serde(default)]
    pub driver: Option<String>,
    /// Driver of the kernel for its VFs.
    pub vf_driver: String,
    /// How many VFs it can have, at most.
    pub total_vfs: u16,
    /// Routing ids from it to its first VF.
    #[serde(default = "vf_offset")]
    pub vf_offset: u16,
    /// Routing ids from one VF to the next.
    #[serde(default = "vf_stride")]
    pub vf_stride: u16,
    /// MTU.
    #[serde(default = "mtu")]
    pub mtu: u32,
    /// The highest MTU that it takes.
    #[serde(default)]
    pub max_mtu: Option<u32>,
    /// Whether it is set up.
    #[serde(default = "yes")]
    pub up: bool,
    /// Speed in Mbit/s while it is up.
    #[serde(default)]
    pub speed: Option<u32>,
    /// Whether the kernel binds its VFs by itself.
    #[serde(default = "yes")]
    pub autoprobe: bool,
    /// How many VFs it has from the start.
    #[serde(default)]
    pub num_vfs: u16,
    /// The NUMA node that it is near to.
    #[serde(default)]
    pub numa_node: Option<u16>,
    /// What it speaks.
    #[serde(default)]
    pub link_kind: CardLinkKind,
    /// Mode of its embedded switch, if it has one.
    #[serde(default)]
    pub eswitch: Option<EswitchMode>,
    /// Whether representors keep the names that the kernel gives them: something sets them up at once, and kernels before
    /// 6.2 rename no interface that is up.
    #[serde(default)]
    pub stuck_representors: bool,
    /// When the mode of its embedded switch can be changed.
    #[serde(default)]
    pub eswitch_rule: EswitchRule,
    /// Whether traffic control is offloaded to it, if that can be switched.
    #[serde(default)]
    pub tc_offload: Option<bool>,
    /// Whether it and its VFs are RDMA devices.
    #[serde(default)]
    pub rdma: bool,
    /// The node GUID of its RDMA device.
    #[serde(default)]
    pub node_guid: Option<Guid>,
    /// The GUID of its port.
    #[serde(default)]
    pub port_guid: Option<Guid>,
    /// Settings of its firmware.
    #[serde(default)]
    pub firmware: Option<CardFirmware>,
    /// Whether a hypervisor gave it: a VF without its PF.
    #[serde(default)]
    pub lone_vf: bool,
    /// The network that a cloud says that it is on.
    #[serde(default)]
    pub net_filter: Option<String>,
    /// What the node itself uses it for.
    #[serde(default)]
    pub host_use: Option<HostUse>,
}

impl MachinePf {
    /// Where its VF number `index` is.
    pub fn vf_address(&self, index: u16) -> Option<PciAddress> {
        let distance = index.checked_mul(self.vf_stride)?.checked_add(self.vf_offset)?;
        self.address.offset(distance)
    }

    /// Whether it and its VFs are RDMA devices, as InfiniBand always is.
    pub fn has_rdma(&self) -> bool {
        self.rdma || self.link_kind == CardLinkKind::Infiniband
    }

    /// Why such a card cannot be, apart from other cards.
    pub(super) fn fault(&self) -> Option<String> {
        if self.total_vfs == 0 {
            return Some("totalVfs is 0: a card without VFs is none of ours".to_owned());
        }
        if self.num_vfs > self.total_vfs {
            return Some(format!("numVfs {} is more than totalVfs {}", self.num_vfs, self.total_vfs));
        }
        if self.vf_offset == 0 || self.vf_stride == 0 || self.vf_address(self.total_vfs - 1).is_none() {
            return Some(
                "with this vfOffset and vfStride its VFs do not fit into the PCI address space".to_owned(),
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

/// When the mode of an embedded switch can be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EswitchRule {
    /// As the card's driver has it: with ice as [`Self::NoVfs`], with mlx5 as [`Self::FreeVfs`], else at any time.
    #[default]
    OfDriver,
    /// At any time.
    AnyTime,
    /// While there are VFs. Without them the mode is legacy and not even told, as mlx5 did before Linux 6.0.
    NeedsVfs,
    /// While there are no VFs.
    NoVfs,
    /// Into switchdev mode while no driver holds a VF.
    FreeVfs,
    /// Never: every change is refused with EBUSY.
    Never,
    /// Never: every change is refused with EOPNOTSUPP.
    Unsupported,
}

impl EswitchRule {
    /// The rule that a card of `driver` follows.
    pub(in crate::sim) fn with_driver(self, driver: Option<&str>) -> Self {
        match (self, driver) {
            (Self::OfDriver, Some("ice")) => Self::NoVfs,
            (Self::OfDriver, Some("mlx5_core")) => Self::FreeVfs,
            (Self::OfDriver, _) => Self::AnyTime,
            (rule, _) => rule,
        }
    }
}

/// What a card speaks, as node states spell it.
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

/// Settings of a card's firmware, which all its ports share. One that is left out is one that the card does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CardFirmware {
    /// `SRIOV_EN`.
    #[serde(default)]
    pub sriov: Option<bool>,
    /// `NUM_OF_VFS`.
    #[serde(default)]
    pub num_vfs: Option<u16>,
    /// `LINK_TYPE_P1` and `LINK_TYPE_P2`: `ETH`, `IB` or any other word.
    #[serde(default)]
    pub link_types: Vec<String>,
}

impl From<&CardFirmware> for FirmwareSettings {
    fn from(card: &CardFirmware) -> Self {
        let link_type = |port: usize| card.link_types.get(port).map(|word| firmware_link_type(word));
        Self { sriov: card.sriov, num_vfs: card.num_vfs, link_types: [link_type(0), link_type(1)] }
    }
}

fn firmware_link_type(word: &str) -> FirmwareLinkType {
    match word {
        "ETH" => FirmwareLinkType::Ethernet,
        "IB" => FirmwareLinkType::Infiniband,
        other => FirmwareLinkType::Other(other.to_owned()),
    }
}

/// A PCI id as node states spell it: `10c9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HexId(pub u16);

impl TryFrom<String> for HexId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_id = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u16::from_str_radix(&text, 16) {
            Ok(id) if is_id => Ok(Self(id)),
            _ => Err(format!("{text:?} is not a PCI id of four hexadecimal digits, such as \"10c9\"")),
        }
    }
}

impl From<HexId> for String {
    fn from(id: HexId) -> Self {
        format!("{:04x}", id.0)
    }
}
