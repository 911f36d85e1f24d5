//! Model of the switch side: representors, Open vSwitch and Linux bridges.

use vfleet_plan::Master;
use vfleet_plan::cni::facts::{
    AttachmentFacts, BridgeVlan, FileFacts, HolderNamespace, InterfaceFacts, NamespaceFacts, OVS_OWNER,
    OWNER_KEY, OvsSwitchBridge, OvsSwitchFacts, OvsSwitchInterface, OvsSwitchMirror, OvsSwitchPort,
    SwitchFacts, SwitchPort,
};
use vfleet_plan::cni::step::{MirrorRole, OvsPort, OvsVlans, SwitchStep};

/// Executes a step. Fails where the kernel or Open vSwitch refuses it.
pub(super) fn execute(facts: &mut AttachmentFacts, step: &SwitchStep) {
    match step {
        SwitchStep::CreateVeth { .. }
        | SwitchStep::DeleteVeth { .. }
        | SwitchStep::DeleteVethInPod { .. }
        | SwitchStep::SetHostInterfaceUp { .. } => execute_veth(facts, step),
        SwitchStep::SetRepresentor { representor, mtu, is_up } => {
            let link = representor_of(facts, &representor.name);
            link.mtu = mtu.unwrap_or(link.mtu);
            link.is_up = is_up.unwrap_or(link.is_up);
        }
        SwitchStep::SetDeviceMtu { mtu, .. } => {
            let device = facts.device.as_mut().expect("there is a device");
            device.link.as_mut().expect("the interface is on the host").mtu = *mtu;
        }
        SwitchStep::SetVdpaMac { name, mac, .. } => {
            let device = switch(facts).vdpa.iter_mut().find(|device| device.name == *name);
            device.expect("there is a vDPA device").mac = Some(*mac);
        }
        SwitchStep::AddOvsPort { bridge, port, .. } => add_port(facts, bridge, port),
        SwitchStep::RemoveOvsPort { name, external_ids, .. } => {
            assert_eq!(external_ids.get(OWNER_KEY).map(String::as_str), Some(OVS_OWNER));
            for bridge in bridges(facts) {
                bridge.ports.retain(|port| port.name != *name || !port.has_ids(external_ids));
                for mirror in &mut bridge.mirrors {
                    mirror.sources.remove(name);
                    mirror.destinations.remove(name);
                    mirror.output.take_if(|output| output == name);
                }
            }
            release_master(facts, name);
        }
        SwitchStep::AttachMirror { bridge, mirror, port, role, .. } => {
            attach_mirror(facts, bridge, mirror, port, *role);
        }
        SwitchStep::DetachMirror { bridge, mirror, port, role, .. } => {
            let bridge = bridge_of(facts, bridge);
            let found = bridge.mirrors.iter_mut().find(|found| found.name == *mirror);
            detach(found.expect("there is a mirror"), port, *role);
            bridge.mirrors.retain(|mirror| !mirror.is_owned() || !mirror.is_unused());
        }
        SwitchStep::RemoveUnusedMirror { bridge, mirror, .. } => {
            let is_removed = |found: &OvsSwitchMirror| {
                found.name == *mirror && found.is_owned() && found.is_unused()
            };
            bridge_of(facts, bridge).mirrors.retain(|mirror| !is_removed(mirror));
        }
        SwitchStep::AttachBridgePort { representor, bridge, vlans } => {
            assert!(switch(facts).linux_bridge(bridge).is_some(), "{bridge} exists");
            let link = representor_of(facts, &representor.name);
            link.master = Some(Master { name: bridge.clone(), kind: "bridge".to_owned() });
            link.vlans = vlans.clone().unwrap_or_else(|| vec![BridgeVlan::native(1)]);
        }
        SwitchStep::DetachBridgePort { representor, bridge } => {
            let link = representor_of(facts, &representor.name);
            if link.master.take_if(|master| master.name == *bridge).is_some() {
                link.vlans.clear();
            }
        }
        SwitchStep::AddUplinkVlans { uplink, vlans } => {
            let port = uplink_of(facts, uplink);
            port.vlans.extend(vlans.iter().map(|id| BridgeVlan::tagged(*id)));
            port.vlans.sort();
            port.vlans.dedup_by_key(|vlan| vlan.id);
        }
        SwitchStep::RemoveUplinkVlans { uplink, vlans } => {
            uplink_of(facts, uplink).vlans.retain(|vlan| !vlans.contains(&vlan.id));
        }
        SwitchStep::WriteDeviceInfo { path, content } => {
            switch(facts).device_info =
                Some(FileFacts::Present { path: path.clone(), content: content.clone() });
        }
        SwitchStep::AwaitOvsLink { .. } => panic!("`{step}` is a step of the engine"),
    }
}

/// Deletes the namespace of the pod: a veth pair goes with it, and Open vSwitch loses the interface of its port.
pub(super) fn delete_namespace(facts: &mut AttachmentFacts) {
    let Some(switch) = &mut facts.switch else { return };
    let veths: Vec<String> = switch
        .interfaces
        .extract_if(.., |interface| interface.kind == "veth")
        .map(|interface| interface.name)
        .collect();
    facts.host_names.retain(|name| !veths.contains(name));
    let NamespaceFacts::Present { namespace, .. } = &facts.namespace else { return };
    let path = namespace.path.clone();
    if let Some(OvsSwitchFacts::Running { bridges }) = &mut switch.ovs {
        for port in bridges.iter_mut().flat_map(|bridge| &mut bridge.ports) {
            let is_of_pod = port.external_ids.get("contNetns") == Some(&path);
            for interface in port.interfaces.iter_mut().filter(|interface| veths.contains(&interface.name)) {
                let error = format!("could not open network device {} (No such device)", interface.name);
                interface.error = Some(error);
                interface.ofport = Some(-1);
            }
            if is_of_pod && port.interfaces.iter().any(|interface| interface.error.is_some()) {
                port.namespace = Some(HolderNamespace::Gone);
            }
        }
    }
}

fn execute_veth(facts: &mut AttachmentFacts, step: &SwitchStep) {
    match step {
        SwitchStep::CreateVeth { host_name, host_mac, name, mac, mtu, .. } => {
            assert!(facts.host_names.insert(host_name.clone()), "{host_name} is free");
            switch(facts).interfaces.push(SwitchPort {
                index: 50,
                name: host_name.clone(),
                kind: "veth".to_owned(),
                mac: Some(*host_mac),
                mtu: *mtu,
                ..SwitchPort::default()
            });
            let links = pod_links(facts);
            assert!(!links.iter().any(|link| link.is_called(name)), "{name} is free in the pod");
            links.push(InterfaceFacts {
                index: 51,
                name: name.clone(),
                alt_names: Vec::new(),
                address: mac.0.to_vec(),
                mtu: *mtu,
                min_mtu: Some(68),
                max_mtu: Some(65535),
                is_up: false,
                device: None,
                ips: Vec::new(),
            });
        }
        SwitchStep::DeleteVeth { host_name, host_mac } => {
            let found = switch(facts).interfaces.iter().position(|interface| interface.name == *host_name);
            let at = found.expect("the interface is on the host");
            let link = switch(facts).interfaces.remove(at);
            assert!(link.kind == "veth" && (host_mac.is_none() || link.mac == *host_mac), "{link:?}");
            facts.host_names.remove(host_name);
            remove_pod_end(facts, "net1");
        }
        SwitchStep::DeleteVethInPod { name, .. } => {
            remove_pod_end(facts, name);
            switch(facts).interfaces.retain(|interface| interface.kind != "veth");
        }
        SwitchStep::SetHostInterfaceUp { name } => {
            let link = switch(facts).interfaces.iter_mut().find(|interface| interface.name == *name);
            link.expect("the interface is on the host").is_up = true;
        }
        _ => panic!("`{step}` is no step of a veth pair"),
    }
}

fn remove_pod_end(facts: &mut AttachmentFacts, name: &str) {
    if let NamespaceFacts::Present { links, .. } = &mut facts.namespace {
        links.retain(|link| link.name != name || link.device.is_some());
    }
}

fn add_port(facts: &mut AttachmentFacts, bridge: &str, port: &OvsPort) {
    for other in bridges(facts).iter().flat_map(|bridge| &bridge.ports) {
        let has_name = other.interfaces.iter().any(|interface| interface.name == port.name);
        assert!(other.name != port.name && !has_name, "{} is free", port.name);
    }
    let (tag, trunks) = match &port.vlans {
        OvsVlans::Access(tag) => (Some(*tag), [].into()),
        OvsVlans::Trunk(trunks) => (None, trunks.clone()),
    };
    let interface = OvsSwitchInterface {
        name: port.name.clone(),
        type_: port.interface_type.clone().unwrap_or_default(),
        ofport: Some(port.ofport_request.map_or(5, i64::from)),
        link_state: Some("up".to_owned()),
        ..OvsSwitchInterface::default()
    };
    bridge_of(facts, bridge).ports.push(OvsSwitchPort {
        name: port.name.clone(),
        external_ids: port.external_ids.clone(),
        vlan_mode: Some(port.vlans.mode().to_owned()),
        tag,
        trunks,
        interfaces: vec![interface],
        ..OvsSwitchPort::default()
    });
    if let Some(representor) = switch(facts).representor.as_mut().filter(|link| link.name == port.name) {
        representor.master = Some(Master { name: "ovs-system".to_owned(), kind: "openvswitch".to_owned() });
    }
}

fn release_master(facts: &mut AttachmentFacts, name: &str) {
    let representor = switch(facts).representor.as_mut().filter(|link| link.name == name);
    if let Some(representor) = representor {
        representor.master.take_if(|master| master.kind == "openvswitch");
    }
}

fn attach_mirror(facts: &mut AttachmentFacts, bridge: &str, name: &str, port: &str, role: MirrorRole) {
    let bridge = bridge_of(facts, bridge);
    assert!(bridge.ports.iter().any(|found| found.name == port), "{port} exists");
    if !bridge.mirrors.iter().any(|mirror| mirror.name == name) {
        let external_ids = [(OWNER_KEY.to_owned(), OVS_OWNER.to_owned())].into();
        let name = name.to_owned();
        bridge.mirrors.push(OvsSwitchMirror { name, external_ids, ..OvsSwitchMirror::default() });
    }
    let mirror = bridge.mirrors.iter_mut().find(|mirror| mirror.name == name);
    let mirror = mirror.expect("there is a mirror");
    match role {
        MirrorRole::Output => {
            assert!(mirror.output.as_ref().is_none_or(|output| output == port), "{name} has no output");
            mirror.output = Some(port.to_owned());
        }
        MirrorRole::Source { ingress, egress } => {
            mirror.sources.extend(ingress.then(|| port.to_owned()));
            mirror.destinations.extend(egress.then(|| port.to_owned()));
        }
    }
}

fn detach(mirror: &mut OvsSwitchMirror, port: &str, role: MirrorRole) {
    match role {
        MirrorRole::Output => {
            mirror.output.take_if(|output| output == port);
        }
        MirrorRole::Source { ingress, egress } => {
            if ingress {
                mirror.sources.remove(port);
            }
            if egress {
                mirror.destinations.remove(port);
            }
        }
    }
}

fn switch(facts: &mut AttachmentFacts) -> &mut SwitchFacts {
    facts.switch.as_mut().expect("there is a switch side")
}

fn bridges(facts: &mut AttachmentFacts) -> &mut Vec<OvsSwitchBridge> {
    match &mut switch(facts).ovs {
        Some(OvsSwitchFacts::Running { bridges }) => bridges,
        other => panic!("Open vSwitch does not run: {other:?}"),
    }
}

fn bridge_of<'a>(facts: &'a mut AttachmentFacts, name: &str) -> &'a mut OvsSwitchBridge {
    bridges(facts).iter_mut().find(|bridge| bridge.name == name).expect("there is a bridge")
}

fn representor_of<'a>(facts: &'a mut AttachmentFacts, name: &str) -> &'a mut SwitchPort {
    let representor = switch(facts).representor.as_mut();
    representor.filter(|representor| representor.name == name).expect("there is a representor")
}

fn uplink_of<'a>(facts: &'a mut AttachmentFacts, name: &str) -> &'a mut SwitchPort {
    let uplink = switch(facts).uplink.as_mut().expect("there is an uplink");
    let port = match &mut uplink.bond {
        Some(bond) => &mut bond.port,
        None => &mut uplink.pf,
    };
    assert_eq!(port.name, name);
    port
}

fn pod_links(facts: &mut AttachmentFacts) -> &mut Vec<InterfaceFacts> {
    match &mut facts.namespace {
        NamespaceFacts::Present { links, .. } => links,
        _ => panic!("the namespace does not exist"),
    }
}
