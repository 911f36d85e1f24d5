//! Steps, checks and observations of software bridges.

use std::collections::BTreeMap;

use vfleet_api::bridge::BridgeVlanProtocol;
use vfleet_api::keys::OVS_UPLINK;
use vfleet_plan::{
    HostFacts, LinuxBridgeFacts, LinuxBridgeState, LinuxPortFacts, MapChange, OvsBridgeChange,
    OvsBridgeFacts, OvsDatabase, OvsFacts, OvsUplinkChange, Step,
};

use super::{execute, expect_eq, expect_some};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

/// Name of the bridge of the card.
pub const BRIDGE: &str = "br-contract";
/// Name of a bridge of another program.
pub const FOREIGN: &str = "br-foreign";

/// Settings that a new Linux bridge has.
pub const DEFAULT_STATE: LinuxBridgeState =
    LinuxBridgeState { vlan_filtering: false, vlan_protocol: BridgeVlanProtocol::Ieee8021Q, mtu: 1500 };

/// Returns the step that creates the Linux bridge of the card.
pub fn create_step(testbed: &dyn TestBed) -> Step {
    let alias = LinuxBridgeFacts::alias_of(testbed.pf());
    Step::CreateLinuxBridge { pf: testbed.pf(), name: BRIDGE.to_owned(), alias }
}

/// Returns the step that configures the Linux bridge of the card.
pub fn configure_step(testbed: &dyn TestBed, settings: LinuxBridgeState) -> Step {
    Step::SetLinuxBridge { pf: testbed.pf(), name: BRIDGE.to_owned(), settings }
}

/// Returns the step that attaches the card to its Linux bridge.
pub fn attach_step(testbed: &dyn TestBed) -> Step {
    Step::AttachUplink { pf: testbed.pf(), bridge: BRIDGE.to_owned() }
}

/// Returns the step that detaches the card from its Linux bridge.
pub fn detach_step(testbed: &dyn TestBed) -> Step {
    Step::DetachUplink { pf: testbed.pf(), bridge: BRIDGE.to_owned() }
}

/// Returns the step that changes settings of the card as a port.
pub fn port_step(testbed: &dyn TestBed, settings: &[(&str, &str)]) -> Step {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Step::SetBridgePort { pf: testbed.pf(), bridge: BRIDGE.to_owned(), settings }
}

/// Returns the step that removes the Linux bridge of the card.
pub fn remove_step(testbed: &dyn TestBed) -> Step {
    let alias = LinuxBridgeFacts::alias_of(testbed.pf());
    Step::RemoveLinuxBridge { pf: testbed.pf(), name: BRIDGE.to_owned(), alias }
}

/// Creates the Linux bridge of the card, sets it up and attaches the card.
pub fn create_linux_bridge(testbed: &dyn TestBed) -> CaseResult {
    let steps = [create_step(testbed), configure_step(testbed, DEFAULT_STATE), attach_step(testbed)];
    execute(testbed, &steps)
}

/// Executes a step twice. The second time it changes no bridge.
pub fn execute_twice(testbed: &dyn TestBed, step: &Step) -> CaseResult {
    execute(testbed, std::slice::from_ref(step))?;
    let before = testbed.observer().linux_bridges()?;
    execute(testbed, std::slice::from_ref(step))?;
    expect_eq("the bridges after another execution", &testbed.observer().linux_bridges()?, &before)
}

/// Compares the facts of the host with the observed Linux bridges; returns the observed ones.
pub fn compare_linux(testbed: &dyn TestBed) -> Result<Vec<LinuxBridgeFacts>, CaseError> {
    let (observed, facts) = (testbed.observer().linux_bridges()?, testbed.host().facts()?);
    expect_eq("the Linux bridges in the facts", &facts.bridges.linux, &observed)?;
    compare_master(testbed, &facts)?;
    Ok(observed)
}

/// Compares the facts of the host with the observed Linux bridges; returns the one of the card.
pub fn compare_linux_bridge(testbed: &dyn TestBed) -> Result<LinuxBridgeFacts, CaseError> {
    let bridge = compare_linux(testbed)?.into_iter().find(|bridge| bridge.name == BRIDGE);
    expect_some("the bridge", bridge)
}

/// Returns the observed card as the only port of its Linux bridge.
pub fn observe_port(testbed: &dyn TestBed) -> Result<LinuxPortFacts, CaseError> {
    let mut bridge = expect_some("the bridge", testbed.observer().linux_bridge(BRIDGE)?)?;
    expect_eq("the number of ports", &bridge.ports.len(), &1)?;
    Ok(bridge.ports.remove(0))
}

fn compare_master(testbed: &dyn TestBed, facts: &HostFacts) -> CaseResult {
    let link = facts.pf(testbed.pf()).and_then(|pf| pf.link.as_ref());
    let link = expect_some("the interface in the facts", link)?;
    expect_eq("the master in the facts", &link.master, &testbed.observer().master(testbed.pf())?)
}

/// Checks that the card is a port or member of the interface with this name, or of no interface if it is `None`.
pub fn expect_master(testbed: &dyn TestBed, expected: Option<&str>) -> CaseResult {
    let found = testbed.observer().master(testbed.pf())?.map(|master| master.name);
    expect_eq("the master of the PF", &found.as_deref(), &expected)
}

/// Returns the name of the interface of the card.
pub fn interface_name(testbed: &dyn TestBed) -> Result<String, CaseError> {
    Ok(expect_some("the interface", testbed.observer().pf(testbed.pf())?.link)?.name)
}

/// Compares the facts of the host with the observed database of Open vSwitch; returns the observed one.
pub fn compare_ovs(testbed: &dyn TestBed) -> Result<OvsDatabase, CaseError> {
    // The facts wait until ovs-vswitchd has applied the latest change.
    let facts = testbed.host().facts()?;
    let observed = testbed.observer().ovs()?;
    expect_eq("Open vSwitch in the facts", &facts.bridges.ovs, &OvsFacts::Database(observed.clone()))?;
    compare_master(testbed, &facts)?;
    Ok(observed)
}

/// Compares the facts of the host with the observed database; returns the bridge of the card.
pub fn compare_ovs_bridge(testbed: &dyn TestBed) -> Result<OvsBridgeFacts, CaseError> {
    expect_some("the bridge", compare_ovs(testbed)?.bridge(BRIDGE).cloned())
}

/// Returns a change that creates the Open vSwitch bridge of the card, with no more than the marks of vfleet.
pub fn ovs_change(testbed: &dyn TestBed) -> Result<OvsBridgeChange, CaseError> {
    let pf = testbed.pf().to_string();
    let mark = || set_entries(&[(OVS_UPLINK, &pf)]);
    let uplink = OvsUplinkChange {
        name: interface_name(testbed)?,
        port_external_ids: mark(),
        ..OvsUplinkChange::default()
    };
    Ok(OvsBridgeChange {
        name: BRIDGE.to_owned(),
        external_ids: mark(),
        uplink,
        ..OvsBridgeChange::default()
    })
}

/// Returns a change that sets entries of a map.
pub fn set_entries(entries: &[(&str, &str)]) -> MapChange {
    MapChange { set: to_map(entries), ..MapChange::default() }
}

/// Returns a map with these entries.
pub fn to_map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns the step that creates or changes the Open vSwitch bridge of the card.
pub fn ovs_step(testbed: &dyn TestBed, bridge: &OvsBridgeChange, observed: Option<&OvsBridgeFacts>) -> Step {
    Step::SetOvsBridge { pf: testbed.pf(), bridge: bridge.clone(), observed: observed.cloned() }
}

/// Starts Open vSwitch and creates the bridge of the card; returns the change that created it and the observed bridge.
pub fn create_ovs_bridge(testbed: &dyn TestBed) -> Result<(OvsBridgeChange, OvsBridgeFacts), CaseError> {
    testbed.admin().start_ovs()?;
    let change = ovs_change(testbed)?;
    execute(testbed, &[ovs_step(testbed, &change, None)])?;
    Ok((change, compare_ovs_bridge(testbed)?))
}
