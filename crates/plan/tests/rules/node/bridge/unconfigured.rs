//! Bridges of PFs that cannot be configured now.

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_plan::HostFacts;

use super::{
    database, linux_spec, no_bridge, ovs_spec, plan, switch, with_linux_bridge, with_ovs_bridge,
    write_records,
};
use crate::node::machine::{reasons, steps};

/// A check of the PF fails: its VFs need modules that are missing.
#[test]
fn an_existing_bridge_is_repaired_and_removed_although_the_pf_cannot_be_configured() {
    let without_modules = |mut facts: HostFacts| {
        facts.kernel.modules.clear();
        facts
    };
    let with_vfio = |mut spec: SriovNetworkNodeStateSpec| {
        let groups = spec.interfaces.as_mut().unwrap()[0].vf_groups.as_mut().unwrap();
        groups[0].device_type = Some("vfio-pci".to_owned());
        spec
    };
    let detached = |mut facts: HostFacts| {
        database(&mut facts).bridges[0].ports.retain(|port| port.name != "ens1f0");
        facts
    };
    let ovs = without_modules(detached(with_ovs_bridge(&ovs_spec("", ""))));
    let linux = without_modules(with_linux_bridge(&[]));
    let none = without_modules(switch(None));
    for (facts, spec, expected) in [
        (&ovs, ovs_spec("", ""), "configure Open vSwitch bridge br-0000_3b_00.0 with uplink ens1f0"),
        (&linux, linux_spec("", ""), "attach 0000:3b:00.0 to Linux bridge br-0000_3b_00.0"),
        (&ovs, no_bridge(), "remove Open vSwitch bridge br-0000_3b_00.0"),
        (&ovs, linux_spec("", ""), "remove Open vSwitch bridge br-0000_3b_00.0"),
        (&linux, no_bridge(), "remove Linux bridge br-0000_3b_00.0"),
        (&none, ovs_spec("", ""), ""),
        (&none, linux_spec("", ""), ""),
    ] {
        let plan = plan(&with_vfio(spec), facts);
        assert_eq!(steps(&plan), Vec::from_iter(Some(expected).filter(|text| !text.is_empty())));
        assert!(!plan.problems.is_empty() && !reasons(&plan).contains(&"BridgeNotOurs"));
        let mut after = facts.clone();
        write_records(&mut after, &plan);
        let stays = expected.starts_with("configure") || expected.starts_with("attach");
        assert_eq!(after.records[0].bridge.is_some(), stays, "{expected}");
        assert_eq!(after.records[0].interface, facts.records[0].interface, "the PF is not configured");
    }
}
