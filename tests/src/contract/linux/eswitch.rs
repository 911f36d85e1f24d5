//! Embedded switch of a card and its VFs, read with `devlink`, `ip`, `ethtool` and `vdpa`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use vfleet_api::{Guid, PciAddress};
use vfleet_plan::{EswitchMode, Fact, VdpaKind};

use super::observer::IpLink;
use super::tools::{device, failed, link_target, read, run};
use crate::contract::observed::{ObservedEswitch, ObservedGuids};
use crate::contract::testbed::CaseError;

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

fn query<T: DeserializeOwned>(program: &str, args: &[&str]) -> Result<T, CaseError> {
    let text = run(program, args)?;
    serde_json::from_str(&text).map_err(|error| failed(&format!("{program} {}", args.join(" ")), &error))
}

/// Reads the embedded switch of a card with this interface and number of VFs.
pub(super) fn read_eswitch(
    pf: PciAddress,
    link: Option<&IpLink>,
    vfs: usize,
) -> Result<ObservedEswitch, CaseError> {
    let handle = format!("pci/{pf}");
    let is_registered = query::<Devices>("devlink", &["-j", "dev", "show"])?.dev.contains_key(&handle);
    let tc_offload = link.map(|link| tc_offload(&link.ifname)).transpose()?.flatten();
    Ok(ObservedEswitch {
        mode: if is_registered { mode(&handle)? } else { Fact::None },
        port: link.and_then(IpLink::switch_port),
        tc_offload,
        software_steering: if is_registered { software_steering(&handle)? } else { None },
        representors: representors(&handle, vfs)?,
    })
}

fn mode(handle: &str) -> Result<Fact<EswitchMode>, CaseError> {
    let answer = match query::<Devices>("devlink", &["-j", "dev", "eswitch", "show", handle]) {
        Err(CaseError::Failed(error)) if error.contains("Operation not supported") => {
            return Ok(Fact::Unknown);
        }
        answer => answer?,
    };
    match answer.dev.get(handle).and_then(|device| device.mode.as_deref()) {
        Some("legacy") => Ok(Fact::Value(EswitchMode::Legacy)),
        Some("switchdev") => Ok(Fact::Value(EswitchMode::Switchdev)),
        other => Err(failed("the mode of the eswitch", &format!("{other:?}"))),
    }
}

fn tc_offload(name: &str) -> Result<Option<bool>, CaseError> {
    let answer: Vec<Features> = query("ethtool", &["--json", "-k", name])?;
    let feature = answer.first().map(|features| &features.tc_offload);
    Ok(feature.filter(|feature| !feature.fixed).map(|feature| feature.active))
}

fn software_steering(handle: &str) -> Result<Option<bool>, CaseError> {
    let args = ["-j", "dev", "param", "show", handle, "name", "flow_steering_mode"];
    let answer: Parameters = query("devlink", &args)?;
    let values = answer.param.get(handle).into_iter().flatten().flat_map(|parameter| &parameter.values);
    Ok(values.map(|value| value.value == "smfs").next())
}

fn representors(handle: &str, vfs: usize) -> Result<Vec<Option<String>>, CaseError> {
    let mut found = vec![None; vfs];
    let ports: Ports = query("devlink", &["-j", "port", "show"])?;
    let belongs_to_card = |(name, _): &(String, _)| name.starts_with(&format!("{handle}/"));
    for (name, port) in
        ports.port.into_iter().filter(belongs_to_card).filter(|(_, port)| port.flavour == "pcivf")
    {
        let entry = port.vfnum.and_then(|vf| found.get_mut(vf));
        *entry.ok_or_else(|| failed(&name, &"representor without a VF"))? = port.netdev;
    }
    Ok(found)
}

/// Reads the GUIDs of an Ethernet card and its VFs. InfiniBand cards are not supported.
pub(super) fn read_guids(
    pf: PciAddress,
    link: Option<&IpLink>,
    vfs: &[PciAddress],
) -> Result<ObservedGuids, CaseError> {
    if link.is_some_and(|link| !link.is_ethernet()) {
        return Err(CaseError::Unsupported("the observer cannot read GUIDs of InfiniBand cards".to_owned()));
    }
    Ok(ObservedGuids {
        pf_device: read_rdma_guid(pf)?,
        vf_devices: vfs.iter().map(|vf| read_rdma_guid(*vf)).collect::<Result<_, _>>()?,
        admin_guids: vec![None; vfs.len()],
    })
}

fn read_rdma_guid(address: PciAddress) -> Result<Option<Guid>, CaseError> {
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

/// Reads the vDPA devices of VFs. There are none if the kernel has no vDPA bus.
pub(super) fn read_vdpa(vfs: &[PciAddress]) -> Result<Vec<Option<VdpaKind>>, CaseError> {
    let bus = Path::new("/sys/bus/vdpa/devices");
    if !bus.exists() {
        return Ok(vec![None; vfs.len()]);
    }
    let devices: VdpaDevices = query("vdpa", &["-j", "dev", "show"])?;
    let kind = |vf: &PciAddress| {
        let belongs_to_vf = |(_, device): &(&String, &VdpaDevice)| device.mgmtdev == format!("pci/{vf}");
        let (name, _) = devices.dev.iter().find(belongs_to_vf)?;
        match link_target(&bus.join(name).join("driver"))?.as_str() {
            "vhost_vdpa" => Some(VdpaKind::Vhost),
            "virtio_vdpa" => Some(VdpaKind::Virtio),
            _ => None,
        }
    };
    Ok(vfs.iter().map(kind).collect())
}
