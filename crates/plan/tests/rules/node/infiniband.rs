//! GUIDs of VFs, and RDMA devices without one.

use vfleet_api::{Guid, SriovNetworkNodeStateSpec};
use vfleet_plan::{Disruption, HostFacts, LinkKind, PfFacts, plan_node};

use super::machine::{expect, machine, pf, rdma, steps, to_vfio, two};

const OLD: [u8; 8] = [2, 0, 0, 0, 0, 0, 0, 9];
const ZERO: [u8; 8] = [0; 8];
const FILE: &str =
    r#"[{"pciAddress": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:0a", "02:00:00:00:00:00:00:0b"]}]"#;
const SET_A: &str = "set 0000:3b:00.0 vf 0 guid 02:00:00:00:00:00:00:0a";
const BIND_0: &str = "bind 0000:3b:00.0 vf 0 to the kernel driver";

/// Returns a PF whose VF 1 has the GUID of the file; VF 0 has `admin` on the PF and `device` on its RDMA device.
fn infiniband(admin: Option<[u8; 8]>, device: Option<[u8; 8]>) -> PfFacts {
    let mut pf = pf(2);
    pf.rdma = Some(rdma([0x0c, 0, 0, 0, 0, 0, 0, 1]));
    let links = pf.vfs.iter_mut().map(|vf| &mut vf.link).chain([&mut pf.link]);
    links.flatten().for_each(|link| link.kind = LinkKind::Infiniband);
    let [first, second] = pf.vfs.as_mut_slice() else { unreachable!() };
    (first.admin_mac, second.admin_mac) = (None, None);
    first.admin_guid = admin.map(Guid);
    first.rdma = device.map(rdma);
    second.admin_guid = Some(Guid([2, 0, 0, 0, 0, 0, 0, 0xb]));
    second.rdma = Some(rdma([2, 0, 0, 0, 0, 0, 0, 0xb]));
    pf
}

fn with_file(pf: PfFacts) -> HostFacts {
    HostFacts { guid_file: Some(FILE.to_owned()), ..machine(pf) }
}

fn desired() -> SriovNetworkNodeStateSpec {
    two("isRdma: true")
}

#[test]
fn a_vf_with_another_guid_gets_the_one_of_the_file() {
    let pf = infiniband(Some(OLD), Some(OLD));
    expect(with_file(pf), None, &desired(), &[SET_A, BIND_0], Disruption::Vf);
}

#[test]
fn a_vf_that_a_pod_holds_keeps_the_guid_that_its_cni_plugin_gave_it() {
    let mut held = infiniband(Some(OLD), Some(OLD));
    held.vfs[0].link = None;
    expect(with_file(held.clone()), None, &desired(), &[], Disruption::None);
    // The RDMA device is in the pod too.
    held.vfs[0].rdma = None;
    expect(with_file(held), None, &desired(), &[], Disruption::None);
}

#[test]
fn a_vf_without_a_guid_is_taken_from_its_pod_if_the_file_has_one() {
    let mut held = infiniband(Some(ZERO), Some(ZERO));
    held.vfs[0].link = None;
    expect(with_file(held), None, &desired(), &[SET_A, BIND_0], Disruption::Drain);
}

#[test]
fn a_guid_that_has_not_taken_effect_causes_a_rebind() {
    let pf = infiniband(Some([2, 0, 0, 0, 0, 0, 0, 0xa]), Some(OLD));
    expect(with_file(pf), None, &desired(), &[BIND_0], Disruption::Vf);
}

#[test]
fn the_rdma_device_counts_if_the_kernel_does_not_report_the_guid() {
    expect(with_file(infiniband(None, Some(OLD))), None, &desired(), &[SET_A, BIND_0], Disruption::Vf);
    expect(with_file(infiniband(None, None)), None, &desired(), &[], Disruption::None);
}

#[test]
fn without_a_file_a_vf_keeps_its_guid() {
    expect(machine(infiniband(Some(OLD), Some(OLD))), None, &desired(), &[], Disruption::None);
}

#[test]
fn a_vf_without_a_guid_gets_one_unless_a_pod_holds_it() {
    let pf = infiniband(Some(ZERO), Some(ZERO));
    let plan = plan_node(&desired(), &machine(pf.clone()));
    let found = steps(&plan);
    assert!(found.len() == 2 && found[0].starts_with("set 0000:3b:00.0 vf 0 guid "), "{found:?}");
    assert_eq!((found[1].as_str(), plan.disruption()), (BIND_0, Disruption::Vf));
    let mut held = pf;
    held.vfs[0].link = None;
    expect(machine(held), None, &desired(), &[], Disruption::None);
}

#[test]
fn a_vf_whose_rdma_device_has_no_guid_is_only_rebound() {
    expect(machine(infiniband(Some(OLD), Some(ZERO))), None, &desired(), &[BIND_0], Disruption::Vf);
}

#[test]
fn a_vf_that_a_program_may_hold_keeps_its_guid_unless_it_has_none() {
    let mut pf = infiniband(Some(OLD), None);
    pf.vfs.iter_mut().for_each(to_vfio);
    expect(with_file(pf.clone()), None, &two("deviceType: vfio-pci"), &[], Disruption::None);
    pf.vfs[0].admin_guid = Some(Guid(ZERO));
    let steps = [SET_A, "bind 0000:3b:00.0 vf 0 to vfio-pci"];
    expect(with_file(pf), None, &two("deviceType: vfio-pci"), &steps, Disruption::Drain);
}

#[test]
fn a_vf_that_changes_its_driver_gets_the_guid_of_the_file_with_it() {
    let mut pf = infiniband(Some(OLD), None);
    to_vfio(&mut pf.vfs[0]);
    expect(with_file(pf), None, &desired(), &[SET_A, BIND_0], Disruption::Drain);
}

#[test]
fn an_entry_whose_pf_cannot_be_read_is_a_problem_of_the_node() {
    let facts =
        |file: String| HostFacts { guid_file: Some(file), ..machine(infiniband(Some(OLD), Some(OLD))) };
    let bad = r#"{"pciAddress": "3b:00.0", "guids": ["0x1"]}"#;
    let good = FILE.trim_matches(['[', ']']);
    let after = plan_node(&desired(), &facts(format!("[{good}, {bad}]")));
    assert_eq!(after.problems.iter().map(|problem| problem.pf).collect::<Vec<_>>(), [None]);
    assert_eq!(steps(&after), [SET_A, BIND_0], "its entry is the first");
    let before = plan_node(&desired(), &facts(format!("[{bad}, {good}]")));
    let pfs: Vec<_> = before.problems.iter().map(|problem| problem.pf.map(|pf| pf.to_string())).collect();
    assert_eq!((pfs, before.steps.len()), (vec![None, Some("0000:3b:00.0".to_owned())], 0));
    let ethernet = HostFacts { guid_file: Some(format!("[{bad}]")), ..machine(pf(2)) };
    assert_eq!(plan_node(&two(""), &ethernet).problems, [], "no PF needs the file");
}

#[test]
fn an_rdma_device_on_ethernet_without_a_guid_is_rebound() {
    let mut pf = pf(2);
    pf.vfs[0].rdma = Some(rdma(ZERO));
    pf.vfs[1].rdma = Some(rdma(OLD));
    expect(machine(pf.clone()), None, &two("isRdma: true"), &[BIND_0], Disruption::Vf);
    expect(machine(pf.clone()), None, &two("isRdma: false"), &[], Disruption::None);
    pf.vfs[0].link = None;
    expect(machine(pf), None, &two("isRdma: true"), &[], Disruption::None);
}
