//! Step that configures the interface of a pod and sets it up.

use vfleet_api::MacAddr;
use vfleet_plan::cni::facts::Namespace;

use super::mac;
use crate::HostError;
use crate::linux::attachment::namespace::OpenNamespace;
use crate::linux::attachment::settle::settle;
use crate::linux::netlink::rtnl::{Link, Rtnl};
use crate::linux::root::HostRoot;
use crate::linux::steps::verify;
use crate::linux::sysfs;

/// Settings with which the kernel announces addresses when the link comes up, and lets programs use IPv6 addresses early.
const ANNOUNCING: [(&str, &str); 3] =
    [("ipv4", "arp_notify"), ("ipv6", "ndisc_notify"), ("ipv6", "optimistic_dad")];

/// Sets MTU and MAC address of an interface of a pod, and sets it up.
pub(super) fn set_up(
    root: &HostRoot,
    namespace: &Namespace,
    name: &str,
    mtu: Option<u32>,
    mac: Option<MacAddr>,
) -> Result<(), HostError> {
    let attempt = format!("set up interface {name} in {}", namespace.path);
    OpenNamespace::require(root, namespace, &attempt)?.run(|| {
        let mut rtnl = Rtnl::open()?;
        let link = require_link(&mut rtnl, namespace, name)?;
        for (family, setting) in ANNOUNCING {
            // Not every kernel has them, and the interface works without them.
            let _ = sysfs::write(&root.proc(&format!("sys/net/{family}/conf/{name}/{setting}")), "1");
        }
        if let Some(mtu) = mtu.filter(|mtu| *mtu != link.mtu) {
            let attempt = format!("set the MTU of interface {name} in {} to {mtu}", namespace.path);
            settle(|| rtnl.set_mtu(link.index, mtu, &attempt))?;
            verify(&attempt, &mtu, &rtnl.link(link.index)?.mtu)?;
        }
        if let Some(mac) = mac {
            let attempt = format!("set the MAC address of interface {name} in {} to {mac}", namespace.path);
            mac::set(&mut rtnl, link.index, mac, &attempt)?;
        }
        set_link_up(&mut rtnl, &link, &attempt)
    })
}

/// Sets an interface up, unless it was when it was read. Drivers that wait for the PF may be busy.
pub(super) fn set_link_up(rtnl: &mut Rtnl, link: &Link, attempt: &str) -> Result<(), HostError> {
    if link.is_up {
        return Ok(());
    }
    settle(|| rtnl.set_up(link.index, attempt))?;
    verify(attempt, &true, &rtnl.link(link.index)?.is_up)
}

/// Reads the interface with this name in the namespace of this thread, which is that of a pod.
pub(super) fn require_link(rtnl: &mut Rtnl, namespace: &Namespace, name: &str) -> Result<Link, HostError> {
    rtnl.link_by_name(name)?.ok_or_else(|| HostError::NotVerified {
        attempt: format!("find interface {name} in {}", namespace.path),
        expected: "the interface".to_owned(),
        found: "none: delete the pod, so that it is created again".to_owned(),
    })
}
