//! Texts of steps on the switch side: one line for messages, one word for logs.

use core::fmt;

use super::{MirrorRole, OvsPort, OvsVlans, SwitchStep};
use crate::cni::facts::{BridgeVlan, Representor};
use crate::prelude::*;

macro_rules! kinds {
    ($($kind:ident)*) => {
        impl SwitchStep {
            /// All values that [`SwitchStep::kind`] returns.
            pub const KINDS: &[&str] = &[$(stringify!($kind)),*];

            /// Returns the name of the variant, for logs.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => stringify!($kind),)*
                }
            }
        }
    };
}

kinds! {
    CreateVeth DeleteVeth DeleteVethInPod SetHostInterfaceUp SetRepresentor SetDeviceMtu SetVdpaMac
    AddOvsPort RemoveOvsPort AwaitOvsLink AttachMirror DetachMirror RemoveUnusedMirror
    AttachBridgePort DetachBridgePort AddUplinkVlans RemoveUplinkVlans WriteDeviceInfo
}

impl fmt::Display for SwitchStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateVeth { host_name, host_mac, namespace, name, mac, mtu } => write!(
                f,
                "create veth {host_name} mac {host_mac} with {name} mac {mac} in {}, mtu {mtu}",
                namespace.path
            ),
            Self::DeleteVeth { host_name, host_mac: Some(mac) } => {
                write!(f, "delete veth {host_name} mac {mac}")
            }
            Self::DeleteVeth { host_name, host_mac: None } => write!(f, "delete veth {host_name}"),
            Self::DeleteVethInPod { namespace, name } => {
                write!(f, "delete veth {name} in {}", namespace.path)
            }
            Self::SetHostInterfaceUp { name } => write!(f, "set {name} up"),
            Self::SetRepresentor { representor, mtu, is_up } => {
                write!(f, "set {representor}")?;
                let mtu = mtu.map(|mtu| format!(" mtu {mtu}"));
                let state = is_up.map(|is_up| if is_up { " up" } else { " down" }.to_owned());
                f.write_str(&mtu.into_iter().chain(state).collect::<Vec<_>>().join(","))
            }
            Self::SetDeviceMtu { device, mtu } => write!(f, "set interface of {device} mtu {mtu}"),
            Self::SetVdpaMac { device, name, mac } => {
                write!(f, "set vDPA device {name} of {device} mac {mac}")
            }
            Self::AddOvsPort { bridge, port, .. } => write!(f, "add to OVS bridge {bridge}: {port}"),
            Self::RemoveOvsPort { name, external_ids, .. } => {
                write!(f, "remove OVS port {name}")?;
                write_map(f, " if external_ids", external_ids)
            }
            Self::AwaitOvsLink { name, limit, .. } => {
                write!(f, "await link of OVS interface {name} for {} ms", limit.as_millis())
            }
            Self::AttachMirror { bridge, mirror, port, role, .. } => {
                write!(f, "add {port} as {role} of OVS mirror {mirror} of {bridge}")
            }
            Self::DetachMirror { bridge, mirror, port, role, .. } => {
                write!(f, "remove {port} as {role} of OVS mirror {mirror} of {bridge}")
            }
            Self::RemoveUnusedMirror { bridge, mirror, .. } => {
                write!(f, "remove unused OVS mirror {mirror} of {bridge}")
            }
            Self::AttachBridgePort { representor, bridge, vlans } => {
                write!(f, "attach {representor} to bridge {bridge}")?;
                match vlans {
                    None => Ok(()),
                    Some(vlans) => write!(f, " with vlans {}", BridgeVlans(vlans)),
                }
            }
            Self::DetachBridgePort { representor, bridge } => {
                write!(f, "detach {representor} from bridge {bridge}")
            }
            Self::AddUplinkVlans { uplink, vlans } => {
                write!(f, "add vlans {} to uplink {uplink}", Ranges(vlans.iter().copied()))
            }
            Self::RemoveUplinkVlans { uplink, vlans } => {
                write!(f, "remove vlans {} from uplink {uplink}", Ranges(vlans.iter().copied()))
            }
            Self::WriteDeviceInfo { path, content } => write!(f, "write device-info {path}: {content}"),
        }
    }
}

impl fmt::Display for Representor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "representor {} of {}", self.name, self.vf)
    }
}

impl fmt::Display for OvsPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, vlans, external_ids, interface_type, interface_ids, ofport_request } = self;
        write!(f, "port {name} {vlans}")?;
        if let Some(type_) = interface_type {
            write!(f, " type {type_}")?;
        }
        if let Some(ofport) = ofport_request {
            write!(f, " ofport_request {ofport}")?;
        }
        write_map(f, " external_ids", external_ids)?;
        write_map(f, " interface external_ids", interface_ids)
    }
}

impl fmt::Display for OvsVlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(tag) => write!(f, "access {tag}"),
            Self::Trunk(vlans) if vlans.is_empty() => f.write_str("trunk"),
            Self::Trunk(vlans) => write!(f, "trunk {}", Ranges(vlans.iter().copied())),
        }
    }
}

impl fmt::Display for MirrorRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source { ingress: true, egress: true } => "source of both directions",
            Self::Source { ingress: true, egress: false } => "source of ingress",
            Self::Source { ingress: false, egress: true } => "source of egress",
            Self::Source { ingress: false, egress: false } => "source of nothing",
            Self::Output => "output",
        })
    }
}

/// Ascending numbers, of which neighbours are written as a range: `5, 10-20`.
pub(in crate::cni) struct Ranges<I>(pub(in crate::cni) I);

impl<I: Iterator<Item = u16> + Clone> fmt::Display for Ranges<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for id in self.0.clone() {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
                _ => ranges.push((id, id)),
            }
        }
        for (at, (first, last)) in ranges.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

/// VLANs of a port of a Linux bridge: tagged ones as ranges, then the others.
pub(in crate::cni) struct BridgeVlans<'a>(pub(in crate::cni) &'a [BridgeVlan]);

impl fmt::Display for BridgeVlans<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_tagged = |vlan: &&BridgeVlan| !vlan.is_native && !vlan.is_untagged;
        let tagged = self.0.iter().filter(is_tagged).map(|vlan| vlan.id);
        let mut separator = "";
        if tagged.clone().next().is_some() {
            write!(f, "{}", Ranges(tagged))?;
            separator = ", ";
        }
        for vlan in self.0.iter().filter(|vlan| !is_tagged(vlan)) {
            let native = if vlan.is_native { " pvid" } else { "" };
            let untagged = if vlan.is_untagged { " untagged" } else { "" };
            write!(f, "{separator}{}{native}{untagged}", vlan.id)?;
            separator = ", ";
        }
        Ok(())
    }
}

fn write_map(f: &mut fmt::Formatter<'_>, label: &str, map: &BTreeMap<String, String>) -> fmt::Result {
    for (at, (key, value)) in map.iter().enumerate() {
        write!(f, "{} {key}={value}", if at == 0 { label } else { "" })?;
    }
    Ok(())
}
