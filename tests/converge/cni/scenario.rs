//! Random machines and networks.

use proptest::prelude::*;
use serde_json::{Value, json};
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};
use vfleet_host::SimHost;
use vfleet_host::sim::{CardLinkKind, EswitchRule, Kernel, Machine, MachinePf, VfRules};
use vfleet_plan::EswitchMode;
use vfleet_plan::cni::facts::{VfSettings, VfVlan, VlanProtocol};

use super::network::chain;
use super::switch::{SwitchBefore, networks_with_all_settings, switch_before, switch_chain};

/// MAC that nobody but the VF has chosen.
const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0xbb, 0, 1]);
/// Plugin for IP addresses.
pub(crate) const IPAM: &str = "host-local";

/// Machine with a VF, and a network for it.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of a machine")]
pub(crate) struct CniScenario {
    pub(crate) card: Card,
    pub(crate) pf_is_up: bool,
    pub(crate) is_exclusive: bool,
    pub(crate) hides_identities: bool,
    pub(crate) returns_late: bool,
    pub(crate) interface_follows_rdma: bool,
    pub(crate) vf: VfBefore,
    /// Software bridges, and an eswitch in switchdev mode.
    pub(crate) switch: Option<SwitchBefore>,
    /// Plugins of the network.
    pub(crate) chain: Vec<Value>,
}

/// Kind of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    /// Card of the lab, whose driver refuses some settings and own MACs.
    Igb,
    /// Card whose driver supports everything, with RDMA.
    Mellanox,
    /// Card whose VFs take MACs over at once.
    Intel,
    Infiniband,
    /// Card with an eswitch, whose driver supports everything.
    Switch,
}

/// State of the VF before.
#[derive(Clone, Debug)]
pub(crate) struct VfBefore {
    pub(crate) is_for_userspace: bool,
    pub(crate) settings: VfSettings,
    /// The interface has a MAC of its own, if the PF allows it: not the administrative one.
    pub(crate) has_own_mac: bool,
    pub(crate) mtu: u32,
    pub(crate) alt_names: Vec<&'static str>,
    pub(crate) guid: Option<Guid>,
}

impl CniScenario {
    /// Returns the lab's card with a network that changes everything that the card supports.
    pub(crate) fn with_all_settings() -> Self {
        let config = json!({
            "cniVersion": "1.0.0", "name": "net-a", "type": "sriov", "deviceID": device().to_string(),
            "vlan": 100, "vlanQoS": 3, "spoofchk": "off", "trust": "on", "max_tx_rate": 200, "mtu": 1300,
            "mac": "02:00:00:aa:00:01", "ipam": {"type": IPAM},
        });
        Self {
            card: Card::Igb,
            pf_is_up: true,
            is_exclusive: false,
            hides_identities: false,
            returns_late: false,
            interface_follows_rdma: false,
            vf: VfBefore {
                is_for_userspace: false,
                settings: VfSettings::default(),
                has_own_mac: false,
                mtu: 1400,
                alt_names: vec!["net1", "eth0", "vf-of-node"],
                guid: Some(Guid([2, 0, 0, 0, 0, 0, 0, 9])),
            },
            switch: None,
            chain: vec![config],
        }
    }

    /// Returns an InfiniBand card with a network that changes everything.
    pub(crate) fn with_all_infiniband_settings() -> Self {
        let config = json!({
            "cniVersion": "1.0.0", "name": "net-a", "type": "ib-sriov", "deviceID": device().to_string(),
            "link_state": "enable", "rdmaIsolation": true, "ipam": {"type": IPAM},
            "runtimeConfig": {"infinibandGUID": "02:00:00:00:00:aa:00:02"},
        });
        let chain = vec![config];
        Self { card: Card::Infiniband, is_exclusive: true, chain, ..Self::with_all_settings() }
    }

    /// Returns machines with bridges, and networks that change everything.
    pub(crate) fn all_with_bridges() -> Vec<Self> {
        networks_with_all_settings().into_iter().map(Self::with_bridges).collect()
    }

    /// Returns a machine with bridges and a network for them.
    pub(crate) fn with_bridges((switch, chain): (SwitchBefore, Vec<Value>)) -> Self {
        Self { card: Card::Switch, switch: Some(switch), chain, ..Self::with_all_settings() }
    }

    /// Returns a card that applies an administrative MAC at once, with a network that changes the one of a VF whose interface
    /// has another MAC.
    pub(crate) fn with_own_mac() -> Self {
        let mut scenario = Self { card: Card::Intel, ..Self::with_all_settings() };
        let (mac, trust) = (Some(MacAddr([2, 0, 0, 0xee, 0, 1])), Some(true));
        scenario.vf.settings = VfSettings { mac, trust, ..VfSettings::default() };
        scenario.vf.has_own_mac = true;
        scenario
    }

    /// Creates the machine.
    pub(crate) fn prepare(&self) -> SimHost {
        let mut machine = Machine::lab();
        let card = machine.pfs[0].clone();
        machine.pfs[0] = self.card.describe(MachinePf { num_vfs: 3, up: self.pf_is_up, ..card });
        machine.kernel.rdma_mode = self.is_exclusive.then_some(RdmaMode::Exclusive);
        let host = SimHost::new(&machine, "cni").expect("a possible machine");
        host.install_ipam(IPAM);
        host.modify_kernel(|kernel| {
            kernel.namespaces.hides_identities = self.hides_identities;
            kernel.namespaces.returns_late = self.returns_late;
            kernel.namespaces.interface_follows_rdma = self.interface_follows_rdma;
            self.configure_vf(kernel);
        });
        host
    }

    /// Creates the VFs, as the agent does after a boot.
    pub(crate) fn create_vfs(&self, kernel: &mut Kernel) {
        kernel.set_num_vfs(vf_ref().pf, 3).expect("VFs");
        self.configure_vf(kernel);
    }

    fn configure_vf(&self, kernel: &mut Kernel) {
        let (vf, device) = (vf_ref(), device());
        if let Some(guid) = self.vf.guid.filter(|_| self.card == Card::Infiniband) {
            kernel.set_vf_guid(vf, guid).expect("a GUID");
        }
        // Refused by some drivers.
        let _ = kernel.set_vf_settings(vf, &self.vf.settings);
        let driver = self.vf.is_for_userspace.then_some("vfio-pci");
        kernel.set_override(vf, driver).expect("a VF");
        kernel.unbind(vf).expect("a driver");
        kernel.probe(vf).expect("a driver");
        kernel.set_override(vf, None).expect("a VF");
        if self.vf.has_own_mac && self.card != Card::Infiniband {
            // Refused by a PF that has chosen another one.
            let _ = kernel.set_own_mac(device, OWN_MAC);
        }
        if let Some(link) = kernel.device_link_mut(device) {
            link.alt_names = self.vf.alt_names.iter().map(|name| (*name).to_owned()).collect();
            link.mtu = if self.card == Card::Infiniband { link.mtu } else { self.vf.mtu };
        }
        if let Some(switch) = &self.switch {
            switch.configure(kernel);
        }
    }
}

/// Returns the VF.
pub(crate) fn vf_ref() -> VfRef {
    VfRef { pf: Machine::lab().pfs[0].address, index: 1 }
}

/// Returns the address of the VF.
pub(crate) fn device() -> PciAddress {
    Machine::lab().pfs[0].vf_address(1).expect("a VF")
}

impl Card {
    fn describe(self, card: MachinePf) -> MachinePf {
        let mellanox = |card| MachinePf {
            driver: Some("mlx5_core".to_owned()),
            vf_driver: "mlx5_core".to_owned(),
            rdma: true,
            numbers_rdma: true,
            ..card
        };
        match self {
            Self::Igb => card,
            Self::Mellanox => mellanox(card),
            Self::Intel => MachinePf {
                driver: Some("ice".to_owned()),
                vf_driver: "iavf".to_owned(),
                vf_rules: Some(VfRules {
                    takes_mac_at_once: true,
                    keeps_admin_mac: true,
                    ..VfRules::default()
                }),
                ..card
            },
            Self::Switch => MachinePf {
                eswitch: Some(EswitchMode::Legacy),
                eswitch_rule: EswitchRule::AnyTime,
                rdma: false,
                ..mellanox(card)
            },
            Self::Infiniband => MachinePf { link_kind: CardLinkKind::Infiniband, ..mellanox(card) },
        }
    }
}

/// Returns random scenarios.
pub(crate) fn scenario() -> impl Strategy<Value = CniScenario> {
    let card = prop::sample::select(vec![Card::Igb, Card::Mellanox, Card::Intel, Card::Infiniband]);
    let rarely = || prop::bool::weighted(0.2);
    let switches = (prop::bool::weighted(0.85), any::<bool>(), rarely(), rarely(), any::<bool>());
    (card, switches, vf_before()).prop_flat_map(|(card, switches, vf)| {
        let (pf_is_up, is_exclusive, hides_identities, returns_late, interface_follows_rdma) = switches;
        // A kernel that has the one does not lack the other.
        let hides_identities = hides_identities && !interface_follows_rdma;
        chain(card, vf.is_for_userspace, is_exclusive).prop_map(move |chain| CniScenario {
            card,
            // VFs of ice do not depend on the link of the PF, as opposed to those of the model.
            pf_is_up: pf_is_up || card == Card::Intel,
            is_exclusive,
            hides_identities,
            returns_late,
            interface_follows_rdma,
            vf: vf.clone(),
            switch: None,
            chain,
        })
    })
}

/// Returns random scenarios with software bridges.
pub(crate) fn switch_scenario() -> impl Strategy<Value = CniScenario> {
    (switch_before(), prop::bool::weighted(0.2), prop::bool::weighted(0.2), vf_before()).prop_flat_map(
        |(switch, hides_identities, returns_late, vf)| {
            switch_chain(&switch).prop_map(move |chain| CniScenario {
                card: Card::Switch,
                pf_is_up: true,
                is_exclusive: false,
                hides_identities,
                returns_late,
                interface_follows_rdma: false,
                vf: vf.clone(),
                switch: Some(switch.clone()),
                chain,
            })
        },
    )
}

fn vf_before() -> impl Strategy<Value = VfBefore> {
    let alt_names = prop::sample::subsequence(vec!["net1", "eth0", "vf-of-node"], 0..=3);
    let guid = prop::option::weighted(0.8, Just(Guid([2, 0, 0, 0, 0, 0, 0, 9])));
    let mtu = prop::sample::select(vec![1500, 1400, 9000]);
    let has_own_mac = prop::bool::weighted(0.3);
    (prop::bool::weighted(0.2), settings_before(), has_own_mac, mtu, alt_names, guid).prop_map(
        |(is_for_userspace, settings, has_own_mac, mtu, alt_names, guid)| VfBefore {
            is_for_userspace,
            settings,
            has_own_mac,
            mtu,
            alt_names,
            guid,
        },
    )
}

fn settings_before() -> impl Strategy<Value = VfSettings> {
    let vlan = VfVlan { id: 7, qos: 1, protocol: VlanProtocol::Ieee8021q };
    let switch = || prop::option::weighted(0.4, any::<bool>());
    let mac = prop::option::weighted(0.4, Just(MacAddr([2, 0, 0, 0xee, 0, 1])));
    let rate = prop::option::weighted(0.3, Just(300));
    (prop::option::weighted(0.4, Just(vlan)), switch(), switch(), mac, rate).prop_map(
        |(vlan, spoof_check, trust, mac, rate)| VfSettings {
            vlan,
            spoof_check,
            trust,
            mac,
            min_tx_rate: rate.map(|_| 0),
            max_tx_rate: rate,
            link_state: None,
            ..VfSettings::default()
        },
    )
}
