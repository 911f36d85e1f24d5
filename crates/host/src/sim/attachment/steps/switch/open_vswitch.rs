//! Steps for ports and mirrors of Open vSwitch, each in one transaction.

use std::collections::BTreeMap;

use vfleet_plan::cni::facts::{OVS_OWNER, OWNER_KEY, OvsSocket, OvsSwitchMirror};
use vfleet_plan::cni::step::{MirrorRole, OvsPort, SwitchStep};

use crate::HostError;
use crate::sim::attachment::switch::check_socket;
use crate::sim::host::SimHost;
use crate::sim::kernel::Kernel;
use crate::sim::ovs::APPLY_DEADLINE;

pub(super) fn execute(host: &SimHost, step: &SwitchStep) -> Result<(), HostError> {
    let attempt = step.to_string();
    match step {
        SwitchStep::AddOvsPort { socket, bridge, port } => add_port(host, socket, bridge, port, &attempt),
        SwitchStep::RemoveOvsPort { socket, name, external_ids } => {
            remove_port(host, socket, name, external_ids, &attempt)
        }
        SwitchStep::AwaitOvsLink { socket, name, limit } => host.read_state(|kernel| {
            check_socket(kernel, socket, &attempt)?;
            let is_port = kernel.ovs.has_switch && kernel.ovs.port(name).is_some();
            if is_port && kernel.has_link(name) {
                return Ok(());
            }
            let (attempt, interface) = (attempt.clone(), name.clone());
            Err(HostError::OvsLinkDown { attempt, interface, after: *limit })
        }),
        SwitchStep::AttachMirror { socket, bridge, mirror, port, role } => {
            let key = (bridge.clone(), mirror.clone());
            attach_mirror(host, socket, key, port, *role, &attempt)
        }
        SwitchStep::DetachMirror { socket, bridge, mirror, port, role } => {
            let key = (bridge.clone(), mirror.clone());
            release_mirror(host, socket, &key, |mirror| leave(mirror, port, *role), &attempt)
        }
        SwitchStep::RemoveUnusedMirror { socket, bridge, mirror } => {
            let key = (bridge.clone(), mirror.clone());
            release_mirror(host, socket, &key, |_| {}, &attempt)
        }
        _ => Ok(()),
    }
}

/// Executes a transaction, unless the server refuses all.
fn transact(
    host: &SimHost,
    socket: &OvsSocket,
    attempt: &str,
    change: impl FnOnce(&mut Kernel) -> Result<(), HostError>,
) -> Result<(), HostError> {
    host.effect(attempt, |kernel| {
        check_socket(kernel, socket, attempt)?;
        if let Some(message) = kernel.ovs.refusal.clone() {
            return Err(HostError::OvsRefused { attempt: attempt.to_owned(), message });
        }
        change(kernel)?;
        kernel.ovs.forget_removed_ports();
        kernel.count_event();
        Ok(())
    })
}

fn add_port(
    host: &SimHost,
    socket: &OvsSocket,
    bridge: &str,
    port: &OvsPort,
    attempt: &str,
) -> Result<(), HostError> {
    let is_done = host.read_state(|kernel| {
        check_socket(kernel, socket, attempt)?;
        check_port(kernel, bridge, port, attempt)?;
        Ok(kernel.ovs.has_port(port))
    })?;
    if !is_done {
        transact(host, socket, attempt, |kernel| {
            // Another process may have been faster.
            if !check_port(kernel, bridge, port, attempt)? {
                let refused = |message| HostError::OvsRefused { attempt: attempt.to_owned(), message };
                kernel.ovs.add_port(bridge, &port.name, "").map_err(refused)?;
            }
            kernel.ovs.set_port(port);
            Ok(())
        })?;
    }
    host.read_state(|kernel| check_result(kernel, bridge, port, attempt))
}

/// Returns whether the port of an attachment exists. Fails if another port or interface has its name.
fn check_port(kernel: &Kernel, bridge: &str, port: &OvsPort, attempt: &str) -> Result<bool, HostError> {
    if kernel.ovs.bridge(bridge).is_none() {
        let (attempt, bridge) = (attempt.to_owned(), bridge.to_owned());
        return Err(HostError::OvsBridgeNotFound { attempt, bridge });
    }
    let taken = |found: String| HostError::OvsPortTaken {
        attempt: attempt.to_owned(),
        port: port.name.clone(),
        found,
    };
    if kernel.ovs.is_in_bond(&port.name) {
        return Err(taken("an interface of a bond".to_owned()));
    }
    match kernel.ovs.port(&port.name) {
        None => Ok(false),
        Some((on, found)) if on.name == bridge && found.external_ids == port.external_ids => Ok(true),
        Some((on, _)) => Err(taken(format!("a port of bridge {}", on.name))),
    }
}

/// Fails if ovs-vswitchd has not configured the port.
fn check_result(kernel: &Kernel, bridge: &str, port: &OvsPort, attempt: &str) -> Result<(), HostError> {
    let attempt = attempt.to_owned();
    if kernel.ovs.cur_cfg < kernel.ovs.next_cfg {
        return Err(HostError::OvsNotApplied { attempt, after: APPLY_DEADLINE });
    }
    let interface = kernel.ovs.port(&port.name).and_then(|(_, found)| found.interfaces.first());
    let error = interface.and_then(|interface| interface.error.clone());
    let no_datapath = || "no port number: ovs-vswitchd could not create the bridge".to_owned();
    match error.or_else(|| (!kernel.has_ovs_datapath(bridge)).then(no_datapath)) {
        None => Ok(()),
        Some(message) => Err(HostError::OvsPortFailed { attempt, interface: port.name.clone(), message }),
    }
}

fn remove_port(
    host: &SimHost,
    socket: &OvsSocket,
    name: &str,
    external_ids: &BTreeMap<String, String>,
    attempt: &str,
) -> Result<(), HostError> {
    let is_own = |kernel: &Kernel| {
        let has_id = |found: &BTreeMap<String, String>| {
            external_ids.iter().all(|(key, value)| found.get(key) == Some(value))
        };
        kernel.ovs.port(name).is_some_and(|(_, port)| has_id(&port.external_ids))
    };
    let is_there = host.read_state(|kernel| {
        check_socket(kernel, socket, attempt)?;
        Ok(is_own(kernel))
    })?;
    if !is_there {
        return Ok(());
    }
    transact(host, socket, attempt, |kernel| {
        if is_own(kernel) {
            kernel.ovs.remove_port(name);
        }
        Ok(())
    })
}

fn attach_mirror(
    host: &SimHost,
    socket: &OvsSocket,
    key: (String, String),
    port: &str,
    role: MirrorRole,
    attempt: &str,
) -> Result<(), HostError> {
    transact(host, socket, attempt, |kernel| {
        let (attempt, bridge) = (attempt.to_owned(), key.0.clone());
        let Some(on) = kernel.ovs.bridge(&bridge) else {
            return Err(HostError::OvsBridgeNotFound { attempt, bridge });
        };
        if !on.ports.iter().any(|found| found.name == port) {
            return Err(HostError::OvsPortNotFound { attempt, port: port.to_owned(), bridge });
        }
        let new = || OvsSwitchMirror {
            name: key.1.clone(),
            external_ids: [(OWNER_KEY.to_owned(), OVS_OWNER.to_owned())].into(),
            ..OvsSwitchMirror::default()
        };
        let mut mirror = kernel.ovs.mirrors.get(&key).cloned().unwrap_or_else(new);
        match role {
            MirrorRole::Source { ingress, egress } => {
                mirror.sources.extend(ingress.then(|| port.to_owned()));
                mirror.destinations.extend(egress.then(|| port.to_owned()));
            }
            MirrorRole::Output if mirror.output.as_ref().is_some_and(|output| output != port) => {
                return Err(HostError::OvsMirrorTaken { attempt, mirror: key.1 });
            }
            MirrorRole::Output => mirror.output = Some(port.to_owned()),
        }
        kernel.ovs.mirrors.insert(key, mirror);
        kernel.ovs.next_cfg += 1;
        Ok(())
    })
}

fn leave(mirror: &mut OvsSwitchMirror, port: &str, role: MirrorRole) {
    match role {
        MirrorRole::Source { ingress, egress } => {
            mirror.sources.retain(|found| !ingress || found != port);
            mirror.destinations.retain(|found| !egress || found != port);
        }
        MirrorRole::Output => mirror.output = mirror.output.take().filter(|output| output != port),
    }
}

/// Changes a mirror, and removes it if it is one of the CNI plugins and nothing uses it.
fn release_mirror(
    host: &SimHost,
    socket: &OvsSocket,
    key: &(String, String),
    change: impl Fn(&mut OvsSwitchMirror),
    attempt: &str,
) -> Result<(), HostError> {
    let changed = |kernel: &Kernel| {
        let before = kernel.ovs.mirrors.get(key)?;
        let mut after = before.clone();
        change(&mut after);
        let after = Some(after).filter(|after| !(after.is_owned() && after.is_unused()));
        (after.as_ref() != Some(before)).then_some(after)
    };
    let is_done = host.read_state(|kernel| {
        check_socket(kernel, socket, attempt)?;
        Ok(changed(kernel).is_none())
    })?;
    if is_done {
        return Ok(());
    }
    transact(host, socket, attempt, |kernel| {
        match changed(kernel) {
            None => {}
            Some(None) => drop(kernel.ovs.mirrors.remove(key)),
            Some(Some(mirror)) => drop(kernel.ovs.mirrors.insert(key.clone(), mirror)),
        }
        kernel.ovs.next_cfg += 1;
        Ok(())
    })
}
