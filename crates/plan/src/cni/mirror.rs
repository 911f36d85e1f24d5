//! Decisions of the plugins `ovs-mirror-producer` and `ovs-mirror-consumer`.

use super::attachment::{AddContext, AddPlan, expect, open_pod};
use super::config::MirrorConfig;
use super::facts::{AttachmentFacts, OvsSwitchBridge, OvsSwitchMirror, SwitchFacts, SwitchQuery};
use super::journal::{DeviceChanges, MirrorChanges, Plugin};
use super::ovs::{find_port, require_running};
use super::protocol::{CniError, ErrorCode};
use super::step::{CniStep, MirrorRole, SwitchStep};
use crate::prelude::*;

impl MirrorConfig {
    /// Returns the facts that an ADD needs.
    pub fn switch_query(&self) -> SwitchQuery {
        SwitchQuery { ovs: Some(self.socket.clone()), ..SwitchQuery::default() }
    }
}

impl MirrorChanges {
    /// Returns the facts that a CHECK or a release needs.
    pub fn switch_query(&self) -> SwitchQuery {
        SwitchQuery { ovs: Some(self.socket.clone()), ..SwitchQuery::default() }
    }
}

/// Plans an ADD: the parts of the port that the plugin before has added.
pub fn plan_add(
    config: &MirrorConfig,
    context: AddContext<'_>,
    facts: &AttachmentFacts,
) -> Result<AddPlan, CniError> {
    let pod = open_pod(facts)?;
    let no_switch = SwitchFacts::default();
    let switch = facts.switch.as_ref().unwrap_or(&no_switch);
    let bridges = require_running(&config.socket, switch)?;
    let bridge = bridges.iter().find(|bridge| bridge.name == config.bridge).ok_or_else(|| {
        let problem = format!("Open vSwitch at {} has no bridge {}", config.socket, config.bridge);
        CniError::invalid_config("bridge", problem).with_details("`ovs-vsctl list-br` lists the bridges")
    })?;
    let port = find_attached(config, bridge, bridges)?;
    let left_over = bridge.mirrors.iter().filter(|mirror| is_left_over(mirror, config));
    let mut steps: Vec<CniStep> = left_over.map(|mirror| remove_unused(config, mirror).into()).collect();
    for (name, role) in &config.mirrors {
        let existing = bridge.mirrors.iter().find(|mirror| mirror.name == *name);
        check_output(name, *role, port, existing)?;
        if !existing.is_some_and(|mirror| has_role(mirror, port, *role)) {
            let step = SwitchStep::AttachMirror {
                socket: config.socket.clone(),
                bridge: bridge.name.clone(),
                mirror: name.clone(),
                port: port.to_owned(),
                role: *role,
            };
            steps.push(step.into());
        }
    }
    let changes = MirrorChanges {
        socket: config.socket.clone(),
        bridge: Some(bridge.name.clone()),
        ports: vec![port.to_owned()],
        mirrors: Some(config.mirrors.clone()),
    };
    let journal = context.journal(&pod, DeviceChanges::Mirror(changes));
    Ok(AddPlan::new(journal, steps, Vec::new(), false))
}

/// Returns the first interface of the result before that is a port. It must be one of the bridge of the mirrors.
fn find_attached<'a>(
    config: &'a MirrorConfig,
    bridge: &OvsSwitchBridge,
    bridges: &[OvsSwitchBridge],
) -> Result<&'a str, CniError> {
    let found = config.interfaces.iter().find_map(|name| Some((name, find_port(name, bridges)?.0)));
    match found {
        Some((name, of)) if of.name == bridge.name => Ok(name),
        Some((name, of)) => {
            let problem = format!("port {name} is one of bridge {}, not of {}", of.name, bridge.name);
            Err(CniError::invalid_config("bridge", problem).with_details("name the bridge of the port"))
        }
        None => {
            let names = if config.interfaces.is_empty() { "none" } else { &config.interfaces.join(", ") };
            let problem = format!("no interface is a port of Open vSwitch: {names}");
            Err(CniError::invalid_config("prevResult", problem)
                .with_details("mirror plugins follow the plugin ovs, in version 0.3.0 or later"))
        }
    }
}

/// Checks that a mirror has no other output.
fn check_output(
    name: &str,
    role: MirrorRole,
    port: &str,
    existing: Option<&OvsSwitchMirror>,
) -> Result<(), CniError> {
    let output = existing.and_then(|mirror| mirror.output.as_deref());
    match (role, output) {
        (MirrorRole::Output, Some(output)) if output != port => {
            let message = format!("mirror {name} has the output {output} already");
            Err(CniError::new(ErrorCode::TryAgainLater, message)
                .with_details("it is free after the pod of that port was deleted; a mirror has one consumer"))
        }
        _ => Ok(()),
    }
}

/// Returns whether nobody uses a mirror of the CNI plugins, and this attachment does not either.
fn is_left_over(mirror: &OvsSwitchMirror, config: &MirrorConfig) -> bool {
    mirror.is_owned() && mirror.is_unused() && !config.mirrors.contains_key(&mirror.name)
}

fn remove_unused(config: &MirrorConfig, mirror: &OvsSwitchMirror) -> SwitchStep {
    SwitchStep::RemoveUnusedMirror {
        socket: config.socket.clone(),
        bridge: config.bridge.clone(),
        mirror: mirror.name.clone(),
    }
}

/// Returns whether a port has the whole part in a mirror.
fn has_role(mirror: &OvsSwitchMirror, port: &str, role: MirrorRole) -> bool {
    match role {
        MirrorRole::Output => mirror.output.as_deref() == Some(port),
        MirrorRole::Source { ingress, egress } => {
            (!ingress || mirror.sources.contains(port)) && (!egress || mirror.destinations.contains(port))
        }
    }
}

/// Returns the part of `role` that a port has in a mirror, if it has one.
fn found_role(mirror: &OvsSwitchMirror, port: &str, role: MirrorRole) -> Option<MirrorRole> {
    let found = match role {
        MirrorRole::Output => role,
        MirrorRole::Source { ingress, egress } => MirrorRole::Source {
            ingress: ingress && mirror.sources.contains(port),
            egress: egress && mirror.destinations.contains(port),
        },
    };
    let is_nothing = found == MirrorRole::Source { ingress: false, egress: false };
    (!is_nothing && has_role(mirror, port, found)).then_some(found)
}

/// Plans the release: the port leaves its mirrors, and mirrors that nothing uses any more are removed.
pub(super) fn plan_release(
    changes: &MirrorChanges,
    plugin: Plugin,
    switch: &SwitchFacts,
) -> Result<Vec<SwitchStep>, CniError> {
    let bridges = require_running(&changes.socket, switch)?;
    let is_of = |bridge: &&OvsSwitchBridge| changes.bridge.as_ref().is_none_or(|name| bridge.name == *name);
    let mut steps = Vec::new();
    for bridge in bridges.iter().filter(is_of) {
        for mirror in &bridge.mirrors {
            let Some(role) = role_in(changes, plugin, mirror) else { continue };
            let port = changes.ports.iter().find_map(|port| Some((port, found_role(mirror, port, role)?)));
            let (socket, bridge, name) = (changes.socket.clone(), bridge.name.clone(), mirror.name.clone());
            if let Some((port, role)) = port {
                let port = port.clone();
                steps.push(SwitchStep::DetachMirror { socket, bridge, mirror: name, port, role });
            } else if mirror.is_owned() && mirror.is_unused() {
                steps.push(SwitchStep::RemoveUnusedMirror { socket, bridge, mirror: name });
            }
        }
    }
    Ok(steps)
}

/// Returns the part that an attachment may have in a mirror. The Go plugin records none: it may have one in each mirror of
/// the CNI plugins.
fn role_in(changes: &MirrorChanges, plugin: Plugin, mirror: &OvsSwitchMirror) -> Option<MirrorRole> {
    match &changes.mirrors {
        Some(mirrors) => mirrors.get(&mirror.name).copied(),
        None if !mirror.is_owned() => None,
        None if plugin == Plugin::OvsMirrorConsumer => Some(MirrorRole::Output),
        None => Some(MirrorRole::Source { ingress: true, egress: true }),
    }
}

/// Checks that the port has its part in each mirror.
pub(super) fn check(changes: &MirrorChanges, switch: &SwitchFacts) -> Result<(), CniError> {
    let bridges = require_running(&changes.socket, switch)?;
    let bridge = bridges.iter().find(|bridge| Some(&bridge.name) == changes.bridge.as_ref());
    for (name, role) in changes.mirrors.iter().flatten() {
        let mirror = bridge.and_then(|bridge| bridge.mirrors.iter().find(|mirror| mirror.name == *name));
        for port in &changes.ports {
            let has_part = mirror.is_some_and(|mirror| has_role(mirror, port, *role));
            let found = if has_part { role.to_string() } else { "none".to_owned() };
            expect(&format!("part of port {port} in mirror {name}"), role.to_string(), Some(found))?;
        }
    }
    Ok(())
}
