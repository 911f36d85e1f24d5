//! Texts of steps: one line for messages, one word for logs.

use core::fmt;

use super::{CniStep, InterfaceAddresses, InterfaceRoute, OriginalInterface};
use crate::prelude::*;

macro_rules! kinds {
    ($($kind:ident)*) => {
        impl CniStep {
            /// Values that [`CniStep::kind`] returns, apart from those of [`SwitchStep::KINDS`](super::SwitchStep::KINDS).
            pub const KINDS: &[&str] = &[$(stringify!($kind)),*];

            /// Returns the name of the variant, for logs.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => stringify!($kind),)*
                    Self::Switch(step) => step.kind(),
                }
            }
        }
    };
}

kinds! {
    SetVf SetInterfaceMac MoveToPod SetUpInPod AddAddresses Announce ReturnToHost
    SetVfGuid SetVfLinkState Rebind MoveRdmaToPod ReturnRdmaToHost
    WriteGoAllocation RemoveGoAllocation
}

impl fmt::Display for CniStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetVf { vf, settings } => write!(f, "set {vf} {settings}"),
            Self::SetInterfaceMac { device, mac } => write!(f, "set interface of {device} mac {mac}"),
            Self::MoveToPod { device, namespace, name, drop_alt_names } => {
                write!(f, "move interface of {device} to {} as {name}", namespace.path)?;
                write_list(f, " without altname", drop_alt_names)
            }
            Self::SetUpInPod { namespace, name, mtu, mac } => {
                write!(f, "set {name} in {} up", namespace.path)?;
                write_option(f, ", mtu", mtu.as_ref())?;
                write_option(f, ", mac", mac.as_ref())
            }
            Self::AddAddresses { namespace, name, addresses } => {
                write!(f, "add to {name} in {}: {addresses}", namespace.path)
            }
            Self::Announce { namespace, name, ips } => {
                write!(f, "announce {name} in {}", namespace.path)?;
                write_list(f, ":", ips)
            }
            Self::ReturnToHost { device, namespace: Some(namespace), pod_name, original } => {
                write!(
                    f,
                    "return {pod_name} in {} to the host as {original}, device {device}",
                    namespace.path
                )
            }
            Self::ReturnToHost { device, namespace: None, original, .. } => {
                write!(f, "restore interface of {device} as {original}")
            }
            Self::SetVfGuid { vf, guid } => write!(f, "set {vf} guid {guid}"),
            Self::SetVfLinkState { vf, state } => write!(f, "set {vf} link_state {state}"),
            Self::Rebind { device } => write!(f, "bind {device} to its driver again"),
            Self::MoveRdmaToPod { device, rdma, namespace } => {
                write!(f, "move RDMA device {rdma} of {device} to {}", namespace.path)
            }
            Self::ReturnRdmaToHost { device, rdma, namespace } => {
                write!(f, "return RDMA device {rdma} of {device} in {} to the host", namespace.path)
            }
            Self::WriteGoAllocation { device, path } => {
                write!(f, "write Go allocation of {device} for {path}")
            }
            Self::RemoveGoAllocation { device, path } => {
                write!(f, "remove Go allocation of {device} for {path}")
            }
            Self::Switch(step) => step.fmt(f),
        }
    }
}

impl fmt::Display for OriginalInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        write_option(f, " mtu", self.mtu.as_ref())?;
        write_option(f, " mac", self.mac.as_ref())?;
        write_list(f, " altname", &self.alt_names)
    }
}

impl fmt::Display for InterfaceAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ips = self.ips.iter().map(ToString::to_string);
        let routes = self.routes.iter().map(|route| format!("route {route}"));
        f.write_str(&ips.chain(routes).collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for InterfaceRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        write_option(f, " via", self.gateway.as_ref())?;
        write_option(f, " mtu", self.mtu.as_ref())?;
        write_option(f, " advmss", self.advmss.as_ref())?;
        write_option(f, " priority", self.priority.as_ref())?;
        write_option(f, " table", self.table.as_ref())?;
        write_option(f, " scope", self.scope.as_ref())
    }
}

fn write_option(f: &mut fmt::Formatter<'_>, label: &str, value: Option<&impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, "{label} {value}"))
}

fn write_list(f: &mut fmt::Formatter<'_>, label: &str, values: &[impl fmt::Display]) -> fmt::Result {
    for (at, value) in values.iter().enumerate() {
        write!(f, "{} {value}", if at == 0 { label } else { "," })?;
    }
    Ok(())
}
