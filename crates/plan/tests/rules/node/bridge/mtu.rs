//! MTU that Open vSwitch is requested to set on the uplink, and that of the PF.

use vfleet_plan::{HostUse, OvsFacts, Plan, Step, plan_ovs_at_boot};

use super::{
    OPTIONS, apply, bridge_steps, database, foreign_bridge_of_our_name, no_bridge, ovs_spec, plan, switch,
    with_ovs_bridge, write_records,
};
use crate::node::machine::{nothing, reasons, steps};

/// Another policy requests a higher MTU for its VFs.
#[test]
fn open_vswitch_never_lowers_the_mtu_that_the_pf_needs() {
    let spec = |mtu_request: &str| {
        let mut spec = ovs_spec("", mtu_request);
        spec.interfaces.as_mut().unwrap()[0].vf_groups.as_mut().unwrap()[0].mtu = Some(9000);
        spec
    };
    let requested = |plan: &Plan| {
        plan.steps.iter().find_map(|planned| match &planned.step {
            Step::SetOvsBridge { bridge, .. } => Some(bridge.uplink.mtu_request),
            _ => None,
        })
    };
    let facts = switch(None);
    assert_eq!(requested(&plan(&spec("mtuRequest: 1500"), &facts)), Some(Some(9000)));
    assert_eq!(requested(&plan(&spec(""), &facts)), Some(None), "no policy requests it of Open vSwitch");
    let mut by_others = with_ovs_bridge(&ovs_spec("", ""));
    database(&mut by_others).bridges[0].ports[1].interfaces[0].mtu_request = Some(1500);
    assert_eq!(requested(&plan(&spec(""), &by_others)), Some(Some(9000)));
    assert_eq!(requested(&plan(&ovs_spec("", ""), &by_others)), None);
    let mut used = by_others.clone();
    used.pfs[0].link.as_mut().unwrap().host_use = Some(HostUse::DefaultRoute);
    assert_eq!(
        requested(&plan(&spec("mtuRequest: 9000"), &used)).flatten(),
        Some(1500),
        "MTU of a PF in use"
    );
}

#[test]
fn a_pf_is_not_raised_above_the_mtu_that_open_vswitch_keeps_it_at() {
    let mut facts = switch(None);
    facts.bridges.ovs = OvsFacts::Database(foreign_bridge_of_our_name());
    database(&mut facts).bridges[0].ports[1].interfaces[0].mtu_request = Some(1500);
    let mut spec = no_bridge();
    spec.interfaces.as_mut().unwrap()[0].mtu = Some(9000);
    let held = plan(&spec, &facts);
    assert_eq!((steps(&held), reasons(&held)), (vec![], vec!["MtuHeldByBridge"]));
    database(&mut facts).bridges[0].ports[1].interfaces[0].mtu_request = None;
    assert_eq!(steps(&plan(&spec, &facts))[0], "set 0000:3b:00.0 mtu 9000");
}

/// `ovs-vswitchd` ignores a value that the PF does not accept, and the database refuses one that is not positive.
#[test]
fn an_mtu_request_that_the_pf_does_not_accept_is_a_problem_of_the_bridge() {
    let mut facts = switch(None);
    facts.pfs[0].link.as_mut().unwrap().max_mtu = Some(9600);
    for (request, max) in
        [("-1", "1 to 2147483647"), ("9000000000", "1 to 2147483647"), ("9601", "1 to 9600")]
    {
        let refused = plan(&ovs_spec("", &format!("mtuRequest: {request}")), &facts);
        assert_eq!((bridge_steps(&refused), reasons(&refused)), (vec![], vec!["InvalidSpec"]), "{request}");
        let text = refused.problems[0].to_string();
        assert!(text.contains(&format!("mtuRequest {request}")) && text.contains(max), "{text}");
    }
    let accepted = plan(&ovs_spec("", "mtuRequest: 9600"), &facts);
    assert_eq!((bridge_steps(&accepted).len(), reasons(&accepted)), (1, vec![]));
    let change =
        |plan: &Plan| plan.steps.iter().map(|planned| planned.step.clone()).find(Step::sets_up_bridge);
    let none = plan(&ovs_spec("", "mtuRequest: 0"), &facts);
    assert_eq!(change(&none), change(&plan(&ovs_spec("", ""), &facts)), "0 requests none");
}

/// Follows the requests one after the other, as `ovs-vswitchd` does, and resets the PF.
#[track_caller]
fn expect_restored_after(requests: &[u32]) {
    let mut facts = switch(None);
    for request in requests {
        let planned = plan(&ovs_spec("", &format!("mtuRequest: {request}")), &facts);
        apply(&mut facts, &planned);
        write_records(&mut facts, &planned);
        facts.pfs[0].link.as_mut().unwrap().mtu = *request;
    }
    let reset = steps(&plan(&nothing(), &facts));
    assert!(reset.contains(&"set 0000:3b:00.0 mtu 1500".to_owned()), "{requests:?}: {reset:?}");
}

#[test]
fn the_mtu_that_open_vswitch_raised_is_restored_when_the_pf_is_reset() {
    expect_restored_after(&[9000]);
    expect_restored_after(&[9000, 4000]);
    expect_restored_after(&[4000, 9000]);
}

#[test]
fn an_mtu_that_is_the_original_one_is_not_restored() {
    let mut facts = switch(None);
    facts.records[0].raised_mtu = Some(1500);
    let reset = steps(&plan(&nothing(), &facts));
    assert!(!reset.iter().any(|step| step.contains("mtu")), "{reset:?}");
}

#[test]
fn the_mtu_that_open_vswitch_raises_at_boot_is_recorded() {
    let facts = switch(None);
    let at_boot = plan_ovs_at_boot(&ovs_spec("", "mtuRequest: 9000"), &facts, &OPTIONS);
    let raised = at_boot.steps.iter().find_map(|planned| match &planned.step {
        Step::WriteRecord { record } => record.raised_mtu,
        _ => None,
    });
    assert_eq!(raised, Some(9000), "{:?}", steps(&at_boot));
}

/// The operator writes `mtu` of the policy as `mtuRequest`.
#[test]
fn an_mtu_of_the_policy_that_the_pf_does_not_accept_is_a_problem_of_the_pf() {
    let mut spec = ovs_spec("", "mtuRequest: 9800");
    spec.interfaces.as_mut().unwrap()[0].mtu = Some(9800);
    let mut facts = switch(None);
    facts.pfs[0].link.as_mut().unwrap().max_mtu = Some(9600);
    assert_eq!(reasons(&plan(&spec, &facts)), ["MtuNotSupported"]);
    let mut configured = with_ovs_bridge(&ovs_spec("", "mtuRequest: 9000"));
    configured.pfs[0].link.as_mut().unwrap().max_mtu = Some(9600);
    let kept = plan(&spec, &configured);
    assert_eq!((bridge_steps(&kept), reasons(&kept)), (vec![], vec!["MtuNotSupported"]));
}
