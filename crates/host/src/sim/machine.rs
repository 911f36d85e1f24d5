use serde::{Deserialize, Serialize};
use thiserror::Error;
use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::Record;

/// What a machine is made of. In YAML, with every field that a PF can have:
///
/// ```
/// # let machine = vfleet_host::sim::Machine::from_yaml(r#"
/// pfs:
///   - address: "0000:3b:00.0"
///     name: ens1f0
///     altNames: [enp59s0f0]      # default: none
///     mac: 3c:fd:fe:00:00:01     # default: made from the seed, different for each node
///     vendor: "8086"             # PCI ids, as a node state spells them
///     device: "158b"
///     vfDevice: "154c"
///     driver: i40e               # leave out for a card without a driver
///     vfDriver: iavf             # the one that the kernel chooses for VFs
///     totalVfs: 64
///     vfOffset: 16               # how far its first VF is behind it; default 128
///     vfStride: 1                # how far VFs lie apart; default 1
///     mtu: 1500                  # default 1500
///     maxMtu: 9702               # default: the driver does not say
///     up: true                   # default true
///     speed: 25000               # Mbit/s while it is up; default: the driver does not say
///     autoprobe: true            # whether the kernel binds VFs by itself; default true
///     numVfs: 0                  # VFs that it has from the start; default 0
/// userspaceDrivers: [vfio-pci]   # loaded drivers for VFs in programs; default: none
/// records: []                    # what vfleet wrote down earlier; default: nothing
/// # "#).unwrap();
/// # assert_eq!(machine.pfs[0].total_vfs, 64);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// Its network cards that can have VFs.
    pub pfs: Vec<MachinePf>,
    /// The drivers for VFs in programs that are loaded.
    #[serde(default)]
    pub userspace_drivers: Vec<String>,
    /// What vfleet wrote down earlier.
    #[serde(default)]
    pub records: Vec<Record>,
}

/// A network card that can have VFs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
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
    /// How many VFs it can have.
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

/// Why a description is not one of a machine.
#[derive(Debug, Error)]
pub enum MachineError {
    #[error("{0}")]
    Yaml(#[from] serde_saphyr::Error),
    #[error("pfs: {pf}: {what}")]
    Impossible { pf: PciAddress, what: String },
}

impl Machine {
    /// The machine that `text` describes.
    pub fn from_yaml(text: &str) -> Result<Self, MachineError> {
        let machine: Self = serde_saphyr::from_str(text)?;
        machine.check()?;
        Ok(machine)
    }

    /// The machine of the VM lab: two Intel 82576 cards, as QEMU emulates them.
    pub fn lab() -> Self {
        let pf = |number: u8| {
            let address = PciAddress::new(0, number, 0, 0)?;
            Some(MachinePf {
                address,
                name: format!("enp{number}s0"),
                alt_names: vec![format!("enx02000000{number:02x}00")],
                mac: Some(MacAddr([2, 0, 0, 0, number, 0])),
                vendor: HexId(0x8086),
                device: HexId(0x10c9),
                vf_device: HexId(0x10ca),
                driver: Some("igb".to_owned()),
                vf_driver: "igbvf".to_owned(),
                total_vfs: 7,
                vf_offset: 128,
                vf_stride: 2,
                mtu: 1500,
                max_mtu: Some(9216),
                up: false,
                speed: Some(1000),
                autoprobe: true,
                num_vfs: 0,
            })
        };
        let pfs = [1, 2].into_iter().filter_map(pf).collect();
        Self { pfs, userspace_drivers: vec!["vfio-pci".to_owned()], records: Vec::new() }
    }

    /// That such a machine can be.
    pub fn check(&self) -> Result<(), MachineError> {
        for (at, pf) in self.pfs.iter().enumerate() {
            let others = &self.pfs[..at];
            let what = if others.iter().any(|other| other.address == pf.address) {
                "another PF has the same address".to_owned()
            } else if others.iter().any(|other| other.name == pf.name) {
                format!("another PF has the name {}, too", pf.name)
            } else if pf.total_vfs == 0 {
                "totalVfs is 0: a card without VFs is none of ours".to_owned()
            } else if pf.num_vfs > pf.total_vfs {
                format!("numVfs {} is more than totalVfs {}", pf.num_vfs, pf.total_vfs)
            } else if pf.vf_offset == 0 || pf.vf_stride == 0 || pf.vf_address(pf.total_vfs - 1).is_none() {
                "with this vfOffset and vfStride its VFs do not fit into the PCI address space".to_owned()
            } else if pf.max_mtu.is_some_and(|max| pf.mtu > max) {
                format!("mtu {} is more than maxMtu", pf.mtu)
            } else {
                continue;
            };
            return Err(MachineError::Impossible { pf: pf.address, what });
        }
        Ok(())
    }
}

impl MachinePf {
    /// Where its VF number `index` is.
    pub fn vf_address(&self, index: u16) -> Option<PciAddress> {
        let distance = index.checked_mul(self.vf_stride)?.checked_add(self.vf_offset)?;
        self.address.offset(distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
pfs:
  - address: "0000:01:00.0"
    name: eth0
    vendor: "8086"
    device: "10c9"
    vfDevice: "10ca"
    driver: igb
    vfDriver: igbvf
    totalVfs: 7
"#;

    #[test]
    fn little_need_be_said() {
        let machine = Machine::from_yaml(SMALL).unwrap();
        assert_eq!((machine.pfs[0].mtu, machine.pfs[0].up, machine.pfs[0].num_vfs), (1500, true, 0));
        assert_eq!(machine.pfs[0].vendor, HexId(0x8086));
    }

    #[test]
    fn a_machine_survives_a_round_trip() {
        let text = serde_saphyr::to_string(&Machine::lab()).unwrap();
        assert_eq!(Machine::from_yaml(&text).unwrap(), Machine::lab());
    }

    #[test]
    fn errors_say_where_and_what() {
        for (from, to, said) in [
            ("totalVfs: 7", "totalVfs: 7\n    colour: red", "colour"),
            ("totalVfs: 7", "totalVfs: many", "line 10"),
            ("totalVfs: 7", "totalVfs: 0", "totalVfs is 0"),
            ("totalVfs: 7", "totalVfs: 7\n    numVfs: 8", "numVfs 8 is more than totalVfs 7"),
            ("totalVfs: 7", "totalVfs: 7\n    vfStride: 60000", "do not fit"),
            ("\"8086\"", "\"0x8086\"", "four hexadecimal digits"),
            ("0000:01:00.0", "01:00.0", "0000:3b:00.0"),
            ("    name: eth0\n", "", "name"),
        ] {
            let error = Machine::from_yaml(&SMALL.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }

    #[test]
    fn two_cards_cannot_share_an_address_or_a_name() {
        let mut machine = Machine::lab();
        machine.pfs[1].address = machine.pfs[0].address;
        assert!(machine.check().unwrap_err().to_string().contains("same address"));
        let mut machine = Machine::lab();
        machine.pfs[1].name = machine.pfs[0].name.clone();
        assert!(machine.check().unwrap_err().to_string().contains("enp1s0"));
    }
}
