//! Files of CNI plugins on a simulated machine. They survive a reboot.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use vfleet_api::PciAddress;
use vfleet_plan::cni::journal::{AttachmentKey, Journal, Plugin};

use crate::HostError;

/// Directory of journals.
const DIRECTORY: &str = "/var/lib/cni/vfleet";
const ENOSPC: i32 = 28;

/// Files of CNI plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimCniFiles {
    /// Texts of journals.
    pub journals: BTreeMap<AttachmentKey, String>,
    /// Caches of the Go plugins by plugin and name.
    pub go_caches: BTreeMap<(Plugin, String), Vec<u8>>,
    /// Allocations by which the Go plugin knows that a pod holds a device: paths of namespaces.
    pub go_allocations: BTreeMap<PciAddress, String>,
    /// Other files, by their paths.
    pub files: BTreeMap<String, String>,
    /// No file can be written.
    pub is_full: bool,
}

impl SimCniFiles {
    /// Parses a journal.
    pub fn journal(&self, key: &AttachmentKey) -> Result<Option<Journal>, HostError> {
        let damaged = |error| HostError::DamagedRecord {
            path: path(key),
            remedy: "repair it with `vfleet node pods --repair`".to_owned(),
            source: Box::new(error),
        };
        let parse = |text: &String| serde_json::from_str(text).map_err(damaged);
        self.journals.get(key).map(parse).transpose()
    }

    pub(super) fn write_journal(&mut self, journal: &Journal) -> Result<(), HostError> {
        self.check_space(path(&journal.key))?;
        let invalid = |error: serde_json::Error| HostError::Io {
            attempt: "write",
            path: path(&journal.key),
            source: io::Error::other(error),
        };
        let text = serde_json::to_string(journal).map_err(invalid)?;
        self.journals.insert(journal.key.clone(), text);
        Ok(())
    }

    pub(super) fn write_allocation(&mut self, device: PciAddress, path: &str) -> Result<(), HostError> {
        self.check_space(format!("/var/lib/cni/sriov/pci/{device}").into())?;
        self.go_allocations.insert(device, path.to_owned());
        Ok(())
    }

    pub(super) fn check_storage(&self) -> Result<(), HostError> {
        self.check_space(DIRECTORY.into())
    }

    fn check_space(&self, path: PathBuf) -> Result<(), HostError> {
        if self.is_full {
            return Err(HostError::Io {
                attempt: "write",
                path,
                source: io::Error::from_raw_os_error(ENOSPC),
            });
        }
        Ok(())
    }
}

fn path(key: &AttachmentKey) -> PathBuf {
    let AttachmentKey { plugin, container_id, interface, device } = key;
    let device = device.map_or_else(|| "-".to_owned(), |device| device.to_string());
    format!("{DIRECTORY}/{}:{container_id}:{interface}:{device}", plugin.name()).into()
}
