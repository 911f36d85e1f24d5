//! Bare client: attaches a VF by the requests to the kernel that no program can do without, and nothing else.
//!
//! - It knows all names, indexes and settings beforehand, which a plugin has to read.
//! - It checks nothing, and verifies nothing.
//! - It starts no process and no thread, takes no lock, and writes no file: neither a journal nor what the Go plugin reads.
//!
//! The effects on the kernel are the same as those of the plugin, including the settings of the interface that make the kernel
//! announce addresses.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkAttribute, LinkFlags, LinkMessage, LinkVfInfo, VfInfo, VfInfoSpoofCheck, VfInfoTrust, VfVlan,
    VfVlanInfo, VlanProtocol,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sched::{CloneFlags, setns};

use super::lab_vf::{INTERFACE, LabVf, Pod, VLAN};

const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";
/// Settings that make the kernel announce addresses when the link comes up, and let programs use IPv6 addresses early.
const ANNOUNCING: [(&str, &str); 3] =
    [("ipv4", "arp_notify"), ("ipv6", "ndisc_notify"), ("ipv6", "optimistic_dad")];

/// Attaches a VF, whose interface has this index, to a pod.
pub(super) fn add(pod: &Pod, vf: &LabVf, index: u32) -> Result<()> {
    let namespace = open(&pod.namespace())?;
    let host = connect()?;
    change(&host, vf.pf, settings(vf, VLAN, false, true))?;
    change(&host, index, move_to(&namespace, INTERFACE))?;
    inside(&namespace, || {
        for (family, setting) in ANNOUNCING {
            let path = format!("/proc/sys/net/{family}/conf/{INTERFACE}/{setting}");
            fs::write(&path, "1").context(path)?;
        }
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        send(&connect()?, message)
    })
}

/// Releases a VF, whose interface has this index in the pod.
pub(super) fn delete(pod: &Pod, vf: &LabVf, index: u32) -> Result<()> {
    let (namespace, own) = (open(&pod.namespace())?, open(OWN_NAMESPACE)?);
    change(&connect()?, vf.pf, settings(vf, 0, true, false))?;
    inside(&namespace, || change(&connect()?, index, move_to(&own, &vf.name)))
}

fn settings(vf: &LabVf, vlan: u32, spoof_check: bool, trust: bool) -> Vec<LinkAttribute> {
    let vlan = VfVlanInfo::new(vf.number, vlan, 0, VlanProtocol::Ieee8021Q);
    let settings = vec![
        VfInfo::VlanList(vec![VfVlan::Info(vlan)]),
        VfInfo::SpoofCheck(VfInfoSpoofCheck::new(vf.number, spoof_check)),
        VfInfo::Trust(VfInfoTrust::new(vf.number, trust)),
    ];
    vec![LinkAttribute::VfInfoList(vec![LinkVfInfo(settings)])]
}

fn move_to(namespace: &File, name: &str) -> Vec<LinkAttribute> {
    vec![LinkAttribute::NetNsFd(namespace.as_raw_fd()), LinkAttribute::IfName(name.to_owned())]
}

fn open(namespace: &str) -> Result<File> {
    File::open(namespace).with_context(|| namespace.to_owned())
}

fn connect() -> Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Runs `work` while this thread is in a namespace.
fn inside(namespace: &File, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let own = open(OWN_NAMESPACE)?;
    setns(namespace, CloneFlags::CLONE_NEWNET)?;
    let result = work();
    setns(own, CloneFlags::CLONE_NEWNET)?;
    result
}

/// Changes attributes of an interface.
fn change(socket: &Socket, index: u32, attributes: Vec<LinkAttribute>) -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    send(socket, message)
}

/// Sends a request, and waits until the kernel has executed it.
fn send(socket: &Socket, message: LinkMessage) -> Result<()> {
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::SetLink(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)?.payload {
        NetlinkPayload::Error(answer) if answer.code.is_none() => Ok(()),
        other => bail!("the kernel refuses {request:?}: {other:?}"),
    }
}
