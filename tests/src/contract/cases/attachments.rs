//! Attachments of pods: settings of VFs, and interfaces that move to the namespace of a pod and back.

use std::time::Duration;

use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_host::HostError;
use vfleet_host::attachment::{AttachmentQuery, NamespaceQuery};
use vfleet_plan::cni::facts::{
    AttachmentFacts, DevicePart, LinkState, Namespace, NamespaceFacts, VfSettings, VfVlan, VlanProtocol,
};
use vfleet_plan::cni::step::{CniStep, OriginalInterface};

use super::cases;
use crate::contract::check::{
    compare_pf, ensure, expect_eq, expect_some, observe_vf, observe_vf_link, vf_ref,
};
use crate::contract::observed::{ObservedLink, ObservedVf};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    sets_the_settings_of_a_vf_and_restores_them: VfsCreatedUp,
    refuses_settings_that_the_driver_does_not_support: VfsCreatedUp,
    a_vf_gets_a_mac_that_its_pf_has_set: VfsCreatedUp,
    a_vf_returns_from_a_pod_as_it_was: VfsCreatedUp,
    a_name_that_the_pod_has_is_refused: VfsCreatedUp,
    an_alternative_name_can_become_the_name_in_the_pod: VfsCreatedUp,
    a_vf_returns_from_a_deleted_namespace_as_it_was: VfsCreatedUp,
    vfs_return_from_deleted_namespaces_with_one_name: VfsCreatedUp,
}

/// Name of the interface in the pod.
const NAME: &str = "net1";
const MAC: MacAddr = MacAddr([2, 0, 0, 0xaa, 0, 1]);
/// Limit for the kernel to return an interface.
const LIMIT: Duration = Duration::from_secs(10);
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const EPROTONOSUPPORT: i32 = 93;
const EOPNOTSUPP: i32 = 95;

fn execute(testbed: &dyn TestBed, step: &CniStep) -> CaseResult {
    testbed.attachments().execute_cni(step)?;
    testbed.admin().settle()
}

/// Executes a step that the kernel refuses with this errno.
fn expect_errno(testbed: &dyn TestBed, step: &CniStep, errno: i32) -> CaseResult {
    match testbed.attachments().execute_cni(step) {
        Ok(()) => Err(CaseError::Failed(format!("{step} was not refused"))),
        Err(error) => expect_eq(&format!("the errno of {error}"), &error.errno(), &Some(errno)),
    }
}

fn read_facts(
    testbed: &dyn TestBed,
    device: PciAddress,
    path: Option<&str>,
) -> Result<AttachmentFacts, HostError> {
    let namespace = path.map_or(NamespaceQuery::NotGiven, NamespaceQuery::Path);
    testbed.attachments().attachment_facts(&AttachmentQuery {
        device: Some(device),
        namespace,
        key: None,
        with_addresses: true,
    })
}

/// Compares the facts of the settings of a VF with the observed ones; returns them.
fn compare_settings(testbed: &dyn TestBed, vf: VfRef) -> Result<VfSettings, CaseError> {
    let device = observe_vf(testbed, vf.index)?.address;
    let observed = testbed.observer().vf_settings(vf)?;
    let facts = read_facts(testbed, device, None)?;
    let settings = facts.device.and_then(|device| device.pf?.settings);
    expect_eq("the settings in the facts", &settings, &Some(observed))?;
    Ok(observed)
}

/// Creates the namespace of a pod.
fn create_pod(testbed: &dyn TestBed, name: &str) -> Result<Namespace, CaseError> {
    let path = testbed.admin().create_namespace(name)?;
    let device = observe_vf(testbed, 0)?.address;
    match read_facts(testbed, device, Some(&path))?.namespace {
        NamespaceFacts::Present { namespace, is_own: false, .. } => Ok(namespace),
        other => Err(CaseError::Failed(format!("the namespace {path} is {other:?}"))),
    }
}

fn move_to_pod(device: PciAddress, namespace: &Namespace, drop_alt_names: &[&str]) -> CniStep {
    CniStep::MoveToPod {
        device,
        namespace: namespace.clone(),
        name: NAME.to_owned(),
        drop_alt_names: drop_alt_names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn return_to_host(vf: &ObservedVf, namespace: Option<&Namespace>) -> Result<CniStep, CaseError> {
    let link = expect_some("the interface before", vf.link.as_ref())?;
    let original = OriginalInterface {
        name: link.name.clone(),
        alt_names: link.alt_names.clone(),
        mac: link.mac,
        mtu: Some(link.mtu),
    };
    let namespace = namespace.cloned();
    Ok(CniStep::ReturnToHost { device: vf.address, namespace, pod_name: NAME.to_owned(), original })
}

/// Returns the interface in the pod, which facts and observer show alike.
fn compare_pod(
    testbed: &dyn TestBed,
    pod: &str,
    vf: &ObservedVf,
    path: &str,
) -> Result<ObservedLink, CaseError> {
    let links = testbed.observer().links_in(pod)?;
    let observed = expect_some("the interface in the pod", links.into_iter().find(|link| link.name == NAME))?;
    let facts = read_facts(testbed, vf.address, Some(path))?;
    expect_eq("the interface on the host", &facts.device.and_then(|device| device.link), &None)?;
    let NamespaceFacts::Present { links, .. } = facts.namespace else {
        return Err(CaseError::Failed(format!("the namespace is {:?}", facts.namespace)));
    };
    let reported = links.into_iter().find(|link| link.device == Some(vf.address));
    let reported = expect_some("the interface among the facts", reported)?;
    expect_eq("the name", &reported.name, &observed.name)?;
    expect_eq("the MAC", &reported.mac(), &observed.mac)?;
    expect_eq("the MTU", &reported.mtu, &observed.mtu)?;
    expect_eq("up", &reported.is_up, &observed.up)?;
    Ok(observed)
}

fn sets_the_settings_of_a_vf_and_restores_them(testbed: &dyn TestBed) -> CaseResult {
    let vf = vf_ref(testbed, 1);
    let before = compare_settings(testbed, vf)?;
    let settings = VfSettings {
        vlan: Some(VfVlan { id: 100, qos: 3, protocol: VlanProtocol::Ieee8021q }),
        spoof_check: before.spoof_check.map(|on| !on),
        trust: before.trust.map(|on| !on),
        min_tx_rate: Some(0),
        max_tx_rate: Some(100),
        ..VfSettings::default()
    };
    execute(testbed, &CniStep::SetVf { vf, settings })?;
    let changed = compare_settings(testbed, vf)?;
    expect_eq("what is left to change", &settings.differing_from(&changed), &VfSettings::default())?;
    let other = compare_settings(testbed, vf_ref(testbed, 2))?;
    expect_eq("the VLAN of another VF", &other.vlan, &Some(VfVlan::default()))?;
    execute(testbed, &CniStep::SetVf { vf, settings: before.differing_from(&changed) })?;
    expect_eq("the settings", &compare_settings(testbed, vf)?, &before)
}

fn refuses_settings_that_the_driver_does_not_support(testbed: &dyn TestBed) -> CaseResult {
    let vf = vf_ref(testbed, 1);
    let before = compare_settings(testbed, vf)?;
    let service_vlan = VfVlan { id: 100, qos: 0, protocol: VlanProtocol::Ieee8021ad };
    let none = VfSettings::default();
    for (settings, errno) in [
        (VfSettings { link_state: Some(LinkState::Enable), ..none }, EOPNOTSUPP),
        (VfSettings { vlan: Some(service_vlan), ..none }, EPROTONOSUPPORT),
        (VfSettings { min_tx_rate: Some(10), max_tx_rate: Some(100), ..none }, EINVAL),
    ] {
        expect_errno(testbed, &CniStep::SetVf { vf, settings }, errno)?;
    }
    expect_eq("the settings", &compare_settings(testbed, vf)?, &before)
}

fn a_vf_gets_a_mac_that_its_pf_has_set(testbed: &dyn TestBed) -> CaseResult {
    let vf = vf_ref(testbed, 0);
    let device = observe_vf(testbed, 0)?.address;
    let settings = VfSettings { mac: Some(MAC), ..VfSettings::default() };
    execute(testbed, &CniStep::SetVf { vf, settings })?;
    ensure(observe_vf_link(testbed, 0)?.mac != Some(MAC), "the VF has taken the MAC over at once")?;
    execute(testbed, &CniStep::SetInterfaceMac { device, mac: MAC })?;
    expect_eq("the MAC", &observe_vf_link(testbed, 0)?.mac, &Some(MAC))?;
    compare_pf(testbed).map(drop)
}

fn a_vf_returns_from_a_pod_as_it_was(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_vf(testbed, 1)?;
    let pod = create_pod(testbed, "pod")?;
    execute(testbed, &move_to_pod(before.address, &pod, &[]))?;
    ensure(!compare_pod(testbed, "pod", &before, &pod.path)?.up, "the interface is up")?;
    expect_eq("the interface on the host", &compare_pf(testbed)?.vfs[1].link, &None)?;
    let name = NAME.to_owned();
    execute(testbed, &CniStep::SetUpInPod { namespace: pod.clone(), name, mtu: Some(1300), mac: None })?;
    let inside = compare_pod(testbed, "pod", &before, &pod.path)?;
    expect_eq("MTU and state", &(inside.mtu, inside.up), &(1300, true))?;
    let step = return_to_host(&before, Some(&pod))?;
    execute(testbed, &step)?;
    expect_eq("the VF", &observe_vf(testbed, 1)?, &before)?;
    execute(testbed, &step)?;
    expect_eq("the VF after the second return", &observe_vf(testbed, 1)?, &before)
}

fn a_name_that_the_pod_has_is_refused(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_vf(testbed, 1)?;
    let pod = create_pod(testbed, "pod")?;
    testbed.admin().add_virtual_link("pod", NAME)?;
    let links = testbed.observer().links_in("pod")?;
    expect_errno(testbed, &move_to_pod(before.address, &pod, &[]), EEXIST)?;
    testbed.admin().settle()?;
    expect_eq("the VF", &observe_vf(testbed, 1)?, &before)?;
    expect_eq("the interfaces of the pod", &testbed.observer().links_in("pod")?, &links)
}

fn an_alternative_name_can_become_the_name_in_the_pod(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().add_vf_alt_name(vf_ref(testbed, 1), NAME)?;
    let before = observe_vf(testbed, 1)?;
    let pod = create_pod(testbed, "pod")?;
    execute(testbed, &move_to_pod(before.address, &pod, &[NAME]))?;
    compare_pod(testbed, "pod", &before, &pod.path)?;
    execute(testbed, &return_to_host(&before, Some(&pod))?)?;
    expect_eq("the VF", &observe_vf(testbed, 1)?, &before)
}

/// Waits until the kernel has returned the interface of a VF.
fn wait_for_return(testbed: &dyn TestBed, device: PciAddress) -> CaseResult {
    let is_back = testbed.attachments().wait_for_device(device, &[DevicePart::Interface].into(), LIMIT)?;
    ensure(is_back, "the interface did not return")?;
    testbed.admin().settle()
}

fn a_vf_returns_from_a_deleted_namespace_as_it_was(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_vf(testbed, 1)?;
    let pod = create_pod(testbed, "pod")?;
    execute(testbed, &move_to_pod(before.address, &pod, &[]))?;
    let name = NAME.to_owned();
    execute(testbed, &CniStep::SetUpInPod { namespace: pod.clone(), name, mtu: Some(1300), mac: None })?;
    testbed.admin().delete_namespace("pod")?;
    let facts = read_facts(testbed, before.address, Some(&pod.path))?;
    expect_eq("the namespace", &facts.namespace, &NamespaceFacts::Gone)?;
    wait_for_return(testbed, before.address)?;
    let returned = observe_vf_link(testbed, 1)?;
    expect_eq("the name", &returned.name, &NAME.to_owned())?;
    let path_name = before.link.iter().map(|link| link.name.clone()).collect::<Vec<_>>();
    expect_eq("the alternative names", &returned.alt_names, &path_name)?;
    expect_eq("MTU and state", &(returned.mtu, returned.up), &(1300, false))?;
    execute(testbed, &return_to_host(&before, None)?)?;
    expect_eq("the VF", &observe_vf(testbed, 1)?, &before)
}

fn vfs_return_from_deleted_namespaces_with_one_name(testbed: &dyn TestBed) -> CaseResult {
    let vfs = [observe_vf(testbed, 1)?, observe_vf(testbed, 2)?];
    for (vf, name) in vfs.iter().zip(["first", "second"]) {
        let pod = create_pod(testbed, name)?;
        execute(testbed, &move_to_pod(vf.address, &pod, &[]))?;
        testbed.admin().delete_namespace(name)?;
        wait_for_return(testbed, vf.address)?;
    }
    let names = [observe_vf_link(testbed, 1)?.name, observe_vf_link(testbed, 2)?.name];
    ensure(names[0] == NAME && names[1].starts_with("dev"), format!("the names are {names:?}"))?;
    for (vf, index) in vfs.iter().zip([1, 2]) {
        execute(testbed, &return_to_host(vf, None)?)?;
        expect_eq("the VF", &observe_vf(testbed, index)?, vf)?;
    }
    Ok(())
}
