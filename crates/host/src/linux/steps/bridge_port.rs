//! Steps that attach a PF to its Linux bridge, detach it, and change its settings as a port.

use std::collections::BTreeMap;

use vfleet_api::PciAddress;
use vfleet_plan::{LinuxBridgeFacts, bridge_port};

use super::{links, linux_bridge, verify};
use crate::HostError;
use crate::linux::netlink::rtnl::{Link, PortSettings, Rtnl};
use crate::linux::root::HostRoot;

/// PF and its bridge, as a step found them.
struct Uplink {
    rtnl: Rtnl,
    /// Interface of the PF.
    link: Link,
    /// Our bridge.
    bridge: Link,
}

impl Uplink {
    fn find(root: &HostRoot, pf: PciAddress, bridge: &str, attempt: &str) -> Result<Self, HostError> {
        let (index, mut rtnl) = (links::pf_index(root, pf)?, Rtnl::open()?);
        let bridge = linux_bridge::find_ours(&mut rtnl, bridge, &LinuxBridgeFacts::alias_of(pf), attempt)?;
        Ok(Self { link: rtnl.link(index)?, bridge, rtnl })
    }

    fn is_attached(&self) -> bool {
        self.link.master == Some(self.bridge.index)
    }

    /// Reads the interface of the PF again.
    fn reread(&mut self) -> Result<(), HostError> {
        self.link = self.rtnl.link(self.link.index)?;
        Ok(())
    }

    fn set_master(&mut self, master: Option<u32>, attempt: &str) -> Result<(), HostError> {
        self.rtnl.set_master(self.link.index, master, attempt)?;
        self.reread()
    }

    /// Fails if the interface of the PF is not a member of `master`.
    fn verify(&self, master: Option<u32>, attempt: &str) -> Result<(), HostError> {
        let describe = |master: Option<u32>| match master {
            None => "no master".to_owned(),
            Some(index) if index == self.bridge.index => format!("master {}", self.bridge.name),
            Some(index) => format!("interface {index} as master"),
        };
        verify(attempt, &describe(master), &describe(self.link.master))
    }
}

/// Makes the interface of a PF a port of its bridge. A member of another interface is an error.
pub(super) fn attach(root: &HostRoot, pf: PciAddress, bridge: &str, attempt: &str) -> Result<(), HostError> {
    let mut uplink = Uplink::find(root, pf, bridge, attempt)?;
    if uplink.is_attached() {
        return Ok(());
    }
    if let Some(master) = uplink.link.master {
        return Err(HostError::UplinkHasMaster {
            attempt: attempt.to_owned(),
            interface: uplink.link.name,
            master: uplink.rtnl.link(master)?.name,
        });
    }
    uplink.set_master(Some(uplink.bridge.index), attempt)?;
    uplink.verify(Some(uplink.bridge.index), attempt)
}

/// Removes the interface of a PF from its bridge. A member of another interface, or of none, is left alone, and so is
/// the PF of a bridge that does not exist anymore.
pub(super) fn detach(root: &HostRoot, pf: PciAddress, bridge: &str, attempt: &str) -> Result<(), HostError> {
    let mut uplink = match Uplink::find(root, pf, bridge, attempt) {
        Err(HostError::LinuxBridgeNotFound { .. }) => return Ok(()),
        found => found?,
    };
    if !uplink.is_attached() {
        return Ok(());
    }
    uplink.set_master(None, attempt)?;
    uplink.verify(None, attempt)
}

/// Changes settings of a PF as a port of its bridge.
pub(super) fn set(
    root: &HostRoot,
    pf: PciAddress,
    bridge: &str,
    settings: &BTreeMap<String, String>,
    attempt: &str,
) -> Result<(), HostError> {
    let desired = parse(settings, attempt)?;
    let mut uplink = Uplink::find(root, pf, bridge, attempt)?;
    let differing = check_differing(&uplink, &desired, attempt)?;
    if !differing.is_empty() {
        uplink.rtnl.set_port(uplink.link.index, &differing, attempt)?;
        uplink.reread()?;
    }
    let differing = check_differing(&uplink, &desired, attempt)?;
    let observed = port_settings(&uplink.link);
    let found =
        differing.keys().map(|name| (*name, observed.and_then(|observed| observed.get(name).copied())));
    let expected = differing.iter().map(|(name, number)| (*name, Some(*number)));
    verify(attempt, &describe(expected), &describe(found))
}

/// Returns the kernel's numbers of settings.
fn parse(settings: &BTreeMap<String, String>, attempt: &str) -> Result<PortSettings, HostError> {
    let parse = |(name, value): (&String, &String)| {
        let number = bridge_port::parse_value(name, value)?;
        // A name with a valid value is among the names.
        Ok(bridge_port::NAMES.iter().find(|known| *known == name).map(|known| (*known, number)))
    };
    let parsed: Result<Vec<_>, _> = settings.iter().map(parse).collect();
    let parsed =
        parsed.map_err(|source| HostError::BridgePortSetting { attempt: attempt.to_owned(), source })?;
    Ok(parsed.into_iter().flatten().collect())
}

fn port_settings(link: &Link) -> Option<&PortSettings> {
    link.port.as_ref().map(|port| &port.settings)
}

/// Returns the desired settings that the port does not have. A PF that is not a port of the bridge is an error.
fn check_differing(
    uplink: &Uplink,
    desired: &PortSettings,
    attempt: &str,
) -> Result<PortSettings, HostError> {
    if !uplink.is_attached() {
        return Err(HostError::UplinkNotAttached {
            attempt: attempt.to_owned(),
            interface: uplink.link.name.clone(),
            bridge: uplink.bridge.name.clone(),
        });
    }
    let found = port_settings(&uplink.link);
    let differs =
        |(name, number): &(&&'static str, &u32)| found.is_none_or(|found| found.get(*name) != Some(*number));
    Ok(desired.iter().filter(differs).map(|(name, number)| (*name, *number)).collect())
}

/// Describes settings; `None` is a setting that the kernel does not report.
fn describe(settings: impl Iterator<Item = (&'static str, Option<u32>)>) -> String {
    let describe = |(name, number): (&'static str, Option<u32>)| {
        let value = number.and_then(|number| bridge_port::format_value(name, number));
        format!("{name} {}", value.as_deref().unwrap_or("not supported by this kernel"))
    };
    settings.map(describe).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_numbers_of_the_kernel() {
        let settings =
            |name: &str, value: &str| parse(&[(name.to_owned(), value.to_owned())].into(), "configure it");
        assert_eq!(settings("learning", "off").unwrap(), [("learning", 0)].into());
        assert_eq!(settings("state", "blocking").unwrap(), [("state", 4)].into());
        let error = settings("color", "red").unwrap_err();
        assert_eq!((error.reason(), error.to_string().as_str()), ("InvalidSpec", "cannot configure it"));
        assert!(crate::format_error_chain(&error).contains("\"color\" is not a supported setting"));
    }

    #[test]
    fn a_setting_that_the_kernel_does_not_report_is_not_supported() {
        let text = describe([("flood", Some(1)), ("mab", None)].into_iter());
        assert_eq!(text, "flood on, mab not supported by this kernel");
    }
}
