//! Host facts and specs for tests.

use vfleet_api::{Guid, MacAddr, PciAddress, SriovNetworkNodeStateSpec};
use vfleet_plan::{
    Disruption, EswitchMode, Fact, HostFacts, HostUse, KernelFacts, LinkFacts, LinkKind, ModuleState,
    OriginalState, PfFacts, Plan, RdmaFacts, Record, VfFacts, modules, plan_node,
};

pub(crate) const PF: &str = "0000:3b:00.0";

pub(crate) fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// Returns a spec with one PF; `rest` is YAML without address and name.
pub(crate) fn spec(rest: &str) -> SriovNetworkNodeStateSpec {
    serde_saphyr::from_str(&format!("interfaces: [{{pciAddress: '{PF}', name: ens1f0, {rest}}}]")).unwrap()
}

/// Returns a spec with two VFs for policy p.
pub(crate) fn two(rest: &str) -> SriovNetworkNodeStateSpec {
    spec(&format!("numVfs: 2, vfGroups: [{{vfRange: 0-1, policyName: p, {rest}}}]"))
}

pub(crate) fn nothing() -> SriovNetworkNodeStateSpec {
    SriovNetworkNodeStateSpec { interfaces: Some(Vec::new()), ..Default::default() }
}

pub(crate) fn link(name: &str, last: u8) -> LinkFacts {
    LinkFacts {
        name: name.to_owned(),
        alt_names: Vec::new(),
        is_named: true,
        kind: LinkKind::Ethernet,
        mac: Some(MacAddr([2, 0, 0, 0, 0, last])),
        permanent_mac: None,
        mtu: 1500,
        max_mtu: None,
        admin_up: true,
        has_carrier: true,
        speed: None,
        switch_port: None,
        master: None,
        host_use: None,
        possible_use: None,
    }
}

pub(crate) fn pf(vfs: u16) -> PfFacts {
    PfFacts {
        address: address(PF),
        vendor: 0x15b3,
        device: 0x101d,
        driver: Some("mlx5_core".to_owned()),
        numa_node: None,
        total_vfs: 8,
        drivers_autoprobe: true,
        eswitch: Fact::Value(EswitchMode::Legacy),
        tc_offload: None,
        rdma: None,
        firmware: None,
        is_lone_vf: false,
        net_filter: vfleet_plan::Fact::None,
        link: Some(link("ens1f0", 0xff)),
        vfs: (0..vfs).map(vf).collect(),
    }
}

/// Returns a VF with the kernel driver and its own address.
pub(crate) fn vf(index: u16) -> VfFacts {
    let number = u8::try_from(index).unwrap();
    let link = link(&format!("ens1f0v{index}"), number);
    VfFacts {
        index,
        address: PciAddress::new(0, 0x3b, 1, number).unwrap(),
        vendor: 0x15b3,
        device: 0x101e,
        driver: Some("mlx5_core".to_owned()),
        admin_mac: link.mac,
        admin_guid: None,
        rdma: None,
        vdpa: None,
        representor: None,
        link: Some(link),
        attachment: vfleet_plan::Fact::None,
    }
}

pub(crate) fn machine(pf: PfFacts) -> HostFacts {
    let modules = modules::KNOWN_MODULES.map(|name| (name.to_owned(), ModuleState::Loaded));
    HostFacts {
        pfs: vec![pf],
        kernel: KernelFacts { modules: modules.into(), has_iommu: true, ..KernelFacts::default() },
        ..HostFacts::default()
    }
}

/// Returns the facts with the record of an applied `spec`.
pub(crate) fn recorded(facts: HostFacts, spec: &SriovNetworkNodeStateSpec) -> HostFacts {
    let interface = spec.interfaces.as_ref().unwrap()[0].clone();
    let original =
        OriginalState { mtu: Some(1500), eswitch: facts.pfs[0].eswitch.value(), ..OriginalState::default() };
    let record = Record { original, ..Record::taken_over(address(PF), interface) };
    HostFacts { records: vec![record], ..facts }
}

pub(crate) fn use_vf(pf: &mut PfFacts, index: usize) {
    pf.vfs[index].link.as_mut().unwrap().host_use = Some(HostUse::DefaultRoute);
}

/// Binds the VF to a userspace driver.
pub(crate) fn to_vfio(vf: &mut VfFacts) {
    vf.driver = Some("vfio-pci".to_owned());
    vf.link = None;
}

pub(crate) fn rdma(guid: [u8; 8]) -> RdmaFacts {
    RdmaFacts { device: "mlx5_7".to_owned(), node_guid: Guid(guid), port_guid: None }
}

/// Returns the steps of PFs and VFs, without records, files and udev.
pub(crate) fn steps(plan: &Plan) -> Vec<String> {
    let texts = plan.steps.iter().map(|planned| planned.step.to_string());
    let others = ["write", "trigger udev"];
    texts.filter(|text| !others.iter().any(|start| text.starts_with(start))).collect()
}

pub(crate) fn reasons(plan: &Plan) -> Vec<&'static str> {
    plan.problems.iter().map(|problem| problem.cause.reason()).collect()
}

/// Asserts steps and disruption of the plan for `desired` on a machine that had the desired state `before`.
#[track_caller]
pub(crate) fn expect(
    facts: HostFacts,
    before: Option<&SriovNetworkNodeStateSpec>,
    desired: &SriovNetworkNodeStateSpec,
    expected: &[&str],
    disruption: Disruption,
) {
    let facts = match before {
        Some(before) => recorded(facts, before),
        None => facts,
    };
    let plan = plan_node(desired, &facts);
    assert_eq!(steps(&plan), expected, "{plan:#?}");
    assert_eq!(plan.disruption(), disruption, "{plan:#?}");
    assert_eq!(reasons(&plan), Vec::<&str>::new(), "{plan:#?}");
}
