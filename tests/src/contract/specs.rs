//! Specs of node states.

use vfleet_api::node_state::{Interface, VfGroup};
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec, VfRange};

/// Returns a desired PF with a number of VFs and no other setting.
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

/// Returns a VF group with the VFs from first to last.
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

/// Returns a desired PF with VF groups.
pub fn with_groups(pf: PciAddress, num_vfs: i64, mtu: Option<i64>, groups: Vec<VfGroup>) -> Interface {
    Interface { mtu, vf_groups: Some(groups), ..interface(pf, num_vfs) }
}

/// Returns the spec of a node state with these desired PFs.
pub fn spec(interfaces: Vec<Interface>) -> SriovNetworkNodeStateSpec {
    SriovNetworkNodeStateSpec { interfaces: Some(interfaces), ..SriovNetworkNodeStateSpec::default() }
}
