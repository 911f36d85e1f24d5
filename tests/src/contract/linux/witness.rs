use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Deserialize;
use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::{FirmwareFacts, VdpaKind};

use super::switch;
use super::tools::{device, failed, read, run, target};
use crate::contract::bench::{SeenFile, Stop, Witness};
use crate::contract::seen::{SeenGuids, SeenLink, SeenPf, SeenSwitch, SeenVf};

pub(super) const RECORDS: &str = "/etc/sriov-operator/vfleet/pci";
pub(super) const GO_RECORDS: &str = "/etc/sriov-operator/pci";

/// Reads what `ip` says and the files of sysfs, by code of its own.
pub(super) struct LinuxWitness;

/// An interface as `ip -json -details link` tells it.
#[derive(Debug, Deserialize)]
pub(super) struct IpLink {
    pub(super) ifname: String,
    #[serde(default)]
    altnames: Vec<String>,
    link_type: String,
    address: Option<String>,
    /// Left out when it is the same as the address.
    permaddr: Option<String>,
    mtu: u32,
    #[serde(default)]
    max_mtu: u32,
    flags: Vec<String>,
    /// The PCI address of its card.
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

    /// Which switch it is a port of, and which port.
    pub(super) fn switch_port(&self) -> Option<(String, String)> {
        self.phys_switch_id.clone().zip(self.phys_port_name.clone())
    }

    /// Whether it stands for a VF on its card's switch.
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

/// All interfaces in this network namespace.
pub(super) fn links() -> Result<Vec<IpLink>, Stop> {
    let text = run("ip", &["-json", "-details", "link", "show"])?;
    serde_json::from_str(&text).map_err(|error| failed("ip -json", &error))
}

/// The interface of a card. Those that stand for its VFs have the same parent.
pub(super) fn link_of(links: &[IpLink], address: PciAddress) -> Option<&IpLink> {
    let is_of_card = |link: &&IpLink| link.parentdev.as_deref() == Some(&address.to_string());
    links.iter().filter(is_of_card).find(|link| !link.is_representor())
}

impl Witness for LinuxWitness {
    fn pfs(&self) -> Result<Vec<SeenPf>, Stop> {
        let links = links()?;
        let mut addresses = Vec::new();
        let entries = fs::read_dir("/sys/bus/pci/devices").map_err(|error| failed("PCI devices", &error))?;
        for entry in entries.flatten().filter(|entry| entry.path().join("sriov_totalvfs").exists()) {
            addresses.push(address_of(&entry.file_name().to_string_lossy())?);
        }
        addresses.sort();
        addresses.into_iter().map(|address| see_pf(address, &links)).collect()
    }

    /// Only this card: somebody may be at work on the others.
    fn pf(&self, pf: PciAddress) -> Result<SeenPf, Stop> {
        see_pf(pf, &links()?)
    }

    fn record(&self, pf: PciAddress) -> Result<Option<SeenFile>, Stop> {
        see_file(&Path::new(RECORDS).join(pf.to_string()))
    }

    fn go_record(&self, pf: PciAddress) -> Result<Option<SeenFile>, Stop> {
        see_file(&Path::new(GO_RECORDS).join(pf.to_string()))
    }

    fn file(&self, path: &str) -> Result<Option<SeenFile>, Stop> {
        see_file(Path::new(path))
    }

    fn has_program(&self, path: &str) -> Result<bool, Stop> {
        let is_executable = |file: fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 == 0o111;
        Ok(Path::new(path).metadata().is_ok_and(is_executable))
    }

    /// By the links that `systemctl enable` makes.
    fn is_enabled(&self, unit: &str) -> Result<bool, Stop> {
        let entries =
            fs::read_dir("/etc/systemd/system").map_err(|error| failed("units of systemd", &error))?;
        let wants = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with(".wants"));
        Ok(wants.map(|entry| entry.path().join(unit)).any(|link| link.is_symlink()))
    }

    fn is_loaded(&self, module: &str) -> Result<bool, Stop> {
        Ok(Path::new("/sys/module").join(module).exists())
    }

    fn command_line(&self) -> Result<String, Stop> {
        read(Path::new("/proc/cmdline"))
    }

    fn boot_id(&self) -> Result<String, Stop> {
        read(Path::new("/proc/sys/kernel/random/boot_id"))
    }

    fn has_iommu(&self) -> Result<bool, Stop> {
        let groups =
            fs::read_dir("/sys/kernel/iommu_groups").map_err(|error| failed("IOMMU groups", &error))?;
        Ok(groups.count() > 0)
    }

    fn permanent_mac(&self, pf: PciAddress) -> Result<Option<MacAddr>, Stop> {
        let links = links()?;
        let link = link_of(&links, pf);
        Ok(link.and_then(|link| link.permaddr.as_deref().or(link.address.as_deref())).and_then(mac))
    }

    fn switch(&self, pf: PciAddress) -> Result<SeenSwitch, Stop> {
        switch::see(pf, link_of(&links()?, pf), vf_addresses(pf)?.len())
    }

    fn guids(&self, pf: PciAddress) -> Result<SeenGuids, Stop> {
        switch::guids(pf, link_of(&links()?, pf), &vf_addresses(pf)?)
    }

    fn vdpa(&self, pf: PciAddress) -> Result<Vec<Option<VdpaKind>>, Stop> {
        switch::vdpa(&vf_addresses(pf)?)
    }

    /// Without the tool nobody can tell, and with it nobody has tried.
    fn firmware(&self, _: PciAddress) -> Result<Option<FirmwareFacts>, Stop> {
        if Path::new("/usr/bin/mstconfig").exists() {
            return Err(Stop::CannotShow("no firmware was read by mstconfig yet".to_owned()));
        }
        Ok(None)
    }
}

fn vf_addresses(pf: PciAddress) -> Result<Vec<PciAddress>, Stop> {
    let path = device(pf);
    let links = (0..).map_while(|index| target(&path.join(format!("virtfn{index}"))));
    links.map(|name| address_of(&name)).collect()
}

fn see_file(path: &Path) -> Result<Option<SeenFile>, Stop> {
    if !path.exists() {
        return Ok(None);
    }
    let unreadable = |error| failed(&path.display().to_string(), &error);
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let mode = path.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    Ok(Some(SeenFile { text, mode: Some(mode) }))
}

fn address_of(name: &str) -> Result<PciAddress, Stop> {
    name.parse().map_err(|error| failed(name, &error))
}

fn see_pf(address: PciAddress, links: &[IpLink]) -> Result<SeenPf, Stop> {
    let path = device(address);
    let link = link_of(links, address);
    let number = |name: &str| {
        let text = read(&path.join(name))?;
        text.parse::<u16>().map_err(|error| failed(name, &error))
    };
    let count = usize::from(number("sriov_numvfs")?);
    Ok(SeenPf {
        address,
        vendor: id(&path, "vendor")?,
        device: id(&path, "device")?,
        driver: target(&path.join("driver")),
        total_vfs: number("sriov_totalvfs")?,
        autoprobe: number("sriov_drivers_autoprobe")? == 1,
        link: link.map(see_link),
        vfs: (0..count).map(|index| see_vf(&path, index, link, links)).collect::<Result<_, _>>()?,
    })
}

fn see_vf(pf: &Path, index: usize, pf_link: Option<&IpLink>, links: &[IpLink]) -> Result<SeenVf, Stop> {
    let name = format!("virtfn{index}");
    let address = address_of(&target(&pf.join(&name)).ok_or_else(|| failed(&name, &"no link"))?)?;
    let path = device(address);
    let kept = pf_link.and_then(|link| link.vfinfo_list.iter().find(|info| info.vf == index));
    let driver_override = read(&path.join("driver_override"))?;
    Ok(SeenVf {
        address,
        vendor: id(&path, "vendor")?,
        device: id(&path, "device")?,
        driver: target(&path.join("driver")),
        driver_override: Some(driver_override).filter(|name| name != "(null)"),
        admin_mac: kept.and_then(|info| mac(&info.address)),
        link: link_of(links, address).map(see_link),
    })
}

fn see_link(link: &IpLink) -> SeenLink {
    SeenLink {
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

fn id(device: &Path, name: &str) -> Result<u16, Stop> {
    let text = read(&device.join(name))?;
    u16::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|error| failed(name, &error))
}
