//! Administrator of a Linux machine.

use std::path::{Path, PathBuf};

use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{MacAddr, PciAddress, VfRef};

use super::carrier;
use super::leftovers::{self, NAMESPACE, SOFT_RDMA};
use super::observer::{GO_RECORDS, LinuxObserver, RECORDS};
use super::routes;
use super::tools::{device, failed, link_target, read, run, write, write_with_directory};
use crate::contract::observed::ObservedPf;
use crate::contract::testbed::{Administrator, CaseError, CaseResult, Observer, PciFunction, RoutePath};

const ALT_NAMES: [&str; 1] = ["contract-name"];

/// Administrator who uses `ip` and sysfs.
pub(super) struct LinuxAdministrator;

impl LinuxAdministrator {
    /// Removes the VFs of a card and restores the defaults of its PF.
    pub(super) fn clean(&self, pf: PciAddress) -> CaseResult {
        if read(&device(pf).join("sriov_numvfs"))? != "0" {
            self.set_num_vfs(pf, 0)?;
        }
        self.clean_pf(pf, false)
    }

    /// Restores the defaults of a PF and leaves its VFs alone.
    fn clean_pf(&self, pf: PciAddress, up: bool) -> CaseResult {
        self.set_autoprobe(pf, true)?;
        let name = interface(pf)?;
        run("ip", &["link", "set", &name, if up { "up" } else { "down" }, "mtu", "1500"])?;
        for alt_name in ALT_NAMES {
            // Fails if the name is not set, which is the usual case.
            let _ = run("ip", &["link", "property", "del", "dev", &name, "altname", alt_name]);
        }
        Ok(())
    }

    /// Restores the initial state of a card and its VFs; returns whether it succeeded.
    pub(super) fn restore(&self, initial: &ObservedPf) -> Result<bool, CaseError> {
        let pf = initial.address;
        let mut observed = LinuxObserver.pf(pf)?;
        if observed == *initial {
            return Ok(true);
        }
        if observed.vfs.len() != initial.vfs.len() {
            return Ok(false);
        }
        self.clean_pf(pf, initial.link.as_ref().is_some_and(|link| link.up))?;
        if observed.vfs == initial.vfs {
            self.settle()?;
            return Ok(LinuxObserver.pf(pf)? == *initial);
        }
        for is_reset in [true, false] {
            let changed = (0..)
                .zip(observed.vfs.iter().zip(&initial.vfs))
                .filter(|(_, (observed, initial))| observed != initial);
            for (index, _) in changed {
                let vf = VfRef { pf, index };
                if is_reset { self.reset_vf(vf)? } else { self.rebind(vf)? }
            }
            self.settle()?;
            observed = LinuxObserver.pf(pf)?;
        }
        Ok(observed == *initial)
    }

    /// Clears the MAC address and the driver override of a VF.
    fn reset_vf(&self, vf: VfRef) -> CaseResult {
        self.set_vf_mac(vf, MacAddr::ZERO)?;
        self.set_override(vf, None)
    }

    /// Lets the kernel bind a VF again.
    fn rebind(&self, vf: VfRef) -> CaseResult {
        if link_target(&vf_device(vf).join("driver")).is_some() {
            self.unbind(vf)?;
        }
        write(Path::new("/sys/bus/pci/drivers_probe"), &vf_address(vf)?.to_string())
    }
}

impl Administrator for LinuxAdministrator {
    fn set_num_vfs(&self, pf: PciAddress, count: u16) -> CaseResult {
        write(&device(pf).join("sriov_numvfs"), &count.to_string())
    }

    fn set_autoprobe(&self, pf: PciAddress, on: bool) -> CaseResult {
        write(&device(pf).join("sriov_drivers_autoprobe"), if on { "1" } else { "0" })
    }

    fn set_up(&self, pf: PciAddress, up: bool) -> CaseResult {
        run("ip", &["link", "set", &interface(pf)?, if up { "up" } else { "down" }]).map(drop)
    }

    fn set_mtu(&self, pf: PciAddress, mtu: u32) -> CaseResult {
        run("ip", &["link", "set", &interface(pf)?, "mtu", &mtu.to_string()]).map(drop)
    }

    fn set_alt_name(&self, pf: PciAddress, name: &str) -> CaseResult {
        run("ip", &["link", "property", "add", "dev", &interface(pf)?, "altname", name]).map(drop)
    }

    fn set_vf_mac(&self, vf: VfRef, mac: MacAddr) -> CaseResult {
        let args = [&interface(vf.pf)?, "vf", &vf.index.to_string(), "mac", &mac.to_string()];
        run("ip", &[&["link", "set"], &args[..]].concat()).map(drop)
    }

    fn set_override(&self, vf: VfRef, driver: Option<&str>) -> CaseResult {
        write(&vf_device(vf).join("driver_override"), driver.unwrap_or("\n"))
    }

    fn unbind(&self, vf: VfRef) -> CaseResult {
        let address = vf_address(vf)?;
        write(&device(address).join("driver/unbind"), &address.to_string())
    }

    fn rename(&self, vf: VfRef, name: &str) -> CaseResult {
        run("ip", &["link", "set", &interface(vf_address(vf)?)?, "name", name]).map(drop)
    }

    fn move_to_other_netns(&self, vf: VfRef) -> CaseResult {
        if !Path::new("/run/netns").join(NAMESPACE).exists() {
            run("ip", &["netns", "add", NAMESPACE])?;
        }
        run("ip", &["link", "set", &interface(vf_address(vf)?)?, "netns", NAMESPACE]).map(drop)
    }

    fn move_back_from_other_netns(&self, vf: VfRef) -> CaseResult {
        // The interface has kept its name in the other namespace.
        let text = run("ip", &["-netns", NAMESPACE, "-json", "-details", "link", "show"])?;
        let links: Vec<serde_json::Value> =
            serde_json::from_str(&text).map_err(|error| failed("ip -json", &error))?;
        let address = vf_address(vf)?.to_string();
        let link = links.iter().find(|link| link["parentdev"] == address.as_str());
        let name = link
            .and_then(|link| link["ifname"].as_str())
            .ok_or_else(|| failed(&address, &"interface not found"))?;
        run("ip", &["-netns", NAMESPACE, "link", "set", name, "netns", "1"]).map(drop)
    }

    fn set_vf_options(&self, vf: VfRef) -> CaseResult {
        // The previous case may have changed the MTU, which interrupts the carrier.
        carrier::wait_for(vf.pf)?;
        let (pf, index) = (interface(vf.pf)?, vf.index.to_string());
        for args in [&["vlan", "100"][..], &["spoofchk", "off"], &["trust", "on"], &["max_tx_rate", "100"]] {
            run("ip", &[&["link", "set", &pf, "vf", &index], args].concat())?;
        }
        Ok(())
    }

    fn add_soft_rdma(&self, vf: VfRef) -> CaseResult {
        let name = interface(vf_address(vf)?)?;
        run("modprobe", &["rdma_rxe"])?;
        run("rdma", &["link", "add", SOFT_RDMA, "type", "rxe", "netdev", &name]).map(drop)
    }

    fn add_default_route(&self, function: PciFunction, path: RoutePath) -> CaseResult {
        let name = match function {
            PciFunction::Pf(pf) => interface(pf)?,
            PciFunction::Vf(vf) => interface(vf_address(vf)?)?,
        };
        routes::add(&name, path)
    }

    fn remove_default_route(&self) -> CaseResult {
        routes::remove()
    }

    fn write_go_record(&self, interface: &Interface) -> CaseResult {
        let text = serde_json::to_string(interface).map_err(|error| failed("a record", &error))?;
        write_with_directory(&Path::new(GO_RECORDS).join(interface.pci_address.text()), &text)
    }

    fn truncate_record(&self, pf: PciAddress, with_copy: bool) -> CaseResult {
        for directory in [RECORDS].into_iter().chain(with_copy.then_some(GO_RECORDS)) {
            let path = Path::new(directory).join(pf.to_string());
            let text = read(&path)?;
            write_with_directory(&path, &text[..text.len() / 2])?;
        }
        Ok(())
    }

    fn write_file(&self, path: &str, text: Option<&str>) -> CaseResult {
        match text {
            Some(text) => write_with_directory(Path::new(path), text),
            None => leftovers::remove(Path::new(path)),
        }
    }

    fn rewrite_module_list(&self) -> CaseResult {
        let release = read(Path::new("/proc/sys/kernel/osrelease"))?;
        let list = format!("/lib/modules/{release}/modules.dep");
        let temporary = format!("{list}.contract");
        run("cp", &["-p", &list, &temporary])?;
        run("mv", &[&temporary, &list]).map(drop)
    }

    fn unload_module(&self, module: &str) -> CaseResult {
        if Path::new("/sys/module").join(module).exists() {
            run("modprobe", &["-r", module])?;
        }
        Ok(())
    }

    /// The kernel refuses this while there are other network namespaces.
    fn set_rdma_mode(&self, mode: RdmaMode) -> CaseResult {
        let value = match mode {
            RdmaMode::Shared => "shared",
            RdmaMode::Exclusive => "exclusive",
        };
        run("rdma", &["system", "set", "netns", value]).map(drop)
    }

    fn settle(&self) -> CaseResult {
        run("udevadm", &["settle"]).map(drop)
    }
}

fn vf_device(vf: VfRef) -> PathBuf {
    device(vf.pf).join(format!("virtfn{}", vf.index))
}

pub(super) fn vf_address(vf: VfRef) -> Result<PciAddress, CaseError> {
    let name = link_target(&vf_device(vf)).ok_or_else(|| failed(&vf.to_string(), &"VF not found"))?;
    name.parse().map_err(|error| failed(&name, &error))
}

/// Returns the name of the interface of a card. Reads sysfs, because commands are slow in the virtual machine.
pub(super) fn interface(address: PciAddress) -> Result<String, CaseError> {
    let none = || failed(&address.to_string(), &"no interface");
    let entries = device(address).join("net").read_dir().map_err(|_| none())?;
    let is_representor =
        |path: &Path| read(&path.join("phys_port_name")).is_ok_and(|name| name.contains("vf"));
    let own = entries.flatten().find(|entry| !is_representor(&entry.path()));
    own.map(|entry| entry.file_name().to_string_lossy().into_owned()).ok_or_else(none)
}
