//! ADD of the plugin `ovs`.

use crate::cni::attachment::{AddContext, AddPlan, PodNamespace, open_pod, require_device};
use crate::cni::config::{OvsConfig, SriovConfig};
use crate::cni::facts::{AttachmentFacts, OvsSwitchBridge, SwitchFacts, SwitchPort};
use crate::cni::journal::{AttachmentKey, DeviceChanges, OvsChanges, OvsLink, PodIdentity};
use crate::cni::protocol::CniError;
use crate::cni::protocol::result::ResultInterface;
use crate::cni::representor;
use crate::cni::sriov::plan_vf;
use crate::cni::step::{CniStep, SwitchStep};
use crate::prelude::*;

use super::veth::choose_ends;
use super::{bridge, plan_stale_ports, port, require_running, vdpa};

/// MTU of a veth pair that is not configured.
const VETH_MTU: u32 = 1500;

/// Plan of an attachment to Open vSwitch.
#[derive(Clone, Debug)]
struct PlannedOvs {
    /// Steps.
    steps: Vec<CniStep>,
    /// Interface of the result on the host, and the one in the pod.
    interfaces: [ResultInterface; 2],
    /// Changes for the journal.
    changes: OvsChanges,
}

/// Attachment that is planned.
struct Attempt<'a> {
    config: &'a OvsConfig,
    key: &'a AttachmentKey,
    pod: PodNamespace<'a>,
    identity: Option<&'a PodIdentity>,
    facts: &'a AttachmentFacts,
    switch: &'a SwitchFacts,
    bridges: &'a [OvsSwitchBridge],
}

/// Plans an ADD: by a veth pair, a VF or a vDPA device.
pub fn plan_add(
    config: &OvsConfig,
    context: AddContext<'_>,
    facts: &AttachmentFacts,
) -> Result<AddPlan, CniError> {
    let pod = open_pod(facts)?;
    let no_switch = SwitchFacts::default();
    let switch = facts.switch.as_ref().unwrap_or(&no_switch);
    let bridges = require_running(&config.socket, switch)?;
    let (key, identity) = (&context.key, context.pod.as_ref());
    let attempt = Attempt { config, key, pod, identity, facts, switch, bridges };
    let planned = match config.device {
        None => attempt.plan_veth()?,
        Some(_) if vdpa::is_requested(switch)? => attempt.plan_vdpa()?,
        Some(_) => attempt.plan_vf()?,
    };
    let stale = plan_stale_ports(&config.socket, bridges, &switch.peers, &facts.host_names);
    let mut steps: Vec<CniStep> = stale.into_iter().map(CniStep::from).collect();
    steps.extend(planned.steps);
    let mut unique: Vec<CniStep> = Vec::with_capacity(steps.len());
    for step in steps {
        // The port of the representor may be one of those that are left over.
        if !unique.contains(&step) {
            unique.push(step);
        }
    }
    let is_veth = matches!(planned.changes.link, OvsLink::Veth { .. });
    let await_link = SwitchStep::AwaitOvsLink {
        socket: config.socket.clone(),
        name: planned.interfaces[0].name.clone(),
        limit: config.link_limit,
    };
    let changes = DeviceChanges::Ovs(planned.changes);
    let has_interface = changes.has_ethernet_interface();
    let journal = context.journal(&pod, changes);
    Ok(AddPlan {
        before_addresses: vec![await_link.into()],
        mac_follows_address: is_veth && config.mac.is_none(),
        ..AddPlan::new(journal, unique, planned.interfaces.into(), has_interface)
    })
}

impl Attempt<'_> {
    fn plan_veth(&self) -> Result<PlannedOvs, CniError> {
        let Self { config, key, pod, .. } = self;
        pod.check_name(&key.interface)?;
        let bridge = bridge::choose(config, self.bridges, self.switch)?;
        let is_taken =
            |name: &str| self.facts.host_names.contains(name) || port::find(name, self.bridges).is_some();
        let mut ends = choose_ends(&key.container_id, &key.interface, is_taken);
        ends.mac = config.mac.unwrap_or(ends.mac);
        let mtu = config.mtu.unwrap_or(VETH_MTU);
        let namespace = pod.namespace.clone();
        let create = SwitchStep::CreateVeth {
            host_name: ends.host_name.clone(),
            host_mac: ends.host_mac,
            namespace: namespace.clone(),
            name: key.interface.clone(),
            mac: ends.mac,
            mtu,
        };
        let set_up = CniStep::SetUpInPod { namespace, name: key.interface.clone(), mtu: None, mac: None };
        let steps = vec![
            create.into(),
            set_up,
            self.add_port(bridge, &ends.host_name),
            SwitchStep::SetHostInterfaceUp { name: ends.host_name.clone() }.into(),
        ];
        let host = host_interface(&ends.host_name, Some(ends.host_mac.to_string()), mtu);
        let in_pod = ResultInterface {
            name: key.interface.clone(),
            mac: Some(ends.mac.to_string()),
            mtu: Some(mtu),
            sandbox: Some(pod.namespace.path.clone()),
            ..ResultInterface::default()
        };
        let link = OvsLink::Veth { host_mac: Some(ends.host_mac) };
        Ok(PlannedOvs {
            steps,
            interfaces: [host, in_pod],
            changes: self.changes(bridge, &ends.host_name, link),
        })
    }

    fn plan_vf(&self) -> Result<PlannedOvs, CniError> {
        let Self { config, key, facts, .. } = self;
        let device = require_device(facts)?;
        let is_for_userspace = device.is_for_userspace();
        let mtu_of_vf = config.mtu.filter(|_| !is_for_userspace);
        let vf_config = SriovConfig::of_mac_and_mtu(device.address, config.mac, mtu_of_vf);
        let planned = plan_vf(&vf_config, key, &self.pod, facts)?;
        let vf = planned.changes.vf;
        let representor = representor::require_representor(vf, device, self.switch)?;
        representor::check_mtu(config.mtu, representor)?;
        let bridge = bridge::choose(config, self.bridges, self.switch)?;

        let mut steps = self.replace_port(representor)?;
        steps.extend(representor::configure(vf, representor, config.mtu, false).map(CniStep::from));
        steps.extend(planned.steps);
        steps.push(self.add_port(bridge, &representor.name));
        steps.extend(representor::configure(vf, representor, None, true).map(CniStep::from));
        let mtu = config.mtu.unwrap_or(representor.mtu);
        let mut in_pod = planned.interface;
        if is_for_userspace {
            in_pod.mtu = Some(mtu);
        }
        let host = host_interface(&representor.name, representor.mac.map(|mac| mac.to_string()), mtu);
        let link =
            OvsLink::Vf { vf: planned.changes, representor: representor::record(representor, config.mtu) };
        let changes = self.changes(bridge, &representor.name, link);
        Ok(PlannedOvs { steps, interfaces: [host, in_pod], changes })
    }

    fn plan_vdpa(&self) -> Result<PlannedOvs, CniError> {
        let Self { config, key, facts, switch, .. } = self;
        let planned = vdpa::plan_vdpa(config, key, &self.pod, facts, switch)?;
        let vf = planned.changes.vf;
        let representor = representor::require_representor(vf, require_device(facts)?, switch)?;
        representor::check_mtu(config.mtu, representor)?;
        let bridge = bridge::choose(config, self.bridges, switch)?;

        let mut steps = self.replace_port(representor)?;
        steps.extend(representor::configure(vf, representor, config.mtu, false).map(CniStep::from));
        steps.extend(planned.steps);
        steps.push(self.add_port(bridge, &representor.name));
        steps.extend(representor::configure(vf, representor, None, true).map(CniStep::from));
        let mtu = config.mtu.unwrap_or(representor.mtu);
        let host = host_interface(&representor.name, representor.mac.map(|mac| mac.to_string()), mtu);
        let link = OvsLink::Vdpa {
            device: planned.changes,
            representor: representor::record(representor, config.mtu),
        };
        let changes = self.changes(bridge, &representor.name, link);
        Ok(PlannedOvs { steps, interfaces: [host, planned.interface], changes })
    }

    fn replace_port(&self, representor: &SwitchPort) -> Result<Vec<CniStep>, CniError> {
        let step = port::replace(self.config, &representor.name, self.bridges)?;
        Ok(step.into_iter().map(CniStep::from).collect())
    }

    fn add_port(&self, bridge: &OvsSwitchBridge, name: &str) -> CniStep {
        let port = port::describe(self.config, name, self.ids());
        SwitchStep::AddOvsPort { socket: self.config.socket.clone(), bridge: bridge.name.clone(), port }
            .into()
    }

    fn changes(&self, bridge: &OvsSwitchBridge, port: &str, link: OvsLink) -> OvsChanges {
        OvsChanges {
            socket: self.config.socket.clone(),
            bridge: bridge.name.clone(),
            port: Some(port.to_owned()),
            port_ids: self.ids(),
            vlans: self.config.vlans.clone(),
            link,
        }
    }

    fn ids(&self) -> BTreeMap<String, String> {
        port::ids(&self.pod.namespace.path, &self.key.interface, self.identity)
    }
}

fn host_interface(name: &str, mac: Option<String>, mtu: u32) -> ResultInterface {
    ResultInterface { name: name.to_owned(), mac, mtu: Some(mtu), ..ResultInterface::default() }
}
