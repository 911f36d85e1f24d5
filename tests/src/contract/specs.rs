//! Node states to plan for.

use vfleet_api::node_state::{Interface, VfGroup};
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec, VfRange};

/// Nothing but a number of VFs is wanted of a PF.
pub fn interface(pf: PciAddress, num_vfs: i64) -> Interface {
    Interface {
        pci_address: pf.into(),
        num_vfs: Some(num_vfs),
        mtu: None,
        name: None,
        link_type: None,
        e_switch_mode: None,
        vf_groups: None,
        externally_managed: None,
        override_host_protection: None,
    }
}

/// A group of VFs, from the first to the last.
pub fn group(device_type: &str, (first, last): (u16, u16), mtu: Option<i64>) -> VfGroup {
    VfGroup {
        policy_name: Some(format!("{device_type}-{first}-{last}")),
        resource_name: Some("vfs".to_owned()),
        device_type: Some(device_type.to_owned()),
        vf_range: VfRange::new(first, last).map(Into::into),
        mtu,
        ..VfGroup::default()
    }
}

/// VFs, all of them in groups.
pub fn with_groups(pf: PciAddress, num_vfs: i64, mtu: Option<i64>, groups: Vec<VfGroup>) -> Interface {
    Interface { mtu, vf_groups: Some(groups), ..interface(pf, num_vfs) }
}

/// A node state that wants exactly these PFs.
pub fn spec(interfaces: Vec<Interface>) -> SriovNetworkNodeStateSpec {
    SriovNetworkNodeStateSpec { interfaces: Some(interfaces), ..SriovNetworkNodeStateSpec::default() }
}
