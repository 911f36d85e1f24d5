//! VFs that CNI plugins have attached to pods.

use vfleet_api::{Guid, MacAddr, SriovNetworkNodeStateSpec};
use vfleet_plan::{
    Disruption, Fact, HostFacts, LinkKind, PfFacts, VfAttachment, VfFacts, VfHolder, plan_node,
};

use super::machine::{expect, machine, pf, rdma, recorded, spec, steps, to_vfio, two};

const BIND_0: &str = "bind 0000:3b:00.0 vf 0 to the kernel driver";
const MTU_0: &str = "set 0000:3b:00.0 vf 0 mtu 1400";

fn attach(vf: &mut VfFacts) {
    vf.attachment = Fact::Value(VfAttachment::Journal);
}

/// Returns a PF with two VFs as `kernel()` wants them, of which the first one is attached and `happens` to it.
fn attached(happens: impl FnOnce(&mut VfFacts)) -> PfFacts {
    let mut pf = pf(2);
    for vf in &mut pf.vfs {
        vf.link.as_mut().unwrap().mtu = 1400;
    }
    attach(&mut pf.vfs[0]);
    happens(&mut pf.vfs[0]);
    pf
}

fn kernel() -> SriovNetworkNodeStateSpec {
    two("deviceType: netdevice, mtu: 1400")
}

fn vfio() -> SriovNetworkNodeStateSpec {
    two("deviceType: vfio-pci")
}

/// Name and effect of a change of a VF.
type VfDisturbance = (&'static str, fn(&mut VfFacts));

/// Changes of VF 0 by a CNI plugin or the kernel while the attachment lives.
const CHANGES: [VfDisturbance; 5] = [
    ("it lost its driver", |vf| (vf.driver, vf.link) = (None, None)),
    ("it has another MTU on the host", |vf| vf.link.as_mut().unwrap().mtu = 1500),
    ("it is bound to vfio-pci", to_vfio),
    ("it has no administrative MAC", |vf| vf.admin_mac = Some(MacAddr::ZERO)),
    ("it is in the pod", |vf| vf.link = None),
];

#[test]
fn an_attached_vf_is_not_repaired() {
    for (change, happens) in CHANGES {
        let facts = recorded(machine(attached(happens)), &kernel());
        let plan = plan_node(&kernel(), &facts);
        assert!(steps(&plan).is_empty() && plan.problems.is_empty(), "{change}: {plan:#?}");
    }
}

#[test]
fn a_vf_is_repaired_after_its_pod_released_it() {
    for (change, happens) in &CHANGES[..2] {
        let mut pf = attached(happens);
        pf.vfs[0].attachment = Fact::None;
        let plan = plan_node(&kernel(), &recorded(machine(pf), &kernel()));
        assert!(!steps(&plan).is_empty() && plan.disruption() == Disruption::Vf, "{change}: {plan:#?}");
    }
}

#[test]
fn a_change_of_an_attached_vfio_vf_asks_for_a_drain() {
    let mut pf = attached(to_vfio);
    to_vfio(&mut pf.vfs[1]);
    pf.vfs[1].driver = None;
    expect(
        machine(pf),
        Some(&vfio()),
        &kernel(),
        &[BIND_0, MTU_0, "bind 0000:3b:00.0 vf 1 to the kernel driver", "set 0000:3b:00.0 vf 1 mtu 1400"],
        Disruption::Drain,
    );
}

#[test]
fn a_change_of_an_attached_vf_asks_for_a_drain_wherever_its_interface_is() {
    // Between the journal and the move of the interface, and after the namespace was deleted.
    expect(
        machine(attached(|vf| vf.link.as_mut().unwrap().mtu = 1500)),
        Some(&vfio()),
        &kernel(),
        &[MTU_0],
        Disruption::Drain,
    );
    let unbound = attached(|vf| (vf.driver, vf.link) = (None, None));
    expect(machine(unbound), Some(&vfio()), &kernel(), &[BIND_0, MTU_0], Disruption::Drain);
}

#[test]
fn a_higher_mtu_of_the_pf_asks_for_a_drain_while_a_vf_is_attached() {
    let desired = spec("numVfs: 2, mtu: 9000, vfGroups: [{vfRange: 0-0, deviceType: netdevice}]");
    let mut free = pf(2);
    let raise = &["set 0000:3b:00.0 mtu 9000"];
    expect(machine(free.clone()), Some(&desired), &desired, raise, Disruption::Pf);
    attach(&mut free.vfs[1]);
    expect(machine(free), Some(&desired), &desired, raise, Disruption::Drain);
}

/// Files that cannot be read do not say that no pod holds the VF.
#[test]
fn a_vf_whose_attachments_are_unknown_is_not_free() {
    let mut pf = attached(|vf| vf.link.as_mut().unwrap().mtu = 1500);
    pf.vfs[0].attachment = Fact::Unknown;
    expect(machine(pf), Some(&kernel()), &kernel(), &[MTU_0], Disruption::Drain);
}

#[test]
fn a_change_that_was_interrupted_is_continued() {
    let mut facts = recorded(machine(attached(|vf| vf.link = None)), &kernel());
    facts.records[0].mtu_changes.insert(0);
    let plan = plan_node(&kernel(), &facts);
    assert_eq!((steps(&plan), plan.disruption()), (vec![MTU_0.to_owned()], Disruption::Drain));
}

#[test]
fn an_attached_infiniband_vf_keeps_the_guid_of_the_pod() {
    let mut pf = pf(1);
    pf.rdma = Some(rdma([0x0c, 0, 0, 0, 0, 0, 0, 1]));
    let vf = &mut pf.vfs[0];
    (vf.admin_mac, vf.admin_guid) = (None, Some(Guid([9; 8])));
    vf.rdma = Some(rdma([9; 8]));
    pf.link.as_mut().unwrap().kind = LinkKind::Infiniband;
    pf.vfs[0].link.as_mut().unwrap().kind = LinkKind::Infiniband;
    attach(&mut pf.vfs[0]);
    let guids = r#"[{"pciAddress": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:0a"]}]"#;
    let facts = HostFacts { guid_file: Some(guids.to_owned()), ..machine(pf) };
    let desired = spec("numVfs: 1, vfGroups: [{vfRange: 0-0, deviceType: netdevice, isRdma: true}]");
    expect(facts, None, &desired, &[], Disruption::None);
}

#[test]
fn an_attached_lone_vf_is_changed_only_after_a_drain_and_never_repaired() {
    let lone = |vf: VfFacts| PfFacts {
        driver: vf.driver.clone(),
        link: vf.link.clone(),
        is_lone_vf: true,
        total_vfs: 1,
        vfs: vec![vf],
        ..pf(0)
    };
    let group =
        |driver: &str| spec(&format!("numVfs: 1, vfGroups: [{{vfRange: 0-0, deviceType: {driver}}}]"));
    let (kernel, vfio) = (group("netdevice"), group("vfio-pci"));
    let unbound = attached(|vf| (vf.driver, vf.link) = (None, None)).vfs.remove(0);
    expect(machine(lone(unbound.clone())), Some(&kernel), &kernel, &[], Disruption::None);
    expect(machine(lone(unbound)), Some(&vfio), &kernel, &[BIND_0], Disruption::Drain);
}

#[test]
fn a_pod_holds_an_attached_vf() {
    let facts = machine(pf(0));
    let holder = |attachment, happens: fn(&mut VfFacts)| {
        let mut vf = attached(happens).vfs.remove(0);
        vf.attachment = attachment;
        VfHolder::of(&vf, &facts)
    };
    let unbound: fn(&mut VfFacts) = |vf| (vf.driver, vf.link) = (None, None);
    let attached = Fact::Value(VfAttachment::GoAllocation);
    for happens in [to_vfio, unbound, |_: &mut VfFacts| (), |vf: &mut VfFacts| vf.link = None] {
        assert_eq!(holder(attached, happens), VfHolder::Pod);
    }
    assert_eq!(holder(Fact::None, to_vfio), VfHolder::Unknown, "a virtual machine may use it");
    assert_eq!([holder(Fact::None, |_| ()), holder(Fact::None, unbound)], [VfHolder::None; 2]);
    assert_eq!(holder(Fact::Unknown, |_| ()), VfHolder::Unknown);
    assert_eq!(holder(Fact::Unknown, |vf| vf.link = None), VfHolder::Pod);
}
