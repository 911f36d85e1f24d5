//! Observer of a Linux machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Deserialize;
use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::{FirmwareFacts, VdpaKind};

use super::eswitch;
use super::tools::{device, failed, link_target, read, run};
use crate::contract::observed::{ObservedEswitch, ObservedGuids, ObservedLink, ObservedPf, ObservedVf};
use crate::contract::testbed::{CaseError, ObservedFile, Observer};

pub(super) const RECORDS: &str = "/etc/sriov-operator/vfleet/pci";
pub(super) const GO_RECORDS: &str = "/etc/sriov-operator/pci";

/// Reads the output of `ip` and files of sysfs. Shares no code with `LinuxHost`.
pub(super) struct LinuxObserver;

/// Interface in the output of `ip -json -details link`.
#[derive(Debug, Deserialize)]
pub(super) struct IpLink {
    pub(super) ifname: String,
    #[serde(default)]
    altnames: Vec<String>,
    link_type: String,
    address: Option<String>,
    /// Missing if equal to `address`.
    permaddr: Option<String>,
    mtu: u32,
    #[serde(default)]
    max_mtu: u32,
    flags: Vec<String>,
    /// PCI address of the card.
    parentdev: Option<String>,
    phys_port_name: Option<String>,
    phys_switch_id: Option<String>,
    #[serde(default)]
    vfinfo_list: Vec<IpVf>,
}

impl IpLink {
    fn is_up(&self) -> bool {
        self.has_flag("UP")
    }

    pub(super) fn has_carrier(&self) -> bool {
        self.has_flag("LOWER_UP")
    }

    pub(super) fn is_ethernet(&self) -> bool {
        self.link_type == "ether"
    }

    /// Returns the switch ID and the port name.
    pub(super) fn switch_port(&self) -> Option<(String, String)> {
        self.phys_switch_id.clone().zip(self.phys_port_name.clone())
    }

    /// Returns whether the interface is a representor of a VF.
    fn is_representor(&self) -> bool {
        self.phys_port_name.as_deref().is_some_and(|name| name.contains("vf"))
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|set| set == flag)
    }
}

#[derive(Debug, Deserialize)]
struct IpVf {
    vf: usize,
    address: String,
}

/// Reads all interfaces in this network namespace.
pub(super) fn read_links() -> Result<Vec<IpLink>, CaseError> {
    let text = run("ip", &["-json", "-details", "link", "show"])?;
    serde_json::from_str(&text).map_err(|error| failed("ip -json", &error))
}

/// Returns the interface of a card. Representors have the same parent and are skipped.
pub(super) fn link_of(links: &[IpLink], address: PciAddress) -> Option<&IpLink> {
    let is_of_card = |link: &&IpLink| link.parentdev.as_deref() == Some(&address.to_string());
    links.iter().filter(is_of_card).find(|link| !link.is_representor())
}

impl Observer for LinuxObserver {
    fn pfs(&self) -> Result<Vec<ObservedPf>, CaseError> {
        let links = read_links()?;
        let mut addresses = Vec::new();
        let entries = fs::read_dir("/sys/bus/pci/devices").map_err(|error| failed("PCI devices", &error))?;
        for entry in entries.flatten().filter(|entry| entry.path().join("sriov_totalvfs").exists()) {
            addresses.push(parse_address(&entry.file_name().to_string_lossy())?);
        }
        addresses.sort();
        addresses.into_iter().map(|address| read_pf(address, &links)).collect()
    }

    /// Reads only this card, as others may be changing at the moment.
    fn pf(&self, pf: PciAddress) -> Result<ObservedPf, CaseError> {
        read_pf(pf, &read_links()?)
    }

    fn record(&self, pf: PciAddress) -> Result<Option<ObservedFile>, CaseError> {
        read_file(&Path::new(RECORDS).join(pf.to_string()))
    }

    fn go_record(&self, pf: PciAddress) -> Result<Option<ObservedFile>, CaseError> {
        read_file(&Path::new(GO_RECORDS).join(pf.to_string()))
    }

    fn file(&self, path: &str) -> Result<Option<ObservedFile>, CaseError> {
        read_file(Path::new(path))
    }

    fn has_program(&self, path: &str) -> Result<bool, CaseError> {
        let is_executable = |file: fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 == 0o111;
        Ok(Path::new(path).metadata().is_ok_and(is_executable))
    }

    /// Checks the symbolic links that `systemctl enable` creates.
    fn is_unit_enabled(&self, unit: &str) -> Result<bool, CaseError> {
        let entries =
            fs::read_dir("/etc/systemd/system").map_err(|error| failed("units of systemd", &error))?;
        let wants = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with(".wants"));
        Ok(wants.map(|entry| entry.path().join(unit)).any(|link| link.is_symlink()))
    }

    fn is_module_loaded(&self, module: &str) -> Result<bool, CaseError> {
        Ok(Path::new("/sys/module").join(module).exists())
    }

    fn command_line(&self) -> Result<String, CaseError> {
        read(Path::new("/proc/cmdline"))
    }

    fn boot_id(&self) -> Result<String, CaseError> {
        read(Path::new("/proc/sys/kernel/random/boot_id"))
    }

    fn has_iommu(&self) -> Result<bool, CaseError> {
        let groups =
            fs::read_dir("/sys/kernel/iommu_groups").map_err(|error| failed("IOMMU groups", &error))?;
        Ok(groups.count() > 0)
    }

    fn permanent_mac(&self, pf: PciAddress) -> Result<Option<MacAddr>, CaseError> {
        let links = read_links()?;
        let link = link_of(&links, pf);
        Ok(link.and_then(|link| link.permaddr.as_deref().or(link.address.as_deref())).and_then(mac))
    }

    fn eswitch(&self, pf: PciAddress) -> Result<ObservedEswitch, CaseError> {
        eswitch::read_eswitch(pf, link_of(&read_links()?, pf), vf_addresses(pf)?.len())
    }

    fn guids(&self, pf: PciAddress) -> Result<ObservedGuids, CaseError> {
        eswitch::read_guids(pf, link_of(&read_links()?, pf), &vf_addresses(pf)?)
    }

    fn vdpa(&self, pf: PciAddress) -> Result<Vec<Option<VdpaKind>>, CaseError> {
        eswitch::read_vdpa(&vf_addresses(pf)?)
    }

    /// Not supported if `mstconfig` is installed, because no card of the lab has firmware settings.
    fn firmware(&self, _: PciAddress) -> Result<Option<FirmwareFacts>, CaseError> {
        if Path::new("/usr/bin/mstconfig").exists() {
            return Err(CaseError::Unsupported(
                "the observer cannot read firmware settings with mstconfig".to_owned(),
            ));
        }
        Ok(None)
    }
}

fn vf_addresses(pf: PciAddress) -> Result<Vec<PciAddress>, CaseError> {
    let path = device(pf);
    let links = (0..).map_while(|index| link_target(&path.join(format!("virtfn{index}"))));
    links.map(|name| parse_address(&name)).collect()
}

fn read_file(path: &Path) -> Result<Option<ObservedFile>, CaseError> {
    if !path.exists() {
        return Ok(None);
    }
    let unreadable = |error| failed(&path.display().to_string(), &error);
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let mode = path.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    Ok(Some(ObservedFile { text, mode: Some(mode) }))
}

fn parse_address(name: &str) -> Result<PciAddress, CaseError> {
    name.parse().map_err(|error| failed(name, &error))
}

fn read_pf(address: PciAddress, links: &[IpLink]) -> Result<ObservedPf, CaseError> {
    let path = device(address);
    let link = link_of(links, address);
    let number = |name: &str| {
        let text = read(&path.join(name))?;
        text.parse::<u16>().map_err(|error| failed(name, &error))
    };
    let count = usize::from(number("sriov_numvfs")?);
    Ok(ObservedPf {
        address,
        vendor: id(&path, "vendor")?,
        device: id(&path, "device")?,
        driver: link_target(&path.join("driver")),
        total_vfs: number("sriov_totalvfs")?,
        autoprobe: number("sriov_drivers_autoprobe")? == 1,
        link: link.map(to_observed_link),
        vfs: (0..count).map(|index| read_vf(&path, index, link, links)).collect::<Result<_, _>>()?,
    })
}

fn read_vf(
    pf: &Path,
    index: usize,
    pf_link: Option<&IpLink>,
    links: &[IpLink],
) -> Result<ObservedVf, CaseError> {
    let name = format!("virtfn{index}");
    let address = parse_address(&link_target(&pf.join(&name)).ok_or_else(|| failed(&name, &"no link"))?)?;
    let path = device(address);
    let info = pf_link.and_then(|link| link.vfinfo_list.iter().find(|info| info.vf == index));
    let driver_override = read(&path.join("driver_override"))?;
    Ok(ObservedVf {
        address,
        vendor: id(&path, "vendor")?,
        device: id(&path, "device")?,
        driver: link_target(&path.join("driver")),
        driver_override: Some(driver_override).filter(|name| name != "(null)"),
        admin_mac: info.and_then(|info| mac(&info.address)),
        link: link_of(links, address).map(to_observed_link),
    })
}

pub(super) fn to_observed_link(link: &IpLink) -> ObservedLink {
    ObservedLink {
        name: link.ifname.clone(),
        alt_names: link.altnames.clone(),
        is_ethernet: link.is_ethernet(),
        mac: link.address.as_deref().and_then(mac),
        mtu: link.mtu,
        max_mtu: Some(link.max_mtu).filter(|max| *max > 0),
        up: link.is_up(),
    }
}

fn mac(text: &str) -> Option<MacAddr> {
    text.parse().ok()
}

fn id(device: &Path, name: &str) -> Result<u16, CaseError> {
    let text = read(&device.join(name))?;
    u16::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|error| failed(name, &error))
}
