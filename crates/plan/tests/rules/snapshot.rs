//! The state of every VF that is published with the facts of the machine.

use vfleet_api::{SriovNetworkNodeStateSpec, VfRef};
use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_plan::files::BOOT_CONFIG;
use vfleet_plan::{
    BootResult, BootWish, HostFacts, HostUse, NodeOptions, NodeSnapshot, Plan, Unread, VfConfiguration,
    VfHolder, plan_boot, plan_node,
};

use VfConfiguration::{Pending, Unknown, Unmanaged, Verified};

/// Four VFs, of which a policy configures the first three.
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
fn a_vf_is_verified_once_nothing_is_left_to_do_for_it() {
    let host = configured();
    let facts = host.facts().unwrap();
    let snapshot = next(&NodeSnapshot::default(), &facts);
    assert_eq!(configurations(&snapshot), [Verified, Verified, Verified, Unmanaged]);
    assert_eq!(holders(&snapshot), [VfHolder::None; 4]);
    assert_eq!(snapshot.vfs[&vf(1)].address, facts.pfs[0].vfs[1].address);

    host.behind_its_back(|kernel| kernel.unbind(vf(1))).unwrap();
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

#[test]
fn holders_are_told_apart() {
    let host = configured();
    host.behind_its_back(|kernel| kernel.hold_elsewhere(vf(0), true)).unwrap();
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

/// What cannot be read is neither gone nor verified.
#[test]
fn vfs_of_a_card_that_cannot_be_read_stay_listed_in_an_unknown_state() {
    let host = configured();
    let known = next(&NodeSnapshot::default(), &host.facts().unwrap());
    let mut facts = host.facts().unwrap();
    let pf = facts.pfs.remove(0).address;
    facts.unread.push(Unread { pf, error: "it hangs".to_owned(), reason: "DeadlineExceeded" });
    let unread = next(&known, &facts);
    assert_eq!(configurations(&unread), [Unknown, Unknown, Unknown, Unmanaged]);
    assert_eq!(holders(&unread), [VfHolder::Unknown; 4]);
    assert_eq!(next(&unread, &facts), unread, "for as long as it lasts");
    assert_eq!(next(&unread, &host.facts().unwrap()), known, "and it is as before when it can be read again");
}

#[test]
fn a_machine_that_cannot_be_read_keeps_its_vfs() {
    let known = next(&NodeSnapshot::default(), &configured().facts().unwrap());
    let unreadable = known.unreadable();
    assert_eq!(configurations(&unreadable), [Unknown, Unknown, Unknown, Unmanaged]);
    assert_eq!(unreadable.facts, known.facts);
}

#[test]
fn a_vf_that_is_gone_is_not_listed() {
    let host = configured();
    let known = next(&NodeSnapshot::default(), &host.facts().unwrap());
    host.behind_its_back(|kernel| kernel.pf_mut(vf(0).pf).unwrap().vfs.clear());
    assert!(next(&known, &host.facts().unwrap()).vfs.is_empty());
    let mut facts = host.facts().unwrap();
    facts.pfs.clear();
    assert!(next(&known, &facts).vfs.is_empty(), "a card that was pulled is known to be gone");
}

#[test]
fn a_node_state_that_was_not_worked_out_says_nothing_about_vfs() {
    let facts = configured().facts().unwrap();
    let not_planned = SriovNetworkNodeStateSpec::default();
    let snapshot = NodeSnapshot::default().next(&facts, &not_planned, &Plan::default());
    assert_eq!(configurations(&snapshot), [Unknown; 4]);
}

/// A deviceType of a later version, say: a policy does configure the VFs.
#[test]
fn vfs_of_a_pf_whose_desired_state_cannot_be_read_are_not_unmanaged() {
    let facts = configured().facts().unwrap();
    let mut unreadable = spec();
    unreadable.interfaces.as_mut().unwrap()[0].vf_groups.as_mut().unwrap()[0].device_type =
        Some("of-a-later-version".to_owned());
    let snapshot = NodeSnapshot::default().next(&facts, &unreadable, &plan_node(&unreadable, &facts));
    assert_eq!(configurations(&snapshot)[..3], [Pending; 3]);
}

#[test]
fn an_interface_without_a_readable_address_may_be_about_any_vf() {
    let facts = configured().facts().unwrap();
    let unreadable: SriovNetworkNodeStateSpec = serde_saphyr::from_str(
        "interfaces: [{pciAddress: nonsense, numVfs: 4, vfGroups: [{vfRange: 0-2, policyName: p}]}]",
    )
    .unwrap();
    let snapshot = NodeSnapshot::default().next(&facts, &unreadable, &plan_node(&unreadable, &facts));
    assert_eq!(configurations(&snapshot), [Unknown; 4]);
}

/// The plan leaves such changes out: only the next boot brings them about.
#[test]
fn what_only_a_restart_mends_in_systemd_mode_is_not_verified() {
    let host = configured();
    host.behind_its_back(|kernel| {
        kernel.unbind(vf(1)).unwrap();
        kernel.pf_mut(vf(1).pf).unwrap().link.as_mut().unwrap().up = false;
    });
    for result in [BootResult::succeeded(), BootResult::failed("no reason")] {
        let mut facts = host.facts().unwrap();
        facts.files.insert(BOOT_CONFIG.to_owned(), "config".to_owned());
        let wish = BootWish {
            spec: &spec(),
            accepted: &spec(),
            config: "config",
            result: Some(&result),
            options: NodeOptions::default(),
        };
        let plan = plan_boot(&wish, &facts);
        assert!(!plan.problems.is_empty(), "{plan:#?}");
        let snapshot = NodeSnapshot::default().next(&facts, &spec(), &plan);
        assert_eq!(configurations(&snapshot), [Unknown, Unknown, Unknown, Unmanaged], "{plan:#?}");
    }
}
