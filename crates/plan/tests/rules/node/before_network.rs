//! Steps before the network starts, and their continuation.

use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_plan::{NodeOptions, Plan, Step, plan_before_network, plan_node};

use super::machine::{machine, pf, spec};

fn desired() -> vfleet_api::SriovNetworkNodeStateSpec {
    serde_saphyr::from_str(
        "interfaces: [{pciAddress: '0000:01:00.0', numVfs: 3, mtu: 2000, name: enp1s0, vfGroups: [
           {deviceType: netdevice, vfRange: 0-1, policyName: p, mtu: 2000},
           {deviceType: vfio-pci, vfRange: 2-2, policyName: q}]}]",
    )
    .unwrap()
}

fn execute(host: &SimHost, plan: &Plan) {
    for planned in &plan.steps {
        host.execute(&planned.step).unwrap();
    }
}

fn is_late(step: &Step) -> bool {
    use Step::{BindVf, MakeVdpa, RemoveVdpa, SetVfMtu};
    matches!(step, BindVf { .. } | SetVfMtu { .. } | MakeVdpa { .. } | RemoveVdpa { .. })
}

#[test]
fn vfs_are_created_before_the_network_and_bound_after_it() {
    let host = SimHost::new(&Machine::lab(), "boot").unwrap();
    let early = plan_before_network(&desired(), &host.facts().unwrap(), &NodeOptions::default());
    assert!(!early.steps.iter().any(|planned| is_late(&planned.step)), "{early:#?}");
    execute(&host, &early);
    let facts = host.facts().unwrap();
    assert_eq!((facts.pfs[0].vfs.len(), facts.records[0].creating_vfs), (3, true));
    assert!(facts.pfs[0].vfs.iter().all(|vf| vf.driver.is_none()));
    assert_eq!(plan_before_network(&desired(), &facts, &NodeOptions::default()).steps, [], "nothing is left");

    let late = plan_node(&desired(), &facts);
    assert!(!late.steps.iter().any(|planned| matches!(planned.step, Step::SetNumVfs { .. })), "{late:#?}");
    execute(&host, &late);
    let in_two = host.facts().unwrap();
    assert!(plan_node(&desired(), &in_two).is_done());

    let at_once = SimHost::new(&Machine::lab(), "boot").unwrap();
    execute(&at_once, &plan_node(&desired(), &at_once.facts().unwrap()));
    assert_eq!(at_once.facts().unwrap(), in_two, "the result is the same");
}

#[test]
fn switchdev_mode_is_reached_before_the_network() {
    let desired = spec("numVfs: 1, eSwitchMode: switchdev, vfGroups: [{vfRange: 0-0, vdpaType: vhost}]");
    let plan = plan_before_network(&desired, &machine(pf(0)), &NodeOptions::default());
    assert_eq!(plan.steps.last().unwrap().step.to_string(), "set 0000:3b:00.0 eswitch mode switchdev");
}

#[test]
fn an_externally_managed_pf_needs_no_step_before_the_network() {
    let desired = spec("numVfs: 1, externallyManaged: true, vfGroups: [{vfRange: 0-0}]");
    let plan = plan_before_network(&desired, &machine(pf(0)), &NodeOptions::default());
    assert!(plan.is_done(), "{plan:#?}");
}
