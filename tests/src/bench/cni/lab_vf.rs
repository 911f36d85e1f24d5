//! VFs and pods of the machine of the lab. The judge of every attachment is ip(8).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const CARDS: [&str; 2] = ["0000:01:00.0", "0000:02:00.0"];
const DEVICES: &str = "/sys/bus/pci/devices";
/// Number of VFs of each card.
const VFS: u32 = 7;
/// Name of the interface in all pods.
pub(super) const INTERFACE: &str = "net1";
/// VLAN of all attachments.
pub(super) const VLAN: u32 = 100;

/// VF with everything about it that a plugin has to find out first.
#[derive(Debug, Clone)]
pub(super) struct LabVf {
    /// PCI address.
    pub(super) address: String,
    /// Index of the interface of its PF.
    pub(super) pf: u32,
    /// Number of the VF.
    pub(super) number: u32,
    /// Name of its interface on the host.
    pub(super) name: String,
}

impl LabVf {
    /// Lists the VFs of the machine, alternating between both cards.
    pub(super) fn list() -> Result<Vec<Self>> {
        let vfs = (0..VFS).flat_map(|number| CARDS.map(|card| Self::read(card, number)));
        vfs.collect()
    }

    fn read(card: &str, number: u32) -> Result<Self> {
        let link = Path::new(DEVICES).join(card).join(format!("virtfn{number}"));
        let address = fs::read_link(&link).with_context(|| link.display().to_string())?;
        let address = address.file_name().context("address of the VF")?.to_string_lossy().into_owned();
        let (_, pf) = interface_of(card)?.context("no interface of the card")?;
        let (name, _) = interface_of(&address)?.context("no interface of the VF")?;
        Ok(Self { address, pf, number, name })
    }

    /// Returns the index of the interface, which must be on the host.
    pub(super) fn index(&self) -> Result<u32> {
        let interface = interface_of(&self.address)?;
        Ok(interface.with_context(|| format!("{} has no interface on the host", self.address))?.1)
    }

    /// Returns the configuration of the plugin `sriov`: settings that users of VLANs and of bonds in pods need.
    pub(super) fn config(&self) -> String {
        serde_json::json!({
            "cniVersion": "1.1.0", "name": "bench", "type": "sriov", "deviceID": self.address,
            "vlan": VLAN, "spoofchk": "off", "trust": "on",
        })
        .to_string()
    }

    /// Checks that a pod has the interface, which is up, and that the VF has the settings of the configuration.
    pub(super) fn check_attached(&self, pod: &Pod) -> Result<()> {
        let link = ip(&["-details", "-json", "-netns", &pod.name, "link", "show", INTERFACE])?;
        let is_up = link[0]["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
        ensure!(is_up && link[0]["parentdev"] == *self.address, "not attached: {link}");
        let settings = self.settings()?;
        let is_set = settings["vlan_list"][0]["vlan"] == VLAN
            && settings["spoofchk"] == false
            && settings["trust"] == true;
        ensure!(is_set, "not as configured: {settings}");
        Ok(())
    }

    /// Checks that the interface is on the host under its name, and that the VF has its settings.
    pub(super) fn check_restored(&self) -> Result<()> {
        let interface = interface_of(&self.address)?;
        let is_back = interface.as_ref().is_some_and(|(name, _)| *name == self.name);
        ensure!(is_back, "{} is not back as {}: {interface:?}", self.address, self.name);
        let settings = self.settings()?;
        let is_restored = settings["vlan_list"][0]["vlan"].is_null()
            && settings["spoofchk"] == true
            && settings["trust"] == false;
        ensure!(is_restored, "not restored: {settings}");
        Ok(())
    }

    /// Returns the settings of the VF.
    fn settings(&self) -> Result<Value> {
        let links = ip(&["-json", "link", "show"])?;
        let pf = links.as_array().and_then(|links| links.iter().find(|link| link["ifindex"] == self.pf));
        let settings = pf.and_then(|pf| pf["vfinfo_list"].get(usize::try_from(self.number).ok()?));
        settings.cloned().with_context(|| format!("no settings of {}", self.address))
    }
}

/// Network namespace of a pod, removed with it.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
}

impl Pod {
    pub(super) fn create(name: &str) -> Result<Self> {
        run("ip", &["netns", "add", name])?;
        Ok(Self { name: name.to_owned() })
    }

    /// Returns the path of the namespace.
    pub(super) fn namespace(&self) -> String {
        format!("/run/netns/{}", self.name)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // The machine is discarded afterwards.
        let _ = run("ip", &["netns", "delete", &self.name]);
    }
}

/// Waits until udev has processed all events of the last change: its work would slow the next one down.
pub(super) fn settle() -> Result<()> {
    run("udevadm", &["settle"]).map(drop)
}

/// Returns name and index of the interface of a PCI function in this namespace.
fn interface_of(address: &str) -> Result<Option<(String, u32)>> {
    let directory = Path::new(DEVICES).join(address).join("net");
    let Ok(mut names) = fs::read_dir(&directory) else { return Ok(None) };
    let Some(entry) = names.next() else { return Ok(None) };
    let path = entry?.path();
    let index = fs::read_to_string(path.join("ifindex"))?.trim().parse()?;
    Ok(path.file_name().map(|name| (name.to_string_lossy().into_owned(), index)))
}

fn ip(arguments: &[&str]) -> Result<Value> {
    let output = run("ip", arguments)?;
    serde_json::from_str(&output).with_context(|| output.clone())
}

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {errors}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}
