//! Parsers of data from the kernel, other programs and clouds, for the fuzz tests in `tests/fuzz/main.rs` only.

use std::collections::BTreeMap;
use std::iter;

use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::cni::facts::{BridgeVlan, OvsSwitchBridge, VfSettings};
use vfleet_plan::cni::journal::AttachmentKey;
use vfleet_plan::{EswitchMode, Fact, LinuxBridgeFacts, OvsDatabase, Processor, Record};

use super::boot_loader::arguments::{self, DropIn};
use super::bridge_events::BridgeWatch;
use super::netlink::attribute::{Attributes, ReceivedAttributes};
use super::netlink::message::{self, NetlinkMessage, Reply};
use super::netlink::rtnl::{self, InterfaceAddress, NextHop, Route};
use super::netlink::{devlink, ethtool, generic, rdma, vdpa};
use super::ovs::follow::configurations;
use super::ovs::rows;
use super::ovs::switch_rows;
use super::ovs::watch::columns::is_relevant;
use super::ovsdb::{Message, MessageBuffer, Operation, check_results};
use super::platform::{aws, http, openstack};
use super::records::Damage;
use super::uevent::Uevent;
use super::{attachment, bridge, host_use, modules, parse, records, storage, system};
use crate::HostError;

/// Fields of an interface that the tests check.
#[derive(Debug)]
pub struct ParsedLink {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Alternative names.
    pub alt_names: Vec<String>,
    /// MTU.
    pub mtu: u32,
    /// Maximum MTU.
    pub max_mtu: Option<u32>,
    /// Settings of its VFs.
    pub vfs: BTreeMap<u32, VfSettings>,
    /// Alias.
    pub alias: Option<String>,
    /// Settings as a port of a Linux bridge.
    pub port: BTreeMap<&'static str, u32>,
    /// Facts, if the interface is a Linux bridge and they are complete.
    pub bridge: Option<LinuxBridgeFacts>,
}

/// Parses the payload of an `RTM_NEWLINK`.
pub fn link(payload: &[u8]) -> Option<ParsedLink> {
    let _ = rtnl::is_virtual(payload);
    let link = rtnl::Link::parse(payload)?;
    let bridge = bridge::list(&iter::once(&link), |_| Ok(false)).ok().and_then(|mut bridges| bridges.pop());
    let rtnl::Link { index, name, alt_names, mtu, max_mtu, vfs, alias, port, .. } = link;
    let port = port.map(|port| port.settings).unwrap_or_default();
    Some(ParsedLink { index, name, alt_names, mtu, max_mtu, vfs, alias, port, bridge })
}

/// Returns whether an `RTM_NEWLINK` is relevant for bridges, the first and the second time; `None` if it is not about
/// one.
pub fn bridge_event(payload: &[u8]) -> Option<(bool, bool)> {
    let watch = BridgeWatch::default();
    let first = watch.is_relevant(rtnl::RTM_NEWLINK, payload)?;
    Some((first, watch.is_relevant(rtnl::RTM_NEWLINK, payload)?))
}

/// Parses the payload of an `RTM_NEWROUTE`; returns the interfaces of the route.
pub fn route(payload: &[u8]) -> Option<Vec<u32>> {
    Route::parse(payload).map(|route| route.interfaces)
}

/// Parses the payload of an `RTM_NEWADDR`; returns the interface, and whether it has an IP address.
pub fn address(payload: &[u8]) -> Option<(u32, bool)> {
    InterfaceAddress::parse(payload).map(|address| (address.index, address.ip.is_some()))
}

/// Parses the payload of an `RTM_NEWNEXTHOP`; returns its ID, its interface, and the members of a group.
pub fn next_hop(payload: &[u8]) -> Option<(u32, Option<u32>, Vec<u32>)> {
    NextHop::parse(payload).map(|hop| (hop.id, hop.interface, hop.group))
}

/// Parses the address of an NVMe controller, and `/proc/uptime`; returns whether the address of the server is known.
pub fn nvme_address(text: &str) -> bool {
    let _ = host_use::parse_uptime(text);
    storage::parse_nvme_address(text).server.is_some()
}

/// Parses attributes of netlink.
pub fn attributes(bytes: &[u8]) -> Option<Vec<(u16, Vec<u8>)>> {
    Some(ReceivedAttributes::parse(bytes)?.iter().map(|(kind, value)| (kind, value.to_vec())).collect())
}

/// Encodes attributes of netlink.
pub fn encode_attributes(attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let add = |all: Attributes, (kind, value): &(u16, Vec<u8>)| all.with(*kind, value);
    attributes.iter().fold(Attributes::default(), add).after(&[])
}

/// Parses a netlink datagram; returns the errno or the length of the data of each message.
pub fn replies(bytes: &[u8]) -> Option<Vec<Result<usize, i32>>> {
    let read = |message: NetlinkMessage<'_>| match Reply::from_message(&message) {
        Reply::Data(payload) => Ok(payload.len()),
        Reply::Done | Reply::Empty | Reply::Incomplete => Ok(0),
        Reply::Refused { errno, .. } => Err(errno),
    };
    let _ = message::messages(bytes).map(read).count();
    Some(message::all_messages(bytes)?.into_iter().map(read).collect())
}

/// Parses the answer to `CTRL_CMD_GETFAMILY`.
pub fn family_id(answer: &[u8]) -> Option<u16> {
    generic::parse_family_id(answer)
}

/// Parses the answer to `DEVLINK_CMD_ESWITCH_GET`.
pub fn eswitch_mode(answer: &[u8]) -> Option<Fact<EswitchMode>> {
    devlink::parse_eswitch_mode(answer)
}

/// Parses the answer to `DEVLINK_CMD_PARAM_GET`.
pub fn devlink_parameter(answer: &[u8]) -> Option<(u8, String)> {
    devlink::parse_text_parameter(answer)
}

/// Parses an answer to `DEVLINK_CMD_PORT_GET`; returns the index of its interface, and the VF index.
pub fn devlink_port(answer: &[u8]) -> Option<(Option<u32>, Option<u16>)> {
    devlink::DevlinkPort::parse(answer).map(|port| (port.interface, port.vf))
}

/// Parses the answer to `VDPA_CMD_DEV_CONFIG_GET`; returns the MAC address and the MTU.
pub fn vdpa_config(answer: &[u8]) -> Option<(Option<MacAddr>, Option<u16>)> {
    vdpa::VdpaConfig::parse(answer).map(|config| (config.mac, config.mtu))
}

/// Parses an `RTM_NEWLINK` with the VLANs of a bridge port; returns its index and the VLANs.
pub fn port_vlans(payload: &[u8]) -> Option<(u32, Vec<BridgeVlan>)> {
    rtnl::PortVlans::parse(payload).map(|port| (port.index, port.vlans))
}

/// Parses the answer to `ETHTOOL_MSG_FEATURES_GET`; returns whether a feature can be switched, and whether it is on.
pub fn feature(answer: &[u8], name: &str) -> Option<(bool, bool)> {
    ethtool::parse_feature(answer, name).map(|feature| (feature.can_switch, feature.is_on))
}

/// Parses the answer to `RDMA_NLDEV_CMD_SYS_GET`.
pub fn rdma_mode(answer: &[u8]) -> Option<RdmaMode> {
    rdma::parse_netns_mode(answer)
}

/// Parses an answer to `RDMA_NLDEV_CMD_GET`; returns index and name of the device.
pub fn rdma_device(answer: &[u8]) -> Option<(u32, String)> {
    rdma::RdmaDevice::parse(answer).map(|device| (device.index, device.name))
}

/// Parses a uevent; returns its device and subsystem.
pub fn uevent(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    Uevent::parse(bytes).map(|event| {
        let _ = event.is_about_cards();
        (event.device, event.subsystem)
    })
}

/// Numbers in a value of sysfs, each parsed as the content of one kind of file.
#[derive(Debug)]
pub struct SysfsNumbers {
    /// Number of VFs.
    pub count: Option<u16>,
    /// Index of an interface.
    pub index: Option<u32>,
    /// Number of a port.
    pub port: Option<u32>,
    /// Vendor or device ID.
    pub id: Option<u16>,
    /// Speed.
    pub speed: Option<u32>,
    /// VF index in the name of a link.
    pub virtfn: Option<u16>,
    /// PF number and VF index in the name of a port.
    pub vf_port: Option<(u32, u16)>,
}

/// Parses a value of sysfs with all parsers.
pub fn sysfs_word(text: &str) -> SysfsNumbers {
    let _ = (parse::switch(text), parse::is_network_class(text), parse::driver_override(text));
    let _ = (parse::is_representor(text), parse::numa_node(text));
    SysfsNumbers {
        count: parse::count(text),
        index: parse::index(text),
        port: parse::port(text),
        id: parse::id(text),
        speed: parse::speed(text).ok().flatten(),
        virtfn: parse::virtfn(text),
        vf_port: parse::vf_port(text).map(|port| (port.pf, port.vf)),
    }
}

/// Parses `/proc/cpuinfo`.
pub fn processor(text: &str) -> Processor {
    system::parse_processor(text)
}

/// Parses `/sys/kernel/security/lockdown`.
pub fn is_locked_down(text: &str) -> Option<bool> {
    system::parse_lockdown(text)
}

/// Parses `modules.dep` and `modules.builtin`.
pub fn known_modules(text: &str) -> Vec<&'static str> {
    modules::parse_list(text).into_iter().collect()
}

/// Parses `/proc/1/mounts`.
pub fn mount_point<'a>(mounts: &'a str, device: &str) -> Option<&'a str> {
    openstack::find_mount_point(mounts, device)
}

/// Parses the name of the journal of an attachment; returns the key, and the name that is written for it.
pub fn journal_name(name: &str) -> Option<(AttachmentKey, String)> {
    attachment::parse_file_name(name).map(|key| (key.clone(), attachment::file_name(&key)))
}

/// Parses the record of the PF `name`.
pub fn record(bytes: &[u8], name: &str) -> Result<Record, HostError> {
    records::parse_record(bytes, name).map_err(|source| damaged(name, source))
}

/// Parses the record of the Go daemon for the PF `name`.
pub fn go_record(bytes: &[u8], name: &str) -> Result<(PciAddress, Interface), HostError> {
    records::parse_go_record(bytes, name).map_err(|source| damaged(name, source))
}

fn damaged(name: &str, source: Damage) -> HostError {
    HostError::DamagedRecord { path: name.into(), remedy: "remove it".to_owned(), source }
}

/// Parses the drop-in file for GRUB; returns the added and the removed arguments, and the file written again.
pub fn grub_drop_in(text: &str) -> (Vec<String>, Vec<String>, String) {
    let found = DropIn::parse(text);
    let text = found.to_text();
    (found.with, found.without, text)
}

/// Returns whether a kernel argument may be written to a file that a shell reads.
pub fn is_plain_argument(argument: &str) -> bool {
    arguments::is_plain(argument)
}

/// Parses `grub.cfg`; returns the arguments of its first entry.
pub fn grub_config(text: &str) -> String {
    arguments::first_entry_arguments(text)
}

/// Parses the output of `grubby --info`; returns the kernel arguments.
pub fn grubby_info(text: &str) -> String {
    arguments::parse_grubby_arguments(text)
}

/// Networks by MAC address and by PCI address.
pub type ParsedNetworks = (BTreeMap<MacAddr, String>, BTreeMap<PciAddress, String>);

/// Parses the metadata of OpenStack.
pub fn openstack(network_data: &str, meta_data: &str) -> Result<ParsedNetworks, HostError> {
    let networks = openstack::parse_networks(network_data, meta_data)?;
    Ok((networks.by_mac, networks.by_address))
}

/// Parses the list of interfaces in the metadata of AWS.
pub fn aws_interfaces(list: &str) -> Vec<MacAddr> {
    aws::parse_macs(list)
}

/// Parses a subnet in the metadata of AWS.
pub fn aws_network(subnet: &str) -> String {
    aws::format_network(subnet)
}

/// Parses a response of a metadata service; returns its body.
pub fn http_body(answer: &[u8]) -> std::io::Result<String> {
    http::parse_body(answer)
}

/// Returns the messages of an OVSDB server that sends these bytes in pieces of this size, and the error that ends the
/// connection.
pub fn ovsdb_messages(bytes: &[u8], piece: usize) -> (Vec<serde_json::Value>, Option<String>) {
    let mut buffer = MessageBuffer::default();
    let mut messages = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        buffer.push(piece);
        loop {
            match buffer.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

/// Parses the tables that attachments read in an answer of an OVSDB server; returns the bridges.
pub fn ovsdb_switch(message: serde_json::Value) -> Option<Vec<OvsSwitchBridge>> {
    let Message::Answer { result, .. } = Message::parse(message)? else { return None };
    switch_rows::parse(result.as_array()?).ok().map(|rows| rows.to_facts())
}

/// Parses a message of an OVSDB server: an answer with the four tables of Open vSwitch, or an update. Returns the facts
/// of an answer; `None` if the message is refused.
///
/// # Panics
///
/// If an accepted answer has not one result for each operation.
pub fn ovsdb_message(message: serde_json::Value) -> Option<OvsDatabase> {
    match Message::parse(message)? {
        Message::Answer { result, .. } => {
            let operations =
                [Operation::assert_absent("Bridge", "br0"), Operation::select("Bridge", &["name"])];
            if let Ok(results) = check_results(&operations, result.clone()) {
                assert_eq!(results.len(), operations.len(), "a result for each operation");
            }
            rows::parse(result.as_array()?).ok().map(|rows| rows.database)
        }
        Message::Update(update) => {
            let _ = is_relevant(&update, Some(1));
            configurations(update.get(1)?).for_each(drop);
            None
        }
        Message::Echo { .. } | Message::Other => None,
    }
}
