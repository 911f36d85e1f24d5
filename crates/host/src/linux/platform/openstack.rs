//! The networks of a machine in OpenStack: from its config drive where that is mounted, else from the metadata service.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use vfleet_api::MacAddr;

use super::Networks;
use super::http::Service;
use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{durable, sysfs};

/// The first version of the metadata that has all that is needed.
const DIRECTORY: &str = "openstack/2018-08-27";
/// How a config drive is labelled.
const DRIVE: &str = "/dev/disk/by-label/config-2";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NetworkData {
    links: Vec<Link>,
    networks: Vec<Network>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Link {
    id: String,
    ethernet_mac_address: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Network {
    link: String,
    network_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetaData {
    devices: Vec<Device>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Device {
    mac: Option<String>,
    address: Option<String>,
}

pub(super) fn networks(root: &HostRoot, service: Service) -> Result<Networks, HostError> {
    let drive = mounted_drive(root)?;
    let read = |name: &str| match &drive {
        Some(drive) => file(&drive.join(DIRECTORY).join(name)),
        None => service.get(&format!("/{DIRECTORY}/{name}"), &[]),
    };
    from_texts(&read("network_data.json")?, &read("meta_data.json")?)
}

/// Returns the networks that both files together describe.
pub(in super::super) fn from_texts(network_data: &str, meta_data: &str) -> Result<Networks, HostError> {
    Ok(joined(&parse(network_data, "network_data.json")?, &parse(meta_data, "meta_data.json")?))
}

fn parse<T: DeserializeOwned>(text: &str, name: &str) -> Result<T, HostError> {
    let nonsense =
        |error: serde_json::Error| HostError::Metadata { url: name.to_owned(), source: error.into() };
    serde_json::from_str(text).map_err(nonsense)
}

/// A network has a link, a link has a MAC, and a device with that MAC may have an address.
fn joined(network_data: &NetworkData, meta_data: &MetaData) -> Networks {
    let macs: BTreeMap<&str, MacAddr> = network_data
        .links
        .iter()
        .filter_map(|link| Some((link.id.as_str(), link.ethernet_mac_address.as_deref()?.parse().ok()?)))
        .collect();
    let mut networks = Networks::default();
    for network in network_data.networks.iter().filter(|network| !network.network_id.is_empty()) {
        if let Some(mac) = macs.get(network.link.as_str()) {
            // One link may have several subnets of its network.
            let name = || format!("openstack/NetworkID:{}", network.network_id);
            networks.by_mac.entry(*mac).or_insert_with(name);
        }
    }
    for device in &meta_data.devices {
        let mac = device.mac.as_deref().and_then(|mac| mac.parse::<MacAddr>().ok());
        let address = device.address.as_deref().and_then(|address| address.parse().ok());
        let network = mac.and_then(|mac| networks.by_mac.get(&mac));
        if let (Some(address), Some(network)) = (address, network) {
            networks.by_address.insert(address, network.clone());
        }
    }
    networks
}

fn file(path: &Path) -> Result<String, HostError> {
    let nothing = || sysfs::failed("read", path, std::io::ErrorKind::NotFound.into());
    durable::read_text(path)?.ok_or_else(nothing)
}

/// Where the config drive is mounted, if it is.
fn mounted_drive(root: &HostRoot) -> Result<Option<PathBuf>, HostError> {
    let Some(device) = sysfs::target_name(&root.at(DRIVE))? else { return Ok(None) };
    // Those of the host's first process, which sees all of the host's mounts.
    let Some(mounts) = durable::read_text(&root.proc("1/mounts"))? else { return Ok(None) };
    Ok(mount_point(&mounts, &format!("/dev/{device}")).map(|path| root.at(path)))
}

pub(in super::super) fn mount_point<'a>(mounts: &'a str, device: &str) -> Option<&'a str> {
    let mut words = mounts.lines().map(str::split_whitespace);
    words.find_map(|mut words| (words.next()? == device).then(|| words.next()).flatten())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NETWORK_DATA: &str = r#"{
        "links": [
            {"id": "tap1", "type": "ovs", "ethernet_mac_address": "fa:16:3e:00:00:01", "mtu": 1500},
            {"id": "tap2", "type": "hw_veb", "ethernet_mac_address": "FA:16:3E:00:00:02", "vif_id": "x"},
            {"id": "tap3", "type": "phy", "ethernet_mac_address": null}
        ],
        "networks": [
            {"id": "network0", "type": "ipv4_dhcp", "link": "tap1", "network_id": "da5bb487-5193-4a65-a3df-4a0055a8c0d7"},
            {"id": "network1", "type": "ipv6", "link": "tap1", "network_id": "another"},
            {"id": "network2", "type": "ipv4", "link": "tap2", "network_id": "78a0b4a2-0b75-4b5a-a2d4-1a4f2a6e9a11"},
            {"id": "network3", "type": "ipv4", "link": "tap3", "network_id": "none"}
        ],
        "services": []
    }"#;
    const META_DATA: &str = r#"{
        "uuid": "d8e02d56", "hostname": "test",
        "devices": [
            {"type": "nic", "bus": "pci", "address": "0000:00:05.0", "mac": "fa:16:3e:00:00:02", "tags": ["sriov"]},
            {"type": "disk", "bus": "scsi", "address": "1:0:2:0", "serial": "x"}
        ]
    }"#;

    #[test]
    fn networks_are_found_by_mac_and_by_address() {
        let networks = from_texts(NETWORK_DATA, META_DATA).unwrap();
        let mac = |last: u8| MacAddr([0xfa, 0x16, 0x3e, 0, 0, last]);
        let second = "openstack/NetworkID:78a0b4a2-0b75-4b5a-a2d4-1a4f2a6e9a11";
        assert_eq!(networks.by_mac.len(), 2);
        assert_eq!(networks.by_mac[&mac(1)], "openstack/NetworkID:da5bb487-5193-4a65-a3df-4a0055a8c0d7");
        assert_eq!(networks.by_mac[&mac(2)], second);
        assert_eq!(networks.by_address[&"0000:00:05.0".parse().unwrap()], second);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let error = from_texts("{", "{}").unwrap_err();
        assert_eq!(error.to_string(), "cannot get network_data.json");
    }

    #[test]
    fn the_drive_is_found_among_the_mounts() {
        let mounts = "/dev/vda1 / ext4 rw 0 0\n/dev/vdb /mnt/config iso9660 ro 0 0\n";
        assert_eq!(mount_point(mounts, "/dev/vdb"), Some("/mnt/config"));
        assert_eq!(mount_point(mounts, "/dev/vd"), None);
    }

    proptest! {
        #[test]
        fn takes_damaged_files(at in 0..NETWORK_DATA.len(), length in 0..NETWORK_DATA.len(), byte in 0x20..0x7f_u8) {
            let mut text = NETWORK_DATA.as_bytes().to_vec();
            text[at] = byte;
            let damaged = String::from_utf8(text).unwrap();
            let _ = from_texts(&damaged, META_DATA);
            let _ = from_texts(&damaged[..length], META_DATA);
            let _ = mount_point(&damaged, "/dev/vdb");
        }
    }
}
