//! Steps that configure the representor of a VF.

use vfleet_plan::cni::facts::Representor;

use super::pod::set_link_up;
use crate::HostError;
use crate::linux::attachment::settle::settle;
use crate::linux::netlink::rtnl::{Link, Rtnl};
use crate::linux::representor;
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::steps::verify;

/// Sets the MTU and the administrative state of a representor.
pub(super) fn set(
    root: &HostRoot,
    representor: &Representor,
    mtu: Option<u32>,
    is_up: Option<bool>,
) -> Result<(), HostError> {
    let attempt = format!("configure {representor}");
    let link = require(root, representor, &attempt)?;
    let mut rtnl = Rtnl::open()?;
    if let Some(mtu) = mtu {
        let attempt = format!("set the MTU of {representor} to {mtu}");
        if link.mtu != mtu {
            settle(|| rtnl.set_mtu(link.index, mtu, &attempt))?;
        }
        verify(&attempt, &mtu, &rtnl.link(link.index)?.mtu)?;
    }
    match is_up {
        None => Ok(()),
        Some(true) => set_link_up(&mut rtnl, link.index, &format!("set {representor} up")),
        Some(false) => {
            let attempt = format!("set {representor} down");
            if link.is_up {
                settle(|| rtnl.set_down(link.index, &attempt))?;
            }
            verify(&attempt, &"down", &if rtnl.link(link.index)?.is_up { "up" } else { "down" })
        }
    }
}

/// Returns the representor with this name. Another interface that got the name is an error.
pub(super) fn require(root: &HostRoot, representor: &Representor, attempt: &str) -> Result<Link, HostError> {
    let Representor { vf, name } = representor;
    let found = find(root, representor)?;
    found.ok_or_else(|| HostError::RepresentorNotFound {
        attempt: attempt.to_owned(),
        vf: *vf,
        name: name.clone(),
    })
}

/// Returns the representor with this name; `None` if the interface of the VF is called otherwise, or does not exist.
pub(super) fn find(root: &HostRoot, representor: &Representor) -> Result<Option<Link>, HostError> {
    let found = read_stable(|| {
        let links = Rtnl::open()?.links()?;
        Ok(representor::find(root, representor.vf, &links)?.cloned())
    })?;
    Ok(found.filter(|link| link.name == representor.name))
}
