//! Snapshots: state of every VF.

use vfleet_api::{SriovNetworkNodeStateSpec, VfRef};
use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_plan::files::BOOT_CONFIG;
use vfleet_plan::{
    BootRequest, BootResult, Disruption, HostFacts, HostUse, NodeOptions, NodeSnapshot, Plan, PlannedStep,
    Step, UnreadableCard, VfConfiguration, VfHolder, plan_boot, plan_node,
};

use VfConfiguration::{Pending, Unknown, Unmanaged, Verified};

/// Returns a spec with four VFs, of which the first three are in a group.
fn spec() -> SriovNetworkNodeStateSpec {
    serde_saphyr::from_str(
        "interfaces: [{pciAddress: '0000:01:00.0', numVfs: 4, name: enp1s0,
           vfGroups: [{deviceType: netdevice, vfRange: 0-2, policyName: p}]}]",
    )
    .unwrap()
}

fn vf(index: u16) -> VfRef {
    VfRef { pf: Machine::lab().pfs[0].address, index }
}

fn configured() -> SimHost {
    let host = SimHost::new(&Machine::lab(), "snapshot").unwrap();
    for planned in plan_node(&spec(), &host.facts().unwrap()).steps {
        host.execute(&planned.step).unwrap();
    }
    host
}

fn next(last: &NodeSnapshot, facts: &HostFacts) -> NodeSnapshot {
    last.next(facts, &spec(), &plan_node(&spec(), facts))
}

fn configurations(snapshot: &NodeSnapshot) -> Vec<VfConfiguration> {
    snapshot.vfs.values().map(|vf| vf.configuration).collect()
}

fn holders(snapshot: &NodeSnapshot) -> Vec<VfHolder> {
    snapshot.vfs.values().map(|vf| vf.holder).collect()
}

#[test]
fn a_vf_is_verified_when_no_step_is_left() {
    let host = configured();
    let facts = host.facts().unwrap();
    let snapshot = next(&NodeSnapshot::default(), &facts);
    assert_eq!(configurations(&snapshot), [Verified, Verified, Verified, Unmanaged]);
    assert_eq!(holders(&snapshot), [VfHolder::None; 4]);
    assert_eq!(snapshot.vfs[&vf(1)].address, facts.pfs[0].vfs[1].address);

    host.modify_kernel(|kernel| kernel.unbind(vf(1))).unwrap();
    let snapshot = next(&snapshot, &host.facts().unwrap());
    assert_eq!(configurations(&snapshot), [Verified, Pending, Verified, Unmanaged], "only the one");
}

#[test]
fn vfs_of_a_pf_with_a_problem_are_not_verified() {
    let mut facts = configured().facts().unwrap();
    facts.pfs[0].link = None;
    let snapshot = next(&NodeSnapshot::default(), &facts);
    assert_eq!(configurations(&snapshot), [Pending, Pending, Pending, Unmanaged]);
}

/// A device plugin announces the VFs of such a PF only while its bridge is verified.
#[test]
fn vfs_are_pending_while_a_step_of_the_bridge_is_left() {
    let facts = configured().facts().unwrap();
    let pf = Machine::lab().pfs[0].address;
    let step = Step::AttachUplink { pf, bridge: "br-x".to_owned() };
    let left = PlannedStep { step, disruption: Disruption::Pf, why: "a test".to_owned() };
    let plan = Plan { steps: vec![left], problems: Vec::new() };
    let snapshot = NodeSnapshot::default().next(&facts, &spec(), &plan);
    assert_eq!(configurations(&snapshot), [Pending, Pending, Pending, Unmanaged]);
}

#[test]
fn holders_are_distinguished() {
    let host = configured();
    host.modify_kernel(|kernel| kernel.set_in_other_namespace(vf(0), true)).unwrap();
    let mut facts = host.facts().unwrap();
    facts.pfs[0].vfs[1].link.as_mut().unwrap().host_use = Some(HostUse::DefaultRoute);
    facts.pfs[0].vfs[2].link = None;
    facts.pfs[0].vfs[2].driver = Some("vfio-pci".to_owned());
    facts.pfs[0].vfs[3].link = None;
    facts.pfs[0].vfs[3].driver = None;
    let snapshot = next(&NodeSnapshot::default(), &facts);
    assert_eq!(
        holders(&snapshot),
        [VfHolder::Pod, VfHolder::Node(HostUse::DefaultRoute), VfHolder::Unknown, VfHolder::None]
    );
}

/// An unreadable VF is neither removed nor verified.
#[test]
fn vfs_of_a_card_that_cannot_be_read_stay_listed_in_an_unknown_state() {
    let host = configured();
    let known = next(&NodeSnapshot::default(), &host.facts().unwrap());
    let mut facts = host.facts().unwrap();
    let pf = facts.pfs.remove(0).address;
    facts.unreadable.push(UnreadableCard { pf, error: "it hangs".to_owned(), reason: "DeadlineExceeded" });
    let unread = next(&known, &facts);
    assert_eq!(configurations(&unread), [Unknown, Unknown, Unknown, Unmanaged]);
    assert_eq!(holders(&unread), [VfHolder::Unknown; 4]);
    assert_eq!(next(&unread, &facts), unread, "as long as the card cannot be read");
    assert_eq!(
        next(&unread, &host.facts().unwrap()),
        known,
        "the state is known again when the card can be read"
    );
}

#[test]
fn a_machine_that_cannot_be_read_keeps_its_vfs() {
    let known = next(&NodeSnapshot::default(), &configured().facts().unwrap());
    let unreadable = known.unreadable();
    assert_eq!(configurations(&unreadable), [Unknown, Unknown, Unknown, Unmanaged]);
    assert_eq!(unreadable.facts, known.facts);
}

#[test]
fn a_removed_vf_is_not_listed() {
    let host = configured();
    let known = next(&NodeSnapshot::default(), &host.facts().unwrap());
    host.modify_kernel(|kernel| kernel.pf_mut(vf(0).pf).unwrap().vfs.clear());
    assert!(next(&known, &host.facts().unwrap()).vfs.is_empty());
    let mut facts = host.facts().unwrap();
    facts.pfs.clear();
    assert!(next(&known, &facts).vfs.is_empty(), "a card that was pulled is known to be gone");
}

#[test]
fn vfs_are_unknown_while_the_node_state_is_not_planned() {
    let facts = configured().facts().unwrap();
    let not_planned = SriovNetworkNodeStateSpec::default();
    let snapshot = NodeSnapshot::default().next(&facts, &not_planned, &Plan::default());
    assert_eq!(configurations(&snapshot), [Unknown; 4]);
}

/// A policy configures the VFs, for example with a deviceType of a later version.
#[test]
fn vfs_of_a_pf_with_an_invalid_desired_state_are_not_unmanaged() {
    let facts = configured().facts().unwrap();
    let mut unreadable = spec();
    unreadable.interfaces.as_mut().unwrap()[0].vf_groups.as_mut().unwrap()[0].device_type =
        Some("of-a-later-version".to_owned());
    let snapshot = NodeSnapshot::default().next(&facts, &unreadable, &plan_node(&unreadable, &facts));
    assert_eq!(configurations(&snapshot)[..3], [Pending; 3]);
}

#[test]
fn an_interface_with_an_invalid_address_may_concern_any_vf() {
    let facts = configured().facts().unwrap();
    let unreadable: SriovNetworkNodeStateSpec = serde_saphyr::from_str(
        "interfaces: [{pciAddress: nonsense, numVfs: 4, vfGroups: [{vfRange: 0-2, policyName: p}]}]",
    )
    .unwrap();
    let snapshot = NodeSnapshot::default().next(&facts, &unreadable, &plan_node(&unreadable, &facts));
    assert_eq!(configurations(&snapshot), [Unknown; 4]);
}

/// The plan does not contain such changes: they need the next boot.
#[test]
fn vfs_that_wait_for_a_reboot_in_systemd_mode_are_not_verified() {
    let host = configured();
    host.modify_kernel(|kernel| {
        kernel.unbind(vf(1)).unwrap();
        kernel.pf_mut(vf(1).pf).unwrap().link.as_mut().unwrap().up = false;
    });
    for result in [BootResult::succeeded(), BootResult::failed("no reason")] {
        let mut facts = host.facts().unwrap();
        facts.files.insert(BOOT_CONFIG.to_owned(), "config".to_owned());
        let request = BootRequest {
            spec: &spec(),
            accepted: &spec(),
            config: "config",
            result: Some(&result),
            options: NodeOptions::default(),
        };
        let plan = plan_boot(&request, &facts);
        assert!(!plan.problems.is_empty(), "{plan:#?}");
        let snapshot = NodeSnapshot::default().next(&facts, &spec(), &plan);
        assert_eq!(configurations(&snapshot), [Unknown, Unknown, Unknown, Unmanaged], "{plan:#?}");
    }
}
