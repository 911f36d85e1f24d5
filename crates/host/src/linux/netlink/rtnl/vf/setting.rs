//! One setting of a VF, as the kernel takes it.

use std::fmt;

use vfleet_api::{Guid, MacAddr};
use vfleet_plan::cni::facts::{LinkState, VfVlan, VlanProtocol};

use super::{
    ADDRESS_FIELD_LENGTH, IFLA_VF_IB_NODE_GUID, IFLA_VF_IB_PORT_GUID, IFLA_VF_LINK_STATE,
    IFLA_VF_LINK_STATE_AUTO, IFLA_VF_LINK_STATE_DISABLE, IFLA_VF_LINK_STATE_ENABLE, IFLA_VF_MAC,
    IFLA_VF_RATE, IFLA_VF_SPOOFCHK, IFLA_VF_TRUST, IFLA_VF_TX_RATE, IFLA_VF_VLAN, IFLA_VF_VLAN_INFO,
    IFLA_VF_VLAN_LIST,
};
use crate::linux::netlink::attribute::Attributes;

/// Setting of a VF that one attribute changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::linux) enum VfSetting {
    Vlan(VfVlan),
    /// VLAN for kernels without protocols of VLANs (before 4.9).
    PlainVlan(VfVlan),
    Mac(MacAddr),
    Rates {
        min: u32,
        max: u32,
    },
    /// Maximum rate for kernels without minimum rates (before 3.16).
    MaxRate(u32),
    SpoofCheck(bool),
    Trust(bool),
    LinkState(LinkState),
    NodeGuid(Guid),
    PortGuid(Guid),
}

impl VfSetting {
    /// Returns the same setting in the form that older kernels take, if there is one.
    pub(in crate::linux) fn for_older_kernels(self) -> Option<Self> {
        match self {
            Self::Vlan(vlan) if vlan.protocol == VlanProtocol::Ieee8021q => Some(Self::PlainVlan(vlan)),
            Self::Rates { min: 0, max } => Some(Self::MaxRate(max)),
            _ => None,
        }
    }

    /// Returns the attribute that sets it for the VF with this index.
    pub(super) fn encode(self, vf: u16) -> Attributes {
        self.add_to(Attributes::default(), vf)
    }

    pub(super) fn add_to(self, attributes: Attributes, vf: u16) -> Attributes {
        let value = |words: &[u32]| {
            let words = [&[u32::from(vf)], words].concat();
            words.into_iter().flat_map(u32::to_ne_bytes).collect::<Vec<u8>>()
        };
        match self {
            Self::Vlan(VfVlan { id, qos, protocol }) => {
                let mut info = value(&[id.into(), qos.into()]);
                info.extend(protocol.ether_type().to_be_bytes());
                // The size of a structure is a multiple of its alignment.
                info.extend([0; 2]);
                let list = Attributes::default().with(IFLA_VF_VLAN_INFO, &info);
                attributes.with_nested(IFLA_VF_VLAN_LIST, &list)
            }
            Self::PlainVlan(VfVlan { id, qos, .. }) => {
                attributes.with(IFLA_VF_VLAN, &value(&[id.into(), qos.into()]))
            }
            Self::Mac(mac) => {
                let mut field = value(&[]);
                field.extend(mac.0);
                field.resize(4 + ADDRESS_FIELD_LENGTH, 0);
                attributes.with(IFLA_VF_MAC, &field)
            }
            Self::Rates { min, max } => attributes.with(IFLA_VF_RATE, &value(&[min, max])),
            Self::MaxRate(max) => attributes.with(IFLA_VF_TX_RATE, &value(&[max])),
            Self::SpoofCheck(on) => attributes.with(IFLA_VF_SPOOFCHK, &value(&[on.into()])),
            Self::Trust(on) => attributes.with(IFLA_VF_TRUST, &value(&[on.into()])),
            Self::LinkState(state) => {
                let number = match state {
                    LinkState::Auto => IFLA_VF_LINK_STATE_AUTO,
                    LinkState::Enable => IFLA_VF_LINK_STATE_ENABLE,
                    LinkState::Disable => IFLA_VF_LINK_STATE_DISABLE,
                };
                attributes.with(IFLA_VF_LINK_STATE, &value(&[number]))
            }
            Self::NodeGuid(guid) => attributes.with(IFLA_VF_IB_NODE_GUID, &encode_guid(vf, guid)),
            Self::PortGuid(guid) => attributes.with(IFLA_VF_IB_PORT_GUID, &encode_guid(vf, guid)),
        }
    }
}

/// Returns the GUID as a number in native byte order, aligned to eight bytes.
fn encode_guid(vf: u16, guid: Guid) -> Vec<u8> {
    [&u32::from(vf).to_ne_bytes()[..], &[0; 4], &u64::from_be_bytes(guid.0).to_ne_bytes()].concat()
}

impl fmt::Display for VfSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: &bool| if *on { "on" } else { "off" };
        match self {
            Self::Vlan(vlan) => write!(f, "VLAN {vlan}"),
            Self::PlainVlan(VfVlan { id, qos, .. }) => write!(f, "VLAN {id} qos {qos}"),
            Self::Mac(mac) => write!(f, "MAC address {mac}"),
            Self::Rates { min, max } => write!(f, "rates from {min} to {max} Mbit/s"),
            Self::MaxRate(max) => write!(f, "maximum rate {max} Mbit/s"),
            Self::SpoofCheck(on) => write!(f, "spoof checking {}", switch(on)),
            Self::Trust(on) => write!(f, "trust {}", switch(on)),
            Self::LinkState(state) => write!(f, "link state {state}"),
            Self::NodeGuid(guid) => write!(f, "node GUID {guid}"),
            Self::PortGuid(guid) => write!(f, "port GUID {guid}"),
        }
    }
}
