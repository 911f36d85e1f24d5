use std::path::{Path, PathBuf};

use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{MacAddr, PciAddress, VfRef};

use super::carrier;
use super::leftovers::{self, NAMESPACE, SOFT_RDMA};
use super::routes;
use super::tools::{device, failed, put, read, run, target, write};
use super::witness::{GO_RECORDS, LinuxWitness, RECORDS};
use crate::contract::bench::{Outsider, Port, Shown, Stop, Way, Witness};
use crate::contract::seen::SeenPf;

const ALT_NAMES: [&str; 1] = ["contract-name"];

/// An administrator with `ip` and a shell.
pub(super) struct LinuxOutsider;

impl LinuxOutsider {
    /// Makes a card what every case expects to find.
    pub(super) fn clean(&self, pf: PciAddress) -> Shown {
        if read(&device(pf).join("sriov_numvfs"))? != "0" {
            self.set_num_vfs(pf, 0)?;
        }
        self.clean_pf(pf, false)
    }

    /// All but the VFs.
    fn clean_pf(&self, pf: PciAddress, up: bool) -> Shown {
        self.set_autoprobe(pf, true)?;
        let name = interface(pf)?;
        run("ip", &["link", "set", &name, if up { "up" } else { "down" }, "mtu", "1500"])?;
        for alt_name in ALT_NAMES {
            // It is rarely there.
            let _ = run("ip", &["link", "property", "del", "dev", &name, "altname", alt_name]);
        }
        Ok(())
    }

    /// Makes a card and its VFs what they were like when they were new; gives whether they are.
    pub(super) fn restore(&self, as_new: &SeenPf) -> Result<bool, Stop> {
        let pf = as_new.address;
        let mut seen = LinuxWitness.pf(pf)?;
        if seen == *as_new {
            return Ok(true);
        }
        if seen.vfs.len() != as_new.vfs.len() {
            return Ok(false);
        }
        self.clean_pf(pf, as_new.link.as_ref().is_some_and(|link| link.up))?;
        if seen.vfs == as_new.vfs {
            self.settle()?;
            return Ok(LinuxWitness.pf(pf)? == *as_new);
        }
        for forget_first in [true, false] {
            let used = (0..).zip(seen.vfs.iter().zip(&as_new.vfs)).filter(|(_, (seen, new))| seen != new);
            for (index, _) in used {
                let vf = VfRef { pf, index };
                if forget_first { self.forget(vf)? } else { self.rebind(vf)? }
            }
            self.settle()?;
            seen = LinuxWitness.pf(pf)?;
        }
        Ok(seen == *as_new)
    }

    /// Takes away what was set for a VF.
    fn forget(&self, vf: VfRef) -> Shown {
        self.set_vf_mac(vf, MacAddr::ZERO)?;
        self.set_override(vf, None)
    }

    /// Lets the kernel bind a VF anew.
    fn rebind(&self, vf: VfRef) -> Shown {
        if target(&vf_device(vf).join("driver")).is_some() {
            self.unbind(vf)?;
        }
        write(Path::new("/sys/bus/pci/drivers_probe"), &vf_address(vf)?.to_string())
    }
}

impl Outsider for LinuxOutsider {
    fn set_num_vfs(&self, pf: PciAddress, count: u16) -> Shown {
        write(&device(pf).join("sriov_numvfs"), &count.to_string())
    }

    fn set_autoprobe(&self, pf: PciAddress, on: bool) -> Shown {
        write(&device(pf).join("sriov_drivers_autoprobe"), if on { "1" } else { "0" })
    }

    fn set_up(&self, pf: PciAddress, up: bool) -> Shown {
        run("ip", &["link", "set", &interface(pf)?, if up { "up" } else { "down" }]).map(drop)
    }

    fn set_mtu(&self, pf: PciAddress, mtu: u32) -> Shown {
        run("ip", &["link", "set", &interface(pf)?, "mtu", &mtu.to_string()]).map(drop)
    }

    fn set_alt_name(&self, pf: PciAddress, name: &str) -> Shown {
        run("ip", &["link", "property", "add", "dev", &interface(pf)?, "altname", name]).map(drop)
    }

    fn set_vf_mac(&self, vf: VfRef, mac: MacAddr) -> Shown {
        let words = [&interface(vf.pf)?, "vf", &vf.index.to_string(), "mac", &mac.to_string()];
        run("ip", &[&["link", "set"], &words[..]].concat()).map(drop)
    }

    fn set_override(&self, vf: VfRef, driver: Option<&str>) -> Shown {
        write(&vf_device(vf).join("driver_override"), driver.unwrap_or("\n"))
    }

    fn unbind(&self, vf: VfRef) -> Shown {
        let address = vf_address(vf)?;
        write(&device(address).join("driver/unbind"), &address.to_string())
    }

    fn rename(&self, vf: VfRef, name: &str) -> Shown {
        run("ip", &["link", "set", &interface(vf_address(vf)?)?, "name", name]).map(drop)
    }

    fn hold_elsewhere(&self, vf: VfRef) -> Shown {
        if !Path::new("/run/netns").join(NAMESPACE).exists() {
            run("ip", &["netns", "add", NAMESPACE])?;
        }
        run("ip", &["link", "set", &interface(vf_address(vf)?)?, "netns", NAMESPACE]).map(drop)
    }

    fn bring_back(&self, vf: VfRef) -> Shown {
        // Inside the namespace the interface has the name that it had here.
        let text = run("ip", &["-netns", NAMESPACE, "-json", "-details", "link", "show"])?;
        let links: Vec<serde_json::Value> =
            serde_json::from_str(&text).map_err(|error| failed("ip -json", &error))?;
        let address = vf_address(vf)?.to_string();
        let link = links.iter().find(|link| link["parentdev"] == address.as_str());
        let name =
            link.and_then(|link| link["ifname"].as_str()).ok_or_else(|| failed(&address, &"not there"))?;
        run("ip", &["-netns", NAMESPACE, "link", "set", name, "netns", "1"]).map(drop)
    }

    fn tune(&self, vf: VfRef) -> Shown {
        // Whoever was here before may have changed its MTU.
        carrier::wait_for(vf.pf)?;
        let (pf, index) = (interface(vf.pf)?, vf.index.to_string());
        for words in [&["vlan", "100"][..], &["spoofchk", "off"], &["trust", "on"], &["max_tx_rate", "100"]] {
            run("ip", &[&["link", "set", &pf, "vf", &index], words].concat())?;
        }
        Ok(())
    }

    fn add_soft_rdma(&self, vf: VfRef) -> Shown {
        let name = interface(vf_address(vf)?)?;
        run("modprobe", &["rdma_rxe"])?;
        run("rdma", &["link", "add", SOFT_RDMA, "type", "rxe", "netdev", &name]).map(drop)
    }

    fn lead_default_route(&self, port: Port, way: Way) -> Shown {
        let name = match port {
            Port::Pf(pf) => interface(pf)?,
            Port::Vf(vf) => interface(vf_address(vf)?)?,
        };
        routes::lead(&name, way)
    }

    fn remove_default_route(&self) -> Shown {
        routes::remove()
    }

    fn write_go_record(&self, interface: &Interface) -> Shown {
        let text = serde_json::to_string(interface).map_err(|error| failed("a record", &error))?;
        put(&Path::new(GO_RECORDS).join(interface.pci_address.text()), &text)
    }

    fn tear_record(&self, pf: PciAddress, with_copy: bool) -> Shown {
        for directory in [RECORDS].into_iter().chain(with_copy.then_some(GO_RECORDS)) {
            let path = Path::new(directory).join(pf.to_string());
            let text = read(&path)?;
            put(&path, &text[..text.len() / 2])?;
        }
        Ok(())
    }

    fn write_file(&self, path: &str, text: Option<&str>) -> Shown {
        match text {
            Some(text) => put(Path::new(path), text),
            None => leftovers::remove(Path::new(path)),
        }
    }

    fn list_modules_anew(&self) -> Shown {
        let release = read(Path::new("/proc/sys/kernel/osrelease"))?;
        let list = format!("/lib/modules/{release}/modules.dep");
        let draft = format!("{list}.contract");
        run("cp", &["-p", &list, &draft])?;
        run("mv", &[&draft, &list]).map(drop)
    }

    fn unload_module(&self, module: &str) -> Shown {
        if Path::new("/sys/module").join(module).exists() {
            run("modprobe", &["-r", module])?;
        }
        Ok(())
    }

    /// Refused while there are other network namespaces.
    fn set_rdma_mode(&self, mode: RdmaMode) -> Shown {
        let word = match mode {
            RdmaMode::Shared => "shared",
            RdmaMode::Exclusive => "exclusive",
        };
        run("rdma", &["system", "set", "netns", word]).map(drop)
    }

    fn settle(&self) -> Shown {
        run("udevadm", &["settle"]).map(drop)
    }
}

fn vf_device(vf: VfRef) -> PathBuf {
    device(vf.pf).join(format!("virtfn{}", vf.index))
}

fn vf_address(vf: VfRef) -> Result<PciAddress, Stop> {
    let name = target(&vf_device(vf)).ok_or_else(|| failed(&vf.to_string(), &"it is not there"))?;
    name.parse().map_err(|error| failed(&name, &error))
}

/// The name of a card's own interface, from sysfs: in the machine a command takes a while.
fn interface(address: PciAddress) -> Result<String, Stop> {
    let none = || failed(&address.to_string(), &"no interface");
    let entries = device(address).join("net").read_dir().map_err(|_| none())?;
    let is_representor =
        |path: &Path| read(&path.join("phys_port_name")).is_ok_and(|name| name.contains("vf"));
    let own = entries.flatten().find(|entry| !is_representor(&entry.path()));
    own.map(|entry| entry.file_name().to_string_lossy().into_owned()).ok_or_else(none)
}
