//! The parsers of what the kernel, other programs and clouds tell, for `tests/fuzz/main.rs`. No other code uses them.

use std::collections::BTreeMap;

use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_plan::{EswitchMode, Fact, Processor, Record};

use super::boot_loader::arguments::{self, DropIn};
use super::netlink::attribute::{Attributes, Received};
use super::netlink::message::{self, Message, Reply};
use super::netlink::rtnl::{self, Address, NextHop, Route};
use super::netlink::{devlink, ethtool, generic, rdma};
use super::platform::{aws, http, openstack};
use super::records::Damage;
use super::uevent::Uevent;
use super::{modules, parse, records, storage, system, uses};
use crate::HostError;

/// An interface as `RTM_NEWLINK` describes it, as far as tests judge it.
#[derive(Debug)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its other names.
    pub alt_names: Vec<String>,
    /// The MTU.
    pub mtu: u32,
    /// The largest MTU.
    pub max_mtu: Option<u32>,
    /// The MACs of its VFs.
    pub vf_macs: BTreeMap<u32, MacAddr>,
    /// The GUIDs of its VFs.
    pub vf_guids: BTreeMap<u32, Guid>,
}

/// Parses the payload of an `RTM_NEWLINK`.
pub fn link(payload: &[u8]) -> Option<Link> {
    let _ = rtnl::is_virtual(payload);
    let rtnl::Link { index, name, alt_names, mtu, max_mtu, vf_macs, vf_guids, .. } =
        rtnl::Link::parse(payload)?;
    Some(Link { index, name, alt_names, mtu, max_mtu, vf_macs, vf_guids })
}

/// Parses the payload of an `RTM_NEWROUTE`; returns the interfaces that the route leads through.
pub fn route(payload: &[u8]) -> Option<Vec<u32>> {
    Route::parse(payload).map(|route| route.interfaces)
}

/// Parses the payload of an `RTM_NEWADDR`; returns the interface, and whether it has an IP address.
pub fn address(payload: &[u8]) -> Option<(u32, bool)> {
    Address::parse(payload).map(|address| (address.index, address.ip.is_some()))
}

/// Parses the payload of an `RTM_NEWNEXTHOP`; returns its id, its interface, and the hops that it consists of.
pub fn next_hop(payload: &[u8]) -> Option<(u32, Option<u32>, Vec<u32>)> {
    NextHop::parse(payload).map(|hop| (hop.id, hop.interface, hop.group))
}

/// Parses the address of an NVMe controller, and `/proc/uptime`; returns whether the server's address is told.
pub fn nvme_address(text: &str) -> bool {
    let _ = uses::uptime(text);
    storage::nvme(text).server.is_some()
}

/// Parses attributes of netlink.
pub fn attributes(bytes: &[u8]) -> Option<Vec<(u16, Vec<u8>)>> {
    Some(Received::parse(bytes)?.iter().map(|(kind, value)| (kind, value.to_vec())).collect())
}

/// Encodes attributes of netlink.
pub fn encode_attributes(attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let add = |all: Attributes, (kind, value): &(u16, Vec<u8>)| all.with(*kind, value);
    attributes.iter().fold(Attributes::default(), add).after(&[])
}

/// Parses what was received from a netlink socket at once; returns the errno or the length of the data of each message.
pub fn replies(bytes: &[u8]) -> Option<Vec<Result<usize, i32>>> {
    let read = |message: Message<'_>| match Reply::of(&message) {
        Reply::Data(payload) => Ok(payload.len()),
        Reply::Done | Reply::Empty | Reply::Incomplete => Ok(0),
        Reply::Refused { errno, .. } => Err(errno),
    };
    let _ = message::messages(bytes).map(read).count();
    Some(message::all_messages(bytes)?.into_iter().map(read).collect())
}

/// Parses the answer to `CTRL_CMD_GETFAMILY`.
pub fn family_id(answer: &[u8]) -> Option<u16> {
    generic::family_id(answer)
}

/// Parses the answer to `DEVLINK_CMD_ESWITCH_GET`.
pub fn eswitch_mode(answer: &[u8]) -> Option<Fact<EswitchMode>> {
    devlink::eswitch_mode(answer)
}

/// Parses the answer to `DEVLINK_CMD_PARAM_GET`.
pub fn devlink_parameter(answer: &[u8]) -> Option<(u8, String)> {
    devlink::text_parameter(answer)
}

/// Parses the answer to `ETHTOOL_MSG_FEATURES_GET`; returns whether a feature can be switched, and is on.
pub fn feature(answer: &[u8], name: &str) -> Option<(bool, bool)> {
    ethtool::feature(answer, name).map(|feature| (feature.can_switch, feature.is_on))
}

/// Parses the answer to `RDMA_NLDEV_CMD_SYS_GET`.
pub fn rdma_mode(answer: &[u8]) -> Option<RdmaMode> {
    rdma::netns_mode(answer)
}

/// Parses an announcement of the kernel; returns its device and subsystem.
pub fn uevent(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    Uevent::parse(bytes).map(|event| {
        let _ = event.is_about_cards();
        (event.device, event.subsystem)
    })
}

/// The numbers in a word of sysfs, each as the parser of one kind of file reads it.
#[derive(Debug)]
pub struct SysfsNumbers {
    /// A number of VFs.
    pub count: Option<u16>,
    /// The number of an interface.
    pub index: Option<u32>,
    /// The number of a port.
    pub port: Option<u32>,
    /// A vendor or device id.
    pub id: Option<u16>,
    /// A speed.
    pub speed: Option<u32>,
    /// The number of a VF in a link's name.
    pub virtfn: Option<u16>,
    /// The numbers of PF and VF in a port's name.
    pub vf_port: Option<(u32, u16)>,
}

/// Parses a word of sysfs in all ways that there are.
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
    system::processor(text)
}

/// Parses `/sys/kernel/security/lockdown`.
pub fn locks_down(text: &str) -> Option<bool> {
    system::locks_down(text)
}

/// Parses `modules.dep` and `modules.builtin`.
pub fn known_modules(text: &str) -> Vec<&'static str> {
    modules::known_in(text).into_iter().collect()
}

/// Parses `/proc/1/mounts`.
pub fn mount_point<'a>(mounts: &'a str, device: &str) -> Option<&'a str> {
    openstack::mount_point(mounts, device)
}

/// Parses our record of the PF `name`.
pub fn record(bytes: &[u8], name: &str) -> Result<Record, HostError> {
    records::parse_ours(bytes, name).map_err(|source| damaged(name, source))
}

/// Parses the Go daemon's record of the PF `name`.
pub fn go_record(bytes: &[u8], name: &str) -> Result<(PciAddress, Interface), HostError> {
    records::parse_theirs(bytes, name).map_err(|source| damaged(name, source))
}

fn damaged(name: &str, source: Damage) -> HostError {
    HostError::Record { path: name.into(), remedy: "remove it".to_owned(), source }
}

/// Parses our file for GRUB; returns the arguments to add and those to leave out, and the file that says the same.
pub fn grub_drop_in(text: &str) -> (Vec<String>, Vec<String>, String) {
    let found = DropIn::read(text);
    let text = found.text();
    (found.with, found.without, text)
}

/// Returns whether a kernel argument may be put into a file that a shell reads.
pub fn is_plain_argument(argument: &str) -> bool {
    arguments::is_plain(argument)
}

/// Parses `grub.cfg`; returns the arguments of its first entry.
pub fn grub_config(text: &str) -> String {
    arguments::of_first_entry(text)
}

/// Parses what grubby prints about a kernel; returns its arguments.
pub fn grubby_info(text: &str) -> String {
    arguments::quoted_arguments(text)
}

/// The networks of a cloud, by MAC and by PCI address.
pub type Networks = (BTreeMap<MacAddr, String>, BTreeMap<PciAddress, String>);

/// Parses the metadata of OpenStack.
pub fn openstack(network_data: &str, meta_data: &str) -> Result<Networks, HostError> {
    let networks = openstack::from_texts(network_data, meta_data)?;
    Ok((networks.by_mac, networks.by_address))
}

/// Parses the list of a machine's interfaces that AWS gives.
pub fn aws_interfaces(list: &str) -> Vec<MacAddr> {
    aws::macs(list)
}

/// Parses the subnet that AWS gives.
pub fn aws_network(subnet: &str) -> String {
    aws::network(subnet)
}

/// Parses an answer of a metadata service; returns its body.
pub fn http_body(answer: &[u8]) -> std::io::Result<String> {
    http::body(answer)
}
