//! Settings of ports of Linux bridges.

use std::collections::BTreeMap;

use vfleet_plan::bridge_port;

use super::cases;
use crate::contract::check::bridges::{
    BRIDGE, DEFAULT_STATE, attach_step, compare_linux_bridge, configure_step, create_linux_bridge,
    create_step, detach_step, execute_twice, observe_port, port_step,
};
use crate::contract::check::{ensure, execute, expect_eq, expect_refusal, expect_some, read_pf_facts};
use crate::contract::coverage::Environment;
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    a_new_bridge_port_has_the_documented_defaults: VfsCreatedUp,
    changes_every_port_setting_and_sets_it_back: VfsCreatedUp,
    sets_every_state_of_a_port: VfsCreatedUp,
    sets_several_port_settings_at_once: VfsCreatedUp,
    an_attached_uplink_has_the_defaults_again: VfsCreatedUp,
    reports_port_settings_that_others_changed: VfsCreatedUp,
    refuses_unsupported_port_settings: VfsCreatedUp,
    refuses_the_state_of_a_port_that_is_down: NoVfs,
}

/// Returns the documented defaults for the card.
fn defaults(testbed: &dyn TestBed) -> Result<BTreeMap<String, String>, CaseError> {
    let speed = expect_some("the interface", read_pf_facts(testbed)?.link)?.speed;
    ensure(speed.is_some(), "the PF has no carrier")?;
    let default = |name: &str| {
        let value = expect_some("the default", bridge_port::default_value(name, speed))?;
        Ok((name.to_owned(), value))
    };
    bridge_port::NAMES.into_iter().map(default).collect()
}

fn a_new_bridge_port_has_the_documented_defaults(testbed: &dyn TestBed) -> CaseResult {
    if testbed.environment() == Environment::Sim {
        return Err(CaseError::Unsupported("the model uses the documented defaults".to_owned()));
    }
    create_linux_bridge(testbed)?;
    expect_eq("the settings", &observe_port(testbed)?.settings, &defaults(testbed)?)?;
    compare_linux_bridge(testbed).map(drop)
}

fn changes_every_port_setting_and_sets_it_back(testbed: &dyn TestBed) -> CaseResult {
    create_linux_bridge(testbed)?;
    let defaults = defaults(testbed)?;
    // MAB needs a locked port: see `sets_several_port_settings_at_once`.
    for (name, default) in defaults.iter().filter(|(name, _)| *name != "mab") {
        let other = match (name.as_str(), default.as_str()) {
            ("state", _) => "disabled",
            ("cost", _) => "65535",
            ("priority", _) => "63",
            ("mcast_router", _) => "2",
            (_, "on") => "off",
            _ => "on",
        };
        for value in [other, default.as_str()] {
            execute(testbed, &[port_step(testbed, &[(name, value)])])?;
            let mut expected = defaults.clone();
            expected.insert(name.clone(), value.to_owned());
            expect_eq(&format!("the settings with {name}"), &observe_port(testbed)?.settings, &expected)?;
        }
    }
    compare_linux_bridge(testbed).map(drop)
}

/// Without a spanning tree protocol the kernel lets a blocked port forward at once.
fn sets_every_state_of_a_port(testbed: &dyn TestBed) -> CaseResult {
    create_linux_bridge(testbed)?;
    for state in ["disabled", "listening", "learning", "forwarding"] {
        execute_twice(testbed, &port_step(testbed, &[("state", state)]))?;
        expect_eq("the state", &observe_port(testbed)?.settings["state"].as_str(), &state)?;
    }
    execute(testbed, &[port_step(testbed, &[("state", "2")])])?;
    expect_eq("the state with number 2", &observe_port(testbed)?.settings["state"].as_str(), &"learning")?;
    expect_refusal(
        testbed,
        &port_step(testbed, &[("state", "forwarding"), ("color", "red")]),
        "InvalidSpec",
    )?;
    expect_eq("the state", &observe_port(testbed)?.settings["state"].as_str(), &"learning")?;
    execute(testbed, &[port_step(testbed, &[("state", "forwarding")])])?;
    expect_refusal(testbed, &port_step(testbed, &[("state", "blocking")]), "NotVerified")?;
    expect_eq("the state", &observe_port(testbed)?.settings["state"].as_str(), &"forwarding")
}

fn sets_several_port_settings_at_once(testbed: &dyn TestBed) -> CaseResult {
    create_linux_bridge(testbed)?;
    let before = observe_port(testbed)?.settings;
    let desired = [("isolated", "on"), ("flood", "off"), ("locked", "on"), ("mab", "on"), ("priority", "07")];
    execute_twice(testbed, &port_step(testbed, &desired))?;
    let mut expected = before.clone();
    for (name, value) in desired {
        expected.insert(name.to_owned(), value.trim_start_matches('0').to_owned());
    }
    expect_eq("the settings", &observe_port(testbed)?.settings, &expected)?;
    compare_linux_bridge(testbed)?;
    let given_up: Vec<(&str, &str)> =
        desired.iter().filter_map(|(name, _)| Some((*name, before.get(*name)?.as_str()))).collect();
    execute_twice(testbed, &port_step(testbed, &given_up))?;
    expect_eq("the settings", &observe_port(testbed)?.settings, &before)
}

fn an_attached_uplink_has_the_defaults_again(testbed: &dyn TestBed) -> CaseResult {
    create_linux_bridge(testbed)?;
    execute(testbed, &[port_step(testbed, &[("learning", "off"), ("cost", "77")])])?;
    execute(testbed, &[detach_step(testbed), attach_step(testbed)])?;
    expect_eq("the settings", &observe_port(testbed)?.settings, &defaults(testbed)?)
}

fn reports_port_settings_that_others_changed(testbed: &dyn TestBed) -> CaseResult {
    create_linux_bridge(testbed)?;
    let step = port_step(testbed, &[("learning", "off")]);
    execute(testbed, std::slice::from_ref(&step))?;
    for (name, value) in [("learning", "on"), ("cost", "77")] {
        testbed.admin().set_port_setting(BRIDGE, testbed.pf(), name, value)?;
        let port = compare_linux_bridge(testbed)?.ports.remove(0);
        expect_eq(name, &port.settings[name].as_str(), &value)?;
    }
    execute_twice(testbed, &step)?;
    let port = observe_port(testbed)?;
    expect_eq("the repaired setting", &port.settings["learning"].as_str(), &"off")?;
    expect_eq("the other setting", &port.settings["cost"].as_str(), &"77")
}

fn refuses_unsupported_port_settings(testbed: &dyn TestBed) -> CaseResult {
    create_linux_bridge(testbed)?;
    let before = observe_port(testbed)?;
    for (name, value) in [("color", "red"), ("learning", "maybe"), ("cost", "0"), ("mcast_router", "3")] {
        let text = expect_refusal(testbed, &port_step(testbed, &[(name, value)]), "InvalidSpec")?;
        ensure(text.contains(name) && text.contains(value) || name == "color", text)?;
    }
    let refused = [vec![("mab", "on")], vec![("mab", "on"), ("locked", "on"), ("learning", "off")]];
    for settings in refused {
        let text = expect_refusal(testbed, &port_step(testbed, &settings), "NetlinkRefused")?;
        ensure(text.contains("Bridge port must be locked and have learning enabled"), text)?;
    }
    expect_eq("the port", &observe_port(testbed)?, &before)
}

/// The kernel keeps a port without a carrier disabled.
fn refuses_the_state_of_a_port_that_is_down(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[create_step(testbed), attach_step(testbed)])?;
    execute(testbed, &[configure_step(testbed, DEFAULT_STATE)])?;
    expect_eq("the state", &observe_port(testbed)?.settings["state"].as_str(), &"disabled")?;
    expect_refusal(testbed, &port_step(testbed, &[("state", "forwarding")]), "NetlinkRefused")?;
    execute_twice(testbed, &port_step(testbed, &[("state", "disabled"), ("flood", "off")]))?;
    let port = compare_linux_bridge(testbed)?.ports.remove(0);
    expect_eq("the setting of a port that is down", &port.settings["flood"].as_str(), &"off")
}
