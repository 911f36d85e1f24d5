//! Steps of an attachment. A step contains every value that its execution needs, and executing it twice has the same
//! result as executing it once. After a step the effect is verified by reading back.

mod switch;
mod text;

use serde::{Deserialize, Serialize};
use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};

pub(in crate::cni) use switch::{BridgeVlans, Ranges};
pub use switch::{MirrorRole, OvsPort, OvsVlans, SwitchStep};

use super::facts::{LinkState, Namespace, VfSettings};
use crate::prelude::*;

/// One change for an attachment.
#[derive(Clone, Debug, PartialEq)]
pub enum CniStep {
    /// Applies settings of a VF through the interface of its PF, all in as few requests as the kernel accepts, the MAC
    /// before trust. Both rates are given, or none.
    SetVf {
        /// The VF.
        vf: VfRef,
        /// Settings to change.
        settings: VfSettings,
    },
    /// Gives the interface of a device in the host's namespace this MAC. Where the driver does not accept it, the device
    /// is bound to its driver again, which takes the administrative MAC over.
    SetInterfaceMac {
        /// The device.
        device: PciAddress,
        /// Its MAC.
        mac: MacAddr,
    },
    /// Moves the interface of a device from the host's namespace to that of a pod, where it gets a name and stays down.
    /// If that is not possible, the interface is moved back.
    MoveToPod {
        /// The device.
        device: PciAddress,
        /// Namespace of the pod.
        namespace: Namespace,
        /// Name of the interface in the pod.
        name: String,
        /// Alternative names to remove before: names that the interface must not have in the pod.
        drop_alt_names: Vec<String>,
    },
    /// Configures the interface in the namespace of a pod and sets it up: MTU, MAC, and sysctls so that it announces its
    /// addresses when its link comes up.
    SetUpInPod {
        /// Namespace of the pod.
        namespace: Namespace,
        /// Name of the interface in the pod.
        name: String,
        /// MTU to set, if the interface has another one.
        mtu: Option<u32>,
        /// MAC to set, if the interface has another one: some drivers take an administrative MAC over later.
        mac: Option<MacAddr>,
    },
    /// Adds addresses and routes to an interface in the namespace of a pod, and waits until IPv6 addresses are usable.
    AddAddresses {
        /// Namespace of the pod.
        namespace: Namespace,
        /// Name of the interface in the pod.
        name: String,
        /// Addresses and routes.
        addresses: InterfaceAddresses,
    },
    /// Announces the addresses of an interface in the namespace of a pod, after waiting at most 200 ms for its link.
    /// Never fails: the kernel announces them when the link comes up later.
    Announce {
        /// Namespace of the pod.
        namespace: Namespace,
        /// Name of the interface in the pod.
        name: String,
        /// IP addresses to announce.
        ips: Vec<core::net::IpAddr>,
    },
    /// Moves the interface of a device from the namespace of a pod to the host's namespace, with the name, MAC and MTU
    /// that it had there. An interface that is in the host's namespace already only gets these: it is searched there
    /// first, by its device. A name that another interface has meanwhile is left to it. The name in the pod does not
    /// remain as an alternative name, unless it was one before.
    ReturnToHost {
        /// The device.
        device: PciAddress,
        /// Namespace of the pod; `None` if it does not exist any more.
        namespace: Option<Namespace>,
        /// Name that the interface has in the pod.
        pod_name: String,
        /// Name, MAC, MTU and alternative names of the interface in the host's namespace.
        original: OriginalInterface,
    },
    /// Sets node and port GUID of a VF through its InfiniBand PF. They take effect when the VF is bound next.
    SetVfGuid {
        /// The VF.
        vf: VfRef,
        /// GUID.
        guid: Guid,
    },
    /// Sets the link state of a VF through its PF.
    SetVfLinkState {
        /// The VF.
        vf: VfRef,
        /// State.
        state: LinkState,
    },
    /// Binds a device to its driver again and waits until its interface is named. A device without a driver, as an
    /// interruption leaves it, is bound to the one that the kernel chooses.
    Rebind {
        /// The device.
        device: PciAddress,
    },
    /// Moves the RDMA device of a device to the namespace of a pod. If it got another name when the device was bound to its
    /// driver again, it gets this one back before: containers were promised its files, and only the name is visible in the
    /// namespace.
    MoveRdmaToPod {
        /// The device.
        device: PciAddress,
        /// Name of the RDMA device.
        rdma: String,
        /// Namespace of the pod.
        namespace: Namespace,
    },
    /// Moves an RDMA device from the namespace of a pod to the host's. An InfiniBand interface goes with it.
    ReturnRdmaToHost {
        /// The device.
        device: PciAddress,
        /// Name of the RDMA device.
        rdma: String,
        /// Namespace of the pod.
        namespace: Namespace,
    },
    /// Writes the file by which the Go plugin knows that a pod holds a device.
    WriteGoAllocation {
        /// The device.
        device: PciAddress,
        /// Path of the namespace of the pod.
        path: String,
    },
    /// Removes the file by which the Go plugin knows that a pod holds a device, unless it names another namespace.
    RemoveGoAllocation {
        /// The device.
        device: PciAddress,
        /// Path of the namespace of the pod.
        path: String,
    },
    /// Changes the switch side of the attachment.
    Switch(SwitchStep),
}

impl From<SwitchStep> for CniStep {
    fn from(step: SwitchStep) -> Self {
        Self::Switch(step)
    }
}

/// Interface of a device as it was in the host's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OriginalInterface {
    /// Name.
    pub name: String,
    /// Alternative names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alt_names: Vec<String>,
    /// MAC to restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// MTU to restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// Addresses and routes of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceAddresses {
    /// Addresses with the length of their prefix.
    pub ips: Vec<IpPrefix>,
    /// Routes through the interface.
    pub routes: Vec<InterfaceRoute>,
}

/// IP address with the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpPrefix {
    /// Address.
    pub address: core::net::IpAddr,
    /// Length of the prefix.
    pub length: u8,
}

/// Route through an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceRoute {
    /// Destination.
    pub destination: IpPrefix,
    /// Gateway.
    pub gateway: Option<core::net::IpAddr>,
    /// MTU of the route.
    pub mtu: Option<u32>,
    /// Advertised maximum segment size.
    pub advmss: Option<u32>,
    /// Priority.
    pub priority: Option<u32>,
    /// Routing table.
    pub table: Option<u32>,
    /// Scope.
    pub scope: Option<u8>,
}
