//! Supported cards: the ConfigMap `supported-nic-ids`.

use thiserror::Error;

use crate::prelude::*;

/// PCI IDs of supported PFs and their VFs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicIds {
    /// Device ID of VFs by device ID of the PF.
    vf_devices: BTreeMap<String, String>,
    /// Vendor and device IDs of PFs.
    pfs: BTreeSet<(String, String)>,
    /// Vendor and device IDs of VFs.
    vfs: BTreeSet<(String, String)>,
}

/// Invalid entry of the ConfigMap, which is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{key}: {value:?} is not three PCI IDs (vendor, PF device, VF device) such as 8086 158b 154c")]
pub struct InvalidNicId {
    /// Key of the entry.
    pub key: String,
    /// Value of the entry.
    pub value: String,
}

impl NicIds {
    /// Parses the data of the ConfigMap and returns the invalid entries, too.
    pub fn parse(data: &BTreeMap<String, String>) -> (Self, Vec<InvalidNicId>) {
        let mut ids = Self::default();
        let mut bad = Vec::new();
        for (key, value) in data {
            let words: Vec<String> = value.split_whitespace().map(str::to_ascii_lowercase).collect();
            match words.as_slice() {
                [vendor, pf, vf] if [vendor, pf, vf].iter().all(|word| is_pci_id(word)) => {
                    ids.pfs.insert((vendor.clone(), pf.clone()));
                    ids.vfs.insert((vendor.clone(), vf.clone()));
                    ids.vf_devices.entry(pf.clone()).or_insert_with(|| vf.clone());
                }
                _ => bad.push(InvalidNicId { key: key.clone(), value: value.clone() }),
            }
        }
        (ids, bad)
    }

    /// Returns whether a card is supported: a PF, or a lone VF.
    pub fn lists(&self, vendor: u16, device: u16) -> bool {
        let kind = (format!("{vendor:04x}"), format!("{device:04x}"));
        self.pfs.contains(&kind) || self.vfs.contains(&kind)
    }

    /// Returns whether no card is listed.
    pub(crate) fn is_empty(&self) -> bool {
        self.pfs.is_empty()
    }

    /// Returns whether a PF with this vendor ID and device ID is listed; `None` matches all. Case does not matter.
    pub(crate) fn lists_pf(&self, vendor: Option<&str>, device: Option<&str>) -> bool {
        let matches = |id: Option<&str>, listed: &str| id.is_none_or(|id| id.eq_ignore_ascii_case(listed));
        self.pfs.iter().any(|(pf_vendor, pf)| matches(vendor, pf_vendor) && matches(device, pf))
    }

    /// Returns the device ID of the VFs of a PF with this device ID.
    pub(super) fn vf_device(&self, pf_device: &str) -> Option<String> {
        self.vf_devices.get(pf_device).cloned()
    }
}

fn is_pci_id(word: &str) -> bool {
    word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}
