//! Networks of a machine on OpenStack, from its config drive if that is mounted, else from the metadata service.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use vfleet_api::MacAddr;

use super::Networks;
use super::http::Service;
use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{atomic_file, sysfs};

/// Directory of the oldest version of the metadata that has all needed fields.
const DIRECTORY: &str = "openstack/2018-08-27";
/// Path of a config drive by its label.
const DRIVE: &str = "/dev/disk/by-label/config-2";

/// Content of `network_data.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NetworkData {
    links: Vec<MetadataLink>,
    networks: Vec<MetadataNetwork>,
}

/// Port of the virtual machine in `network_data.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataLink {
    id: String,
    ethernet_mac_address: Option<String>,
}

/// Network of a port in `network_data.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataNetwork {
    link: String,
    network_id: String,
}

/// Content of `meta_data.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetaData {
    devices: Vec<MetadataDevice>,
}

/// Tagged device in `meta_data.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataDevice {
    mac: Option<String>,
    address: Option<String>,
}

/// Reads the networks of the machine.
pub(super) fn read_networks(root: &HostRoot, service: Service) -> Result<Networks, HostError> {
    let drive = find_mounted_drive(root)?;
    let read = |name: &str| match &drive {
        Some(drive) => read_file(&drive.join(DIRECTORY).join(name)),
        None => service.get(&format!("/{DIRECTORY}/{name}"), &[]),
    };
    parse_networks(&read("network_data.json")?, &read("meta_data.json")?)
}

/// Parses the two metadata files of a machine.
pub(in super::super) fn parse_networks(network_data: &str, meta_data: &str) -> Result<Networks, HostError> {
    Ok(join(&parse(network_data, "network_data.json")?, &parse(meta_data, "meta_data.json")?))
}

fn parse<T: DeserializeOwned>(text: &str, name: &str) -> Result<T, HostError> {
    let invalid =
        |error: serde_json::Error| HostError::Metadata { url: name.to_owned(), source: error.into() };
    serde_json::from_str(text).map_err(invalid)
}

/// Joins networks, links (by id) and devices (by MAC address).
fn join(network_data: &NetworkData, meta_data: &MetaData) -> Networks {
    let macs: BTreeMap<&str, MacAddr> = network_data
        .links
        .iter()
        .filter_map(|link| Some((link.id.as_str(), link.ethernet_mac_address.as_deref()?.parse().ok()?)))
        .collect();
    let mut networks = Networks::default();
    for network in network_data.networks.iter().filter(|network| !network.network_id.is_empty()) {
        if let Some(mac) = macs.get(network.link.as_str()) {
            // A link has one entry for each subnet of its network.
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

fn read_file(path: &Path) -> Result<String, HostError> {
    let missing = || sysfs::failed("read", path, std::io::ErrorKind::NotFound.into());
    atomic_file::read_text(path)?.ok_or_else(missing)
}

/// Returns where the config drive is mounted; `None` if it is not mounted.
fn find_mounted_drive(root: &HostRoot) -> Result<Option<PathBuf>, HostError> {
    let Some(device) = sysfs::target_name(&root.at(DRIVE))? else { return Ok(None) };
    // Mounts of the first process of the host, which sees all mounts of the host.
    let Some(mounts) = atomic_file::read_text(&root.proc("1/mounts"))? else { return Ok(None) };
    Ok(find_mount_point(&mounts, &format!("/dev/{device}")).map(|path| root.at(path)))
}

/// Returns the mount point of `device` in the text of `/proc/mounts`.
pub(in super::super) fn find_mount_point<'a>(mounts: &'a str, device: &str) -> Option<&'a str> {
    let mut lines = mounts.lines().map(str::split_whitespace);
    lines.find_map(|mut fields| (fields.next()? == device).then(|| fields.next()).flatten())
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
        let networks = parse_networks(NETWORK_DATA, META_DATA).unwrap();
        let mac = |last: u8| MacAddr([0xfa, 0x16, 0x3e, 0, 0, last]);
        let second = "openstack/NetworkID:78a0b4a2-0b75-4b5a-a2d4-1a4f2a6e9a11";
        assert_eq!(networks.by_mac.len(), 2);
        assert_eq!(networks.by_mac[&mac(1)], "openstack/NetworkID:da5bb487-5193-4a65-a3df-4a0055a8c0d7");
        assert_eq!(networks.by_mac[&mac(2)], second);
        assert_eq!(networks.by_address[&"0000:00:05.0".parse().unwrap()], second);
    }

    #[test]
    fn the_error_names_the_damaged_file() {
        let error = parse_networks("{", "{}").unwrap_err();
        assert_eq!(error.to_string(), "cannot get network_data.json");
    }

    #[test]
    fn the_mount_point_of_the_drive_is_found() {
        let mounts = "/dev/vda1 / ext4 rw 0 0\n/dev/vdb /mnt/config iso9660 ro 0 0\n";
        assert_eq!(find_mount_point(mounts, "/dev/vdb"), Some("/mnt/config"));
        assert_eq!(find_mount_point(mounts, "/dev/vd"), None);
    }

    proptest! {
        #[test]
        fn accepts_damaged_files(at in 0..NETWORK_DATA.len(), length in 0..NETWORK_DATA.len(), byte in 0x20..0x7f_u8) {
            let mut text = NETWORK_DATA.as_bytes().to_vec();
            text[at] = byte;
            let damaged = String::from_utf8(text).unwrap();
            let _ = parse_networks(&damaged, META_DATA);
            let _ = parse_networks(&damaged[..length], META_DATA);
            let _ = find_mount_point(&damaged, "/dev/vdb");
        }
    }
}
