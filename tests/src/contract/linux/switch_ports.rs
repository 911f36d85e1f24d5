//! Observer of ports: `ip`, `bridge` and `ovs-vsctl`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vfleet_plan::cni::facts::BridgeVlan;

use super::observer::LinuxObserver;
use super::tools::{failed, run};
use crate::contract::switch_ports::{ObservedMirror, ObservedOvsVlans, ObservedPort, PortObserver};
use crate::contract::testbed::CaseError;

impl PortObserver for LinuxObserver {
    fn host_port(&self, name: &str) -> Result<Option<ObservedPort>, CaseError> {
        let links = read_array("ip", &["-details", "-json", "link", "show"])?;
        let Some(link) = links.iter().find(|link| link["ifname"] == name) else { return Ok(None) };
        let mtu = link["mtu"].as_u64().and_then(|mtu| u32::try_from(mtu).ok());
        Ok(Some(ObservedPort {
            mac: link["address"].as_str().and_then(|mac| mac.parse().ok()),
            mtu: mtu.ok_or_else(|| failed("mtu", link))?,
            up: link["flags"].as_array().is_some_and(|flags| flags.contains(&"UP".into())),
            master: link["master"].as_str().map(str::to_owned),
            vlans: read_vlans(name)?,
        }))
    }

    fn ovs_vlans(&self, port: &str) -> Result<ObservedOvsVlans, CaseError> {
        let output = run("ovs-vsctl", &["get", "Port", port, "vlan_mode", "tag", "trunks"])?;
        let [mode, tag, trunks] = output.lines().collect::<Vec<_>>()[..] else {
            return Err(failed("ovs-vsctl get", &output));
        };
        let mode = Some(mode.to_owned()).filter(|mode| mode != "[]");
        let trunks = trunks.trim_matches(['[', ']']).split(", ").filter_map(|id| id.parse().ok());
        Ok((mode, tag.parse().ok(), trunks.collect()))
    }

    fn ovs_mirror(&self, name: &str) -> Result<Option<ObservedMirror>, CaseError> {
        let columns = "--columns=select_src_port,select_dst_port,output_port";
        let found = run("ovs-vsctl", &["--bare", columns, "find", "Mirror", &format!("name={name}")])?;
        let lines: Vec<&str> = found.lines().collect();
        let [sources, destinations, output] = lines[..] else { return Ok(None) };
        let ports = run("ovs-vsctl", &["--bare", "--columns=_uuid,name", "list", "Port"])?;
        let lines: Vec<&str> = ports.lines().filter(|line| !line.is_empty()).collect();
        let names: BTreeMap<&str, &str> = lines.chunks_exact(2).map(|row| (row[0], row[1])).collect();
        let named = |uuids: &str| -> BTreeSet<String> {
            uuids.split_whitespace().filter_map(|uuid| Some((*names.get(uuid)?).to_owned())).collect()
        };
        let (sources, destinations) = (named(sources), named(destinations));
        Ok(Some(ObservedMirror { sources, destinations, output: named(output).pop_first() }))
    }
}

/// Reads the VLANs of a port. iproute2 prints nothing for an interface that is none.
fn read_vlans(name: &str) -> Result<Vec<BridgeVlan>, CaseError> {
    let ports = read_array("bridge", &["-json", "vlan", "show", "dev", name])?;
    let vlans = ports.iter().filter_map(|port| port["vlans"].as_array()).flatten();
    let to_vlan = |vlan: &Value| {
        let has = |flag: &str| vlan["flags"].as_array().is_some_and(|flags| flags.contains(&flag.into()));
        let id = vlan["vlan"].as_u64().and_then(|id| u16::try_from(id).ok());
        let id = id.ok_or_else(|| failed("bridge vlan", vlan))?;
        Ok(BridgeVlan { id, is_native: has("PVID"), is_untagged: has("Egress Untagged") })
    };
    vlans.map(to_vlan).collect()
}

fn read_array(program: &str, args: &[&str]) -> Result<Vec<Value>, CaseError> {
    let output = run(program, args)?;
    let text = if output.trim().is_empty() { "[]" } else { &output };
    serde_json::from_str(text).map_err(|error| failed(program, &error))
}
