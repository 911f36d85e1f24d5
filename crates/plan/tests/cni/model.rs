//! Model of the kernel for one attachment: executes steps on facts, as the host does.

use vfleet_api::{Guid, MacAddr, VfRef};
use vfleet_plan::cni::facts::{
    AttachmentFacts, DeviceFacts, InterfaceFacts, Namespace, NamespaceFacts, VfSettings,
};
use vfleet_plan::cni::step::{CniStep, OriginalInterface};

#[path = "model/switch.rs"]
mod switch;

/// Name that the kernel or udev gives to an interface that a driver creates.
const NEW_NAME: &str = "new0";
/// MAC of a VF that has no administrative one, after its driver was bound.
const NEW_MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];
/// Hardware address of a new InfiniBand interface, without its GUID.
const IB_ADDRESS: [u8; 20] = [0, 0, 1, 2, 254, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Behaviour of the driver of a VF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VfDriver {
    /// It accepts a new MAC.
    AcceptsMac,
    /// It has to be bound again for a new MAC.
    IsBoundForMac,
    /// Its interface gets an administrative MAC at once, wherever it is.
    AppliesMacAtOnce,
}

/// Executes a step. Fails where the kernel refuses it.
pub(crate) fn execute(facts: &mut AttachmentFacts, step: &CniStep, driver: VfDriver) {
    assert!(!step.to_string().contains('\n'));
    match step {
        CniStep::SetVf { vf, settings } => {
            merge(stored(facts, *vf), settings);
            if let Some(MacAddr(mac)) = settings.mac
                && driver == VfDriver::AppliesMacAtOnce
                && mac != [0; 6]
            {
                apply_mac(facts, mac);
            }
        }
        CniStep::SetVfLinkState { vf, state } => set(&mut stored(facts, *vf).link_state, Some(*state)),
        CniStep::SetVfGuid { vf, guid } => {
            let stored = stored(facts, *vf);
            set(&mut stored.node_guid, Some(*guid));
            set(&mut stored.port_guid, Some(*guid));
        }
        CniStep::SetInterfaceMac { mac, .. } if driver == VfDriver::IsBoundForMac => {
            rebind(facts);
            assert_eq!(device(facts).link.as_ref().and_then(InterfaceFacts::mac), Some(*mac));
        }
        CniStep::SetInterfaceMac { mac, .. } => {
            device(facts).link.as_mut().expect("the interface is on the host").address = mac.0.to_vec();
        }
        CniStep::MoveToPod { namespace, name, drop_alt_names, .. } => {
            let mut link = device(facts).link.take().expect("the interface is on the host");
            link.alt_names.retain(|alt_name| !drop_alt_names.contains(alt_name));
            link.name.clone_from(name);
            link.is_up = false;
            let links = pod_links(facts, namespace);
            for name in link.alt_names.iter().chain([name]) {
                assert!(!links.iter().any(|other| other.is_called(name)), "{name} exists in the pod");
            }
            assert!(!link.alt_names.contains(name), "{name} exists as a name of the interface itself");
            links.push(link);
        }
        CniStep::SetUpInPod { namespace, name, mtu, mac } => {
            let links = pod_links(facts, namespace);
            let link = links.iter_mut().find(|link| link.name == *name).expect("the interface is in the pod");
            link.mtu = mtu.unwrap_or(link.mtu);
            link.address = mac.map_or(link.address.clone(), |mac| mac.0.to_vec());
            link.is_up = true;
        }
        CniStep::ReturnToHost { pod_name, original, .. } => return_to_host(facts, pod_name, original),
        CniStep::Rebind { .. } => rebind(facts),
        CniStep::MoveRdmaToPod { rdma, namespace, .. } => {
            device(facts).rdma.retain(|name| name != rdma);
            pod_rdma(facts, namespace).push(rdma.clone());
            create_again(facts);
        }
        CniStep::ReturnRdmaToHost { rdma, namespace, .. } => {
            pod_rdma(facts, namespace).retain(|name| name != rdma);
            device(facts).rdma.push(rdma.clone());
            create_again(facts);
        }
        CniStep::Switch(step) => switch::execute(facts, step),
        CniStep::AddAddresses { .. }
        | CniStep::Announce { .. }
        | CniStep::WriteGoAllocation { .. }
        | CniStep::RemoveGoAllocation { .. } => panic!("`{step}` is a step of the engine"),
    }
}

/// Deletes the namespace of the pod: the kernel returns the interface under its name, or under another one if the name is
/// taken, and the RDMA device.
pub(crate) fn delete_namespace(facts: &mut AttachmentFacts) {
    if let Some(mut link) = take_from_pod(facts) {
        if facts.host_names.contains(&link.name) {
            "dev7".clone_into(&mut link.name);
        }
        link.alt_names.retain(|name| !facts.host_names.contains(name));
        link.is_up = false;
        link.ips.clear();
        device(facts).link = Some(link);
    }
    if let (NamespaceFacts::Present { rdma, .. }, Some(device)) = (&mut facts.namespace, &mut facts.device) {
        device.rdma.append(rdma);
    }
    switch::delete_namespace(facts);
    facts.namespace = NamespaceFacts::Gone;
}

/// Unbinds the driver of the device, as an interrupted step does that binds it again.
pub(crate) fn unbind(facts: &mut AttachmentFacts) {
    let device = device(facts);
    device.driver = None;
    device.link = None;
    device.rdma.clear();
}

fn device(facts: &mut AttachmentFacts) -> &mut DeviceFacts {
    facts.device.as_mut().expect("there is a device")
}

fn stored(facts: &mut AttachmentFacts, vf: VfRef) -> &mut VfSettings {
    let pf = device(facts).pf.as_mut().expect("the device is a VF");
    assert_eq!(pf.vf, vf);
    pf.settings.get_or_insert_default()
}

fn merge(stored: &mut VfSettings, settings: &VfSettings) {
    assert_eq!(settings.min_tx_rate.is_some(), settings.max_tx_rate.is_some(), "one request has both rates");
    set(&mut stored.mac, settings.mac);
    set(&mut stored.vlan, settings.vlan);
    set(&mut stored.spoof_check, settings.spoof_check);
    set(&mut stored.trust, settings.trust);
    set(&mut stored.min_tx_rate, settings.min_tx_rate);
    set(&mut stored.max_tx_rate, settings.max_tx_rate);
    set(&mut stored.link_state, settings.link_state);
}

/// Sets a value, unless the driver does not report it.
fn set<T>(stored: &mut Option<T>, value: Option<T>) {
    if stored.is_some() && value.is_some() {
        *stored = value;
    }
}

fn return_to_host(facts: &mut AttachmentFacts, pod_name: &str, original: &OriginalInterface) {
    let mut link = match device(facts).link.take() {
        Some(link) => link,
        None => take_from_pod(facts).expect("the interface is on the host or in the pod"),
    };
    let is_free = |name: &String| !facts.host_names.contains(name);
    if is_free(&original.name) {
        link.name.clone_from(&original.name);
    } else if facts.host_names.contains(&link.name) {
        "dev7".clone_into(&mut link.name);
    }
    if !original.alt_names.iter().any(|name| name == pod_name) {
        link.alt_names.retain(|name| name != pod_name);
    }
    let lacking = original.alt_names.iter().filter(|name| !link.is_called(name) && is_free(name));
    let lacking: Vec<_> = lacking.cloned().collect();
    link.alt_names.extend(lacking);
    link.alt_names.sort();
    link.address = original.mac.map_or(link.address.clone(), |MacAddr(mac)| mac.to_vec());
    link.mtu = original.mtu.unwrap_or(link.mtu);
    link.is_up = false;
    link.ips.clear();
    device(facts).link = Some(link);
}

/// Creates the interface again on the host, as a driver does that is bound, with the address that the PF stores.
fn rebind(facts: &mut AttachmentFacts) {
    let old = device(facts).link.take().or_else(|| take_from_pod(facts));
    let device = device(facts);
    let stored = device.pf.as_ref().and_then(|pf| pf.settings).unwrap_or_default();
    let (address, mtu) = if let Some(MacAddr(mac)) = stored.mac {
        (if mac == [0; 6] { NEW_MAC } else { mac }.to_vec(), 1500)
    } else {
        let mut address = old.map_or_else(|| IB_ADDRESS.to_vec(), |link| link.address);
        let stored = stored.port_guid.map(|Guid(guid)| if guid == [0xff; 8] { [0; 8] } else { guid });
        address.splice(12.., stored.unwrap_or_default());
        (address, 2044)
    };
    if device.driver.replace("bound".to_owned()).is_none() && address.len() == 20 {
        device.rdma = vec!["mlx5_2".to_owned()];
    }
    device.link = Some(new_link(device, address, mtu));
}

/// Creates an InfiniBand interface again on the host, as the kernel does when its RDMA device moves.
fn create_again(facts: &mut AttachmentFacts) {
    let is_infiniband = |link: &InterfaceFacts| link.is_infiniband();
    let old = match device(facts).link.take_if(|link| is_infiniband(link)) {
        Some(link) => Some(link),
        None if device(facts).link.is_none() && pod_link(facts).is_some_and(is_infiniband) => {
            take_from_pod(facts)
        }
        None => None,
    };
    if let Some(old) = old {
        let device = device(facts);
        device.link = Some(new_link(device, old.address, old.mtu));
    }
}

fn new_link(device: &DeviceFacts, address: Vec<u8>, mtu: u32) -> InterfaceFacts {
    InterfaceFacts {
        index: 77,
        name: NEW_NAME.to_owned(),
        alt_names: Vec::new(),
        address,
        mtu,
        min_mtu: None,
        max_mtu: None,
        is_up: false,
        device: Some(device.address),
        ips: Vec::new(),
    }
}

/// Gives the interface a MAC, on the host or in the pod.
fn apply_mac(facts: &mut AttachmentFacts, mac: [u8; 6]) {
    let device = device(facts).clone();
    let is_in_pod = device.link.is_none();
    let link = match &mut facts.namespace {
        NamespaceFacts::Present { links, .. } if is_in_pod => {
            links.iter_mut().find(|link| is_of(link, &device))
        }
        _ => facts.device.as_mut().and_then(|device| device.link.as_mut()),
    };
    if let Some(link) = link {
        link.address = mac.to_vec();
    }
}

fn pod_link(facts: &AttachmentFacts) -> Option<&InterfaceFacts> {
    let NamespaceFacts::Present { links, .. } = &facts.namespace else { return None };
    let device = facts.device.as_ref()?;
    links.iter().find(|link| is_of(link, device))
}

/// Returns whether an interface in the pod is that of the device. Old kernels do not report the device.
fn is_of(link: &InterfaceFacts, device: &DeviceFacts) -> bool {
    link.device == Some(device.address) || (link.device.is_none() && link.name == "net1")
}

fn take_from_pod(facts: &mut AttachmentFacts) -> Option<InterfaceFacts> {
    let NamespaceFacts::Present { links, .. } = &mut facts.namespace else { return None };
    let device = facts.device.as_ref()?;
    let at = links.iter().position(|link| is_of(link, device))?;
    Some(links.remove(at))
}

fn pod_links<'a>(facts: &'a mut AttachmentFacts, of: &Namespace) -> &'a mut Vec<InterfaceFacts> {
    match &mut facts.namespace {
        NamespaceFacts::Present { namespace, links, .. } if namespace == of => links,
        _ => panic!("the namespace does not exist"),
    }
}

fn pod_rdma<'a>(facts: &'a mut AttachmentFacts, of: &Namespace) -> &'a mut Vec<String> {
    match &mut facts.namespace {
        NamespaceFacts::Present { namespace, rdma, .. } if namespace == of => rdma,
        _ => panic!("the namespace does not exist"),
    }
}
