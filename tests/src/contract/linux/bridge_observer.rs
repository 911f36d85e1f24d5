//! Observer of software bridges: `ip`, `bridge`, `ovs-vsctl` and files of the kernel.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vfleet_api::PciAddress;
use vfleet_api::bridge::BridgeVlanProtocol;
use vfleet_plan::{LinuxBridgeFacts, LinuxPortFacts, Master, OvsDatabase};

use super::administrator::interface;
use super::bridges::accept_ra;
use super::observer::LinuxObserver;
use super::ovs;
use super::tools::{failed, read, run};
use crate::contract::bridges::BridgeObserver;
use crate::contract::testbed::CaseError;

/// Members of a port in the output of `bridge -d -j link` that are not settings, or not ones of vfleet.
const NOT_SETTINGS: [&str; 8] = [
    "ifindex",
    "ifname",
    "flags",
    "mtu",
    "master",
    "neigh_vlan_suppress",
    "mcast_n_groups",
    "mcast_max_groups",
];

impl BridgeObserver for LinuxObserver {
    fn linux_bridges(&self) -> Result<Vec<LinuxBridgeFacts>, CaseError> {
        let mut ports: BTreeMap<String, Vec<LinuxPortFacts>> = BTreeMap::new();
        for port in read_array("bridge", &["-d", "-j", "link", "show"])? {
            let Some(master) = port["master"].as_str() else { continue };
            ports.entry(master.to_owned()).or_default().push(parse_port(&port)?);
        }
        let links = read_array("ip", &["-d", "-j", "link", "show", "type", "bridge"])?;
        // iproute2 prints an empty object for each interface of another kind.
        let links = links.iter().filter(|link| link["ifname"].is_string());
        let mut bridges = links
            .map(|link| parse_bridge(link, ports.remove(&text(link, "ifname")?).unwrap_or_default()))
            .collect::<Result<Vec<_>, _>>()?;
        bridges.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(bridges)
    }

    fn port_vlans(&self, pf: PciAddress) -> Result<BTreeSet<u16>, CaseError> {
        let ports = read_array("bridge", &["-d", "-j", "vlan", "show", "dev", &interface(pf)?])?;
        let vlans = ports.iter().filter_map(|port| port["vlans"].as_array()).flatten();
        let number = |vlan: &Value| vlan["vlan"].as_u64().and_then(|number| u16::try_from(number).ok());
        vlans.map(|vlan| number(vlan).ok_or_else(|| failed("bridge vlan", vlan))).collect()
    }

    fn master(&self, pf: PciAddress) -> Result<Option<Master>, CaseError> {
        let links = read_array("ip", &["-d", "-j", "link", "show", "dev", &interface(pf)?])?;
        let Some(name) = links.first().and_then(|link| link["master"].as_str()) else { return Ok(None) };
        Ok(Some(Master { name: name.to_owned(), kind: text(&links[0]["linkinfo"], "info_slave_kind")? }))
    }

    fn ovs(&self) -> Result<OvsDatabase, CaseError> {
        ovs::read_database()
    }

    fn ovs_config(&self, key: &str) -> Result<Option<String>, CaseError> {
        ovs::read_config(key)
    }
}

fn read_array(program: &str, args: &[&str]) -> Result<Vec<Value>, CaseError> {
    serde_json::from_str(&run(program, args)?).map_err(|error| failed(program, &error))
}

fn text(value: &Value, name: &str) -> Result<String, CaseError> {
    value[name].as_str().map(str::to_owned).ok_or_else(|| failed(name, value))
}

fn number(value: &Value, name: &str) -> Result<u32, CaseError> {
    value[name].as_u64().and_then(|number| u32::try_from(number).ok()).ok_or_else(|| failed(name, value))
}

fn parse_bridge(link: &Value, mut ports: Vec<LinuxPortFacts>) -> Result<LinuxBridgeFacts, CaseError> {
    ports.sort_by(|one, other| one.name.cmp(&other.name));
    let data = &link["linkinfo"]["info_data"];
    let group = text(link, "group")?;
    let protocol = text(data, "vlan_protocol")?;
    Ok(LinuxBridgeFacts {
        name: text(link, "ifname")?,
        alias: link["ifalias"].as_str().map(str::to_owned),
        group: if group == "default" { 0 } else { group.parse().map_err(|error| failed(&group, &error))? },
        vlan_filtering: number(data, "vlan_filtering")? == 1,
        vlan_protocol: match protocol.as_str() {
            "802.1Q" => Some(BridgeVlanProtocol::Ieee8021Q),
            "802.1ad" => Some(BridgeVlanProtocol::Ieee8021ad),
            other => return Err(failed("vlan_protocol", &other)),
        },
        mtu: number(link, "mtu")?,
        // iproute2 does not print it.
        accepts_ra: read(&accept_ra(&text(link, "ifname")?))? != "0",
        admin_up: link["flags"].as_array().is_some_and(|flags| flags.contains(&"UP".into())),
        ports,
    })
}

/// Parses a port with its settings in the form that bridge(8) accepts.
fn parse_port(port: &Value) -> Result<LinuxPortFacts, CaseError> {
    let members = port.as_object().ok_or_else(|| failed("bridge link", port))?;
    let settings = members.iter().filter(|(name, _)| !NOT_SETTINGS.contains(&name.as_str()));
    let to_text = |value: &Value| match value {
        Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Ok(LinuxPortFacts {
        name: text(port, "ifname")?,
        settings: settings.map(|(name, value)| (name.clone(), to_text(value))).collect(),
    })
}
