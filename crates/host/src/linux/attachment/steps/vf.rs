//! Step that applies settings of a VF through its PF.

use vfleet_api::{MacAddr, VfRef};
use vfleet_plan::cni::facts::VfSettings;

use crate::linux::attachment::settle::settle;
use crate::linux::attachment::steps::mac;
use crate::linux::netlink::rtnl::{Rtnl, VfSetting};
use crate::linux::pci;
use crate::linux::root::HostRoot;
use crate::{HostError, format_error_chain};

/// Errors of a busy driver: EAGAIN, EBUSY.
const BUSY: [i32; 2] = [11, 16];
/// Errors of a driver that does not take a MAC address back: EPERM, EINVAL, EOPNOTSUPP, EADDRNOTAVAIL.
const KEEPS_MAC: [i32; 4] = [1, 22, 95, 99];

/// Applies settings of a VF, in one request if the kernel accepts it. If not, the error names the refused setting.
pub(super) fn set(root: &HostRoot, vf: VfRef, settings: &VfSettings) -> Result<(), HostError> {
    pci::require_vf(root, vf)?;
    let mut pf = PfInterface { index: mac::require_index(root, vf.pf)?, rtnl: Rtnl::open()?, vf };
    let mut changes = pf.complete(settings)?;
    let mut is_sent = changes.is_empty();
    let result = settle(|| {
        if !is_sent {
            pf.send(&mut changes)?;
            is_sent = true;
        }
        if changes.is_empty() { Ok(()) } else { pf.verify(&changes) }
    });
    match result {
        Err(HostError::NotVerified { .. }) => pf.send_in_older_form(&changes),
        result => result,
    }
}

/// Interface of the PF of a VF.
struct PfInterface {
    index: u32,
    rtnl: Rtnl,
    vf: VfRef,
}

impl PfInterface {
    fn read(&mut self) -> Result<VfSettings, HostError> {
        let link = self.rtnl.link(self.index)?;
        let count = link.vfs.len();
        let found = link.vfs.get(&self.vf.index.into()).copied();
        found.ok_or(HostError::VfNotFound { vf: self.vf, count })
    }

    /// Returns the settings in the order in which they are applied. The kernel takes both rates only together, so that
    /// one that does not change is read.
    fn complete(&mut self, settings: &VfSettings) -> Result<Vec<VfSetting>, HostError> {
        let rates = match (settings.min_tx_rate, settings.max_tx_rate) {
            (None, None) => None,
            (Some(min), Some(max)) => Some((min, max)),
            (min, max) => {
                let found = self.read()?;
                let rate = |rate: Option<u32>, found: Option<u32>| rate.or(found).unwrap_or(0);
                Some((rate(min, found.min_tx_rate), rate(max, found.max_tx_rate)))
            }
        };
        Ok(in_order(settings, rates))
    }

    fn change(&mut self, settings: &[VfSetting]) -> Result<(), HostError> {
        let text: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let attempt = format!("set {} of {}", text.join(", "), self.vf);
        self.rtnl.set_vf(self.index, self.vf.index, settings, &attempt)
    }

    /// Sends all settings in one request. If it is refused, sends them one by one: the first error names its setting.
    /// Removes those that the VF keeps from the list.
    fn send(&mut self, settings: &mut Vec<VfSetting>) -> Result<(), HostError> {
        let has_reset = settings.iter().any(is_mac_reset);
        match self.change(settings) {
            Err(error) if !is_busy(&error) && (settings.len() > 1 || has_reset) => {
                let all = settings.clone();
                all.iter().try_for_each(|setting| {
                    self.change(&[*setting]).or_else(|error| self.keep(setting, settings, error))
                })
            }
            result => result,
        }
    }

    /// Accepts that a driver does not take the administrative MAC address of a VF back: the VF keeps the last one. A VF whose
    /// release failed for that could never be attached again.
    fn keep(
        &self,
        setting: &VfSetting,
        settings: &mut Vec<VfSetting>,
        error: HostError,
    ) -> Result<(), HostError> {
        if !is_mac_reset(setting) || !error.errno().is_some_and(|errno| KEEPS_MAC.contains(&errno)) {
            return Err(error);
        }
        let (error, vf) = (format_error_chain(&error), self.vf.to_string());
        tracing::warn!(
            error,
            vf,
            "the driver keeps the administrative MAC address of a VF that had none before"
        );
        settings.retain(|other| other != setting);
        Ok(())
    }

    fn verify(&mut self, settings: &[VfSetting]) -> Result<(), HostError> {
        let found = self.read()?;
        settings.iter().try_for_each(|setting| match counterpart(setting, &found) {
            Some(other) if other != *setting => Err(HostError::NotVerified {
                attempt: format!("set {setting} of {}", self.vf),
                expected: setting.to_string(),
                found: other.to_string(),
            }),
            _ => Ok(()),
        })
    }

    /// Sends those settings again that were not applied, in the form that older kernels take: these ignore other forms.
    fn send_in_older_form(&mut self, settings: &[VfSetting]) -> Result<(), HostError> {
        let found = self.read()?;
        let missing = settings.iter().filter(|setting| !is_applied(setting, &found));
        let older: Vec<VfSetting> = missing.filter_map(|setting| setting.for_older_kernels()).collect();
        older.iter().try_for_each(|setting| self.change(&[*setting]))?;
        settle(|| self.verify(settings))
    }
}

/// Returns whether a setting removes the administrative MAC address.
fn is_mac_reset(setting: &VfSetting) -> bool {
    *setting == VfSetting::Mac(MacAddr::ZERO)
}

fn is_busy(error: &HostError) -> bool {
    error.errno().is_some_and(|errno| BUSY.contains(&errno))
}

/// Returns the settings that change, in the order in which drivers accept them.
fn in_order(settings: &VfSettings, rates: Option<(u32, u32)>) -> Vec<VfSetting> {
    let all = [
        settings.vlan.map(VfSetting::Vlan),
        settings.mac.map(VfSetting::Mac),
        rates.map(|(min, max)| VfSetting::Rates { min, max }),
        settings.spoof_check.map(VfSetting::SpoofCheck),
        settings.trust.map(VfSetting::Trust),
        settings.link_state.map(VfSetting::LinkState),
        settings.node_guid.map(VfSetting::NodeGuid),
        settings.port_guid.map(VfSetting::PortGuid),
    ];
    all.into_iter().flatten().collect()
}

/// Returns the setting of the same kind that a VF has; `None` if the driver does not report it.
fn counterpart(setting: &VfSetting, found: &VfSettings) -> Option<VfSetting> {
    match *setting {
        VfSetting::Vlan(_) => found.vlan.map(VfSetting::Vlan),
        VfSetting::PlainVlan(_) => found.vlan.map(VfSetting::PlainVlan),
        VfSetting::Mac(_) => found.mac.map(VfSetting::Mac),
        VfSetting::Rates { min, max } => {
            let (min, max) = (found.min_tx_rate.unwrap_or(min), found.max_tx_rate.unwrap_or(max));
            Some(VfSetting::Rates { min, max })
        }
        VfSetting::MaxRate(_) => found.max_tx_rate.map(VfSetting::MaxRate),
        VfSetting::SpoofCheck(_) => found.spoof_check.map(VfSetting::SpoofCheck),
        VfSetting::Trust(_) => found.trust.map(VfSetting::Trust),
        VfSetting::LinkState(_) => found.link_state.map(VfSetting::LinkState),
        VfSetting::NodeGuid(_) => found.node_guid.map(VfSetting::NodeGuid),
        VfSetting::PortGuid(_) => found.port_guid.map(VfSetting::PortGuid),
    }
}

/// Returns whether a VF has a setting. A setting that the driver does not report counts as applied.
fn is_applied(setting: &VfSetting, found: &VfSettings) -> bool {
    counterpart(setting, found).is_none_or(|found| found == *setting)
}

#[cfg(test)]
mod tests {
    use vfleet_plan::cni::facts::{LinkState, VfVlan};

    use super::*;
    use crate::linux::test_namespace::{iproute, run_in_namespace, shell};
    use crate::linux::test_tree::TestTree;

    /// A veth interface has no VFs: the kernel checks the form of the request and refuses its first setting.
    #[test]
    #[ignore = "needs the privilege to create network namespaces: for the lab"]
    fn a_refused_setting_is_named() {
        run_in_namespace(|| {
            shell("ip link add pf type veth peer name wire");
            let tree = TestTree::new();
            let pf = "0000:01:00.0";
            tree.add_card(pf, "0x8086\n");
            let device = format!("/sys/bus/pci/devices/{pf}");
            let index = iproute("pf").unwrap()["ifindex"].to_string();
            tree.write(&format!("{device}/net/pf/ifindex"), &index);
            std::os::unix::fs::symlink("../0000:01:10.2", tree.path(&format!("{device}/virtfn1"))).unwrap();
            let vf = VfRef { pf: pf.parse().unwrap(), index: 1 };
            set(tree.root(), vf, &VfSettings::default()).unwrap();
            let trust = VfSettings { trust: Some(true), spoof_check: Some(false), ..VfSettings::default() };
            let error = set(tree.root(), vf, &trust).unwrap_err();
            assert_eq!(error.errno(), Some(95), "{error:?}");
            assert!(
                error.to_string().starts_with("cannot set spoof checking off of 0000:01:00.0 vf 1"),
                "{error}"
            );
            let vlan = VfVlan { id: 100, ..VfVlan::default() };
            let error = set(tree.root(), vf, &VfSettings { vlan: Some(vlan), ..trust }).unwrap_err();
            assert!(error.to_string().contains("set VLAN 100 "), "{}", format_error_chain(&error));
            let no_mac = VfSettings { mac: Some(MacAddr::ZERO), ..VfSettings::default() };
            set(tree.root(), vf, &no_mac).expect("a driver may keep the MAC address");
            let mac = VfSettings { mac: Some(MacAddr([2, 0, 0, 0, 0, 9])), ..VfSettings::default() };
            assert_eq!(set(tree.root(), vf, &mac).unwrap_err().errno(), Some(95));
            let rate = VfSettings { max_tx_rate: Some(100), ..VfSettings::default() };
            assert_eq!(set(tree.root(), vf, &rate).unwrap_err().reason(), "NoSuchVf");
        });
    }

    #[test]
    fn settings_have_one_order_and_unreported_ones_count_as_applied() {
        let settings = VfSettings {
            mac: Some("02:00:00:00:00:09".parse().unwrap()),
            vlan: Some(VfVlan { id: 100, ..VfVlan::default() }),
            spoof_check: Some(false),
            trust: Some(true),
            link_state: Some(LinkState::Enable),
            ..VfSettings::default()
        };
        let changes = in_order(&settings, Some((0, 200)));
        let order: Vec<String> = changes.iter().map(ToString::to_string).collect();
        let expected = [
            "VLAN 100 qos 0 proto 802.1q",
            "MAC address 02:00:00:00:00:09",
            "rates from 0 to 200 Mbit/s",
            "spoof checking off",
            "trust on",
            "link state enable",
        ];
        assert_eq!(order, expected);
        assert!(changes.iter().all(|change| is_applied(change, &VfSettings::default())));
        assert!(changes.iter().all(|change| {
            is_applied(change, &VfSettings { min_tx_rate: Some(0), max_tx_rate: Some(200), ..settings })
        }));
        let other = VfSettings { trust: Some(false), max_tx_rate: Some(100), ..settings };
        let missing: Vec<_> = changes.iter().filter(|change| !is_applied(change, &other)).collect();
        assert_eq!(missing, [&VfSetting::Rates { min: 0, max: 200 }, &VfSetting::Trust(true)]);
    }
}
