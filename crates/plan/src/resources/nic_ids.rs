//! Which VF ids belong to which PF ids: the ConfigMap `supported-nic-ids`.

use thiserror::Error;

use crate::prelude::*;

/// The kinds of VFs that kinds of PFs have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicIds {
    /// VF device ids by PF device id.
    vf_devices: BTreeMap<String, String>,
    /// All kinds of PFs, by vendor and device.
    pfs: BTreeSet<(String, String)>,
    /// All kinds of VFs, by vendor and device.
    vfs: BTreeSet<(String, String)>,
}

/// An entry of the ConfigMap that is not used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{key}: {value:?} is not three ids (vendor, device of the PF, device of its VFs) such as 8086 158b 154c"
)]
pub struct BadNicId {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl NicIds {
    /// Reads the ConfigMap's data; also gives the entries that cannot be read, and so are not used.
    pub fn parse(data: &BTreeMap<String, String>) -> (Self, Vec<BadNicId>) {
        let mut ids = Self::default();
        let mut bad = Vec::new();
        for (key, value) in data {
            let words: Vec<String> = value.split_whitespace().map(str::to_ascii_lowercase).collect();
            match words.as_slice() {
                [vendor, pf, vf] if [vendor, pf, vf].iter().all(|word| is_id(word)) => {
                    ids.pfs.insert((vendor.clone(), pf.clone()));
                    ids.vfs.insert((vendor.clone(), vf.clone()));
                    ids.vf_devices.entry(pf.clone()).or_insert_with(|| vf.clone());
                }
                _ => bad.push(BadNicId { key: key.clone(), value: value.clone() }),
            }
        }
        (ids, bad)
    }

    /// Whether such cards are listed: PFs, or VFs that a hypervisor gave without their PF.
    pub fn lists(&self, vendor: u16, device: u16) -> bool {
        let kind = (format!("{vendor:04x}"), format!("{device:04x}"));
        self.pfs.contains(&kind) || self.vfs.contains(&kind)
    }

    /// Whether no card is listed.
    pub(crate) fn is_empty(&self) -> bool {
        self.pfs.is_empty()
    }

    /// Whether a PF of this vendor, of this device id, or of both is listed. Ids are written in either case.
    pub(crate) fn lists_pf(&self, vendor: Option<&str>, device: Option<&str>) -> bool {
        let is_it = |wanted: Option<&str>, listed: &str| {
            wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(listed))
        };
        self.pfs.iter().any(|(pf_vendor, pf)| is_it(vendor, pf_vendor) && is_it(device, pf))
    }

    /// The device id of VFs of such a PF.
    pub(super) fn vf_device(&self, pf_device: &str) -> Option<String> {
        self.vf_devices.get(pf_device).cloned()
    }
}

fn is_id(word: &str) -> bool {
    word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}
