//! Pods of a Linux machine: `ip netns`, and the VFs in the output of `ip -json`.

use std::fs;
use std::path::Path;

use serde_json::Value;
use vfleet_api::VfRef;
use vfleet_plan::cni::facts::{LinkState, VfSettings, VfVlan, VlanProtocol};

use super::administrator::{LinuxAdministrator, interface, vf_address};
use super::observer::{IpLink, LinuxObserver, to_observed_link};
use super::tools::{failed, run};
use crate::contract::observed::ObservedLink;
use crate::contract::pods::{PodAdministrator, PodObserver};
use crate::contract::testbed::{CaseError, CaseResult};

const NAMESPACES: &str = "/run/netns";
/// Start of the names of namespaces of cases.
const PREFIX: &str = "contract-";

/// Deletes all namespaces of cases.
pub(super) fn clear() -> CaseResult {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    for name in entries.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        if name.starts_with(PREFIX) {
            run("ip", &["netns", "delete", &name])?;
        }
    }
    Ok(())
}

fn full_name(namespace: &str) -> String {
    format!("{PREFIX}{namespace}")
}

impl PodObserver for LinuxObserver {
    fn links_in(&self, namespace: &str) -> Result<Vec<ObservedLink>, CaseError> {
        let text = run("ip", &["-netns", &full_name(namespace), "-json", "-details", "link", "show"])?;
        let links: Vec<IpLink> = serde_json::from_str(&text).map_err(|error| failed("ip -json", &error))?;
        Ok(links.iter().map(to_observed_link).collect())
    }

    fn vf_settings(&self, vf: VfRef) -> Result<VfSettings, CaseError> {
        let text = run("ip", &["-json", "-details", "link", "show", "dev", &interface(vf.pf)?])?;
        let links: Value = serde_json::from_str(&text).map_err(|error| failed("ip -json", &error))?;
        let vfs = links[0]["vfinfo_list"].as_array().cloned().unwrap_or_default();
        let found = vfs.iter().find(|found| found["vf"] == vf.index);
        found.map(parse_settings).ok_or_else(|| failed(&vf.to_string(), &"ip does not list it"))
    }
}

/// Parses an entry of `vfinfo_list`. VLAN and rates are missing if there are none.
fn parse_settings(vf: &Value) -> VfSettings {
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let vlan = vf["vlan_list"].get(0).unwrap_or(vf);
    let is_ad = vlan["protocol"].as_str().is_some_and(|protocol| protocol.eq_ignore_ascii_case("802.1ad"));
    let vlan = VfVlan {
        id: number(&vlan["vlan"]).and_then(|id| u16::try_from(id).ok()).unwrap_or(0),
        qos: number(&vlan["qos"]).and_then(|qos| u8::try_from(qos).ok()).unwrap_or(0),
        protocol: if is_ad { VlanProtocol::Ieee8021ad } else { VlanProtocol::Ieee8021q },
    };
    let max_tx_rate = number(&vf["rate"]["max_tx"]).or(number(&vf["tx_rate"])).unwrap_or(0);
    VfSettings {
        mac: vf["address"].as_str().and_then(|mac| mac.parse().ok()),
        vlan: Some(vlan),
        spoof_check: vf["spoofchk"].as_bool(),
        trust: vf["trust"].as_bool(),
        min_tx_rate: Some(number(&vf["rate"]["min_tx"]).unwrap_or(0)),
        max_tx_rate: Some(max_tx_rate),
        link_state: match vf["link_state"].as_str() {
            Some("auto") => Some(LinkState::Auto),
            Some("enable") => Some(LinkState::Enable),
            Some("disable") => Some(LinkState::Disable),
            _ => None,
        },
        ..VfSettings::default()
    }
}

impl PodAdministrator for LinuxAdministrator {
    fn create_namespace(&self, name: &str) -> Result<String, CaseError> {
        let name = full_name(name);
        run("ip", &["netns", "add", &name])?;
        Ok(Path::new(NAMESPACES).join(name).display().to_string())
    }

    fn delete_namespace(&self, name: &str) -> CaseResult {
        run("ip", &["netns", "delete", &full_name(name)]).map(drop)
    }

    fn add_virtual_link(&self, namespace: &str, link: &str) -> CaseResult {
        let namespace = full_name(namespace);
        run("ip", &["-netns", &namespace, "link", "add", link, "type", "veth", "peer", "name", "peer0"])
            .map(drop)
    }

    fn add_vf_alt_name(&self, vf: VfRef, name: &str) -> CaseResult {
        let link = interface(vf_address(vf)?)?;
        run("ip", &["link", "property", "add", "dev", &link, "altname", name]).map(drop)
    }
}
