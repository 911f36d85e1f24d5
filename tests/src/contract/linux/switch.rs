//! What `devlink`, `ip`, `ethtool` and `vdpa` tell of a card's embedded switch and of its VFs on it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use vfleet_api::{Guid, PciAddress};
use vfleet_plan::{EswitchMode, Fact, VdpaKind};

use super::tools::{device, failed, read, run, target};
use super::witness::IpLink;
use crate::contract::bench::Stop;
use crate::contract::seen::{SeenGuids, SeenSwitch};

/// `devlink -j dev show` and `devlink -j dev eswitch show`.
#[derive(Deserialize)]
struct Devices {
    dev: BTreeMap<String, Device>,
}

#[derive(Deserialize)]
struct Device {
    mode: Option<String>,
}

/// `devlink -j port show`.
#[derive(Deserialize)]
struct Ports {
    port: BTreeMap<String, DevlinkPort>,
}

#[derive(Deserialize)]
struct DevlinkPort {
    flavour: String,
    netdev: Option<String>,
    vfnum: Option<usize>,
}

/// `devlink -j dev param show`.
#[derive(Deserialize)]
struct Parameters {
    param: BTreeMap<String, Vec<Parameter>>,
}

#[derive(Deserialize)]
struct Parameter {
    values: Vec<Value>,
}

#[derive(Deserialize)]
struct Value {
    value: String,
}

/// `ethtool --json -k`.
#[derive(Deserialize)]
struct Features {
    #[serde(rename = "hw-tc-offload")]
    tc_offload: Feature,
}

#[derive(Deserialize)]
struct Feature {
    active: bool,
    fixed: bool,
}

fn ask<T: DeserializeOwned>(program: &str, words: &[&str]) -> Result<T, Stop> {
    let text = run(program, words)?;
    serde_json::from_str(&text).map_err(|error| failed(&format!("{program} {}", words.join(" ")), &error))
}

/// The embedded switch of a card with this interface and so many VFs.
pub(super) fn see(pf: PciAddress, link: Option<&IpLink>, vfs: usize) -> Result<SeenSwitch, Stop> {
    let handle = format!("pci/{pf}");
    let is_known = ask::<Devices>("devlink", &["-j", "dev", "show"])?.dev.contains_key(&handle);
    let tc_offload = link.map(|link| tc_offload(&link.ifname)).transpose()?.flatten();
    Ok(SeenSwitch {
        mode: if is_known { mode(&handle)? } else { Fact::None },
        port: link.and_then(IpLink::switch_port),
        tc_offload,
        software_steering: if is_known { software_steering(&handle)? } else { None },
        representors: representors(&handle, vfs)?,
    })
}

fn mode(handle: &str) -> Result<Fact<EswitchMode>, Stop> {
    let told = match ask::<Devices>("devlink", &["-j", "dev", "eswitch", "show", handle]) {
        Err(Stop::Failed(why)) if why.contains("Operation not supported") => return Ok(Fact::Unknown),
        told => told?,
    };
    match told.dev.get(handle).and_then(|device| device.mode.as_deref()) {
        Some("legacy") => Ok(Fact::Value(EswitchMode::Legacy)),
        Some("switchdev") => Ok(Fact::Value(EswitchMode::Switchdev)),
        other => Err(failed("the mode of the switch", &format!("{other:?}"))),
    }
}

fn tc_offload(name: &str) -> Result<Option<bool>, Stop> {
    let told: Vec<Features> = ask("ethtool", &["--json", "-k", name])?;
    let feature = told.first().map(|features| &features.tc_offload);
    Ok(feature.filter(|feature| !feature.fixed).map(|feature| feature.active))
}

fn software_steering(handle: &str) -> Result<Option<bool>, Stop> {
    let words = ["-j", "dev", "param", "show", handle, "name", "flow_steering_mode"];
    let told: Parameters = ask("devlink", &words)?;
    let values = told.param.get(handle).into_iter().flatten().flat_map(|parameter| &parameter.values);
    Ok(values.map(|value| value.value == "smfs").next())
}

fn representors(handle: &str, vfs: usize) -> Result<Vec<Option<String>>, Stop> {
    let mut found = vec![None; vfs];
    let ports: Ports = ask("devlink", &["-j", "port", "show"])?;
    let of_the_card = |(name, _): &(String, _)| name.starts_with(&format!("{handle}/"));
    for (name, port) in ports.port.into_iter().filter(of_the_card).filter(|(_, port)| port.flavour == "pcivf")
    {
        let place = port.vfnum.and_then(|vf| found.get_mut(vf));
        *place.ok_or_else(|| failed(&name, &"a representor of no VF"))? = port.netdev;
    }
    Ok(found)
}

/// The GUIDs of an Ethernet card and its VFs. The tools of the lab have shown none of InfiniBand yet.
pub(super) fn guids(pf: PciAddress, link: Option<&IpLink>, vfs: &[PciAddress]) -> Result<SeenGuids, Stop> {
    if link.is_some_and(|link| !link.is_ethernet()) {
        return Err(Stop::CannotShow("GUIDs of InfiniBand cards were never seen".to_owned()));
    }
    Ok(SeenGuids {
        of_pf: of_rdma_device(pf)?,
        of_vfs: vfs.iter().map(|vf| of_rdma_device(*vf)).collect::<Result<_, _>>()?,
        kept: vec![None; vfs.len()],
    })
}

fn of_rdma_device(address: PciAddress) -> Result<Option<Guid>, Stop> {
    let Ok(mut devices) = device(address).join("infiniband").read_dir() else { return Ok(None) };
    let Some(Ok(found)) = devices.next() else { return Ok(None) };
    let text = read(&found.path().join("node_guid"))?.replace(':', "");
    let number = u64::from_str_radix(&text, 16).map_err(|error| failed(&text, &error))?;
    Ok(Some(Guid(number.to_be_bytes())))
}

/// `vdpa -j dev show`.
#[derive(Deserialize)]
struct VdpaDevices {
    dev: BTreeMap<String, VdpaDevice>,
}

#[derive(Deserialize)]
struct VdpaDevice {
    mgmtdev: String,
}

/// The vDPA devices of VFs. Without the kernel's part for them there is none.
pub(super) fn vdpa(vfs: &[PciAddress]) -> Result<Vec<Option<VdpaKind>>, Stop> {
    let bus = Path::new("/sys/bus/vdpa/devices");
    if !bus.exists() {
        return Ok(vec![None; vfs.len()]);
    }
    let devices: VdpaDevices = ask("vdpa", &["-j", "dev", "show"])?;
    let kind = |vf: &PciAddress| {
        let of_vf = |(_, device): &(&String, &VdpaDevice)| device.mgmtdev == format!("pci/{vf}");
        let (name, _) = devices.dev.iter().find(of_vf)?;
        match target(&bus.join(name).join("driver"))?.as_str() {
            "vhost_vdpa" => Some(VdpaKind::Vhost),
            "virtio_vdpa" => Some(VdpaKind::Virtio),
            _ => None,
        }
    };
    Ok(vfs.iter().map(kind).collect())
}
