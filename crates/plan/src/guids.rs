//! InfiniBand GUIDs for VFs: from the administrator's file, or made.
//!
//! The file is a JSON list. Each entry names a PF by its PCI address or its GUID, and gives a list or a range of GUIDs:
//! VF 0 takes the first, VF 1 the second. The first entry of a PF counts. Fields that are not known are ignored.

mod error;
mod file;

pub use error::{EntryFault, EntryName, GuidFileError};

use alloc::boxed::Box;

use vfleet_api::Guid;

use crate::facts::PfFacts;
use crate::mac::Fnv1a;
use crate::prelude::*;
use file::{Device, Entry};

/// Where the GUIDs of VFs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuidSource {
    /// The file's entries, one for each name of a PF; `None` without a file.
    entries: Option<Vec<Entry>>,
}

impl GuidSource {
    /// Reads the file's text; without a file GUIDs are made.
    pub fn read(guid_file: Option<&str>) -> Result<Self, GuidFileError> {
        Ok(Self { entries: guid_file.map(file::read).transpose()? })
    }

    /// Whether the administrator says what GUIDs shall be: then a VF that has another is given its own.
    pub const fn is_file(&self) -> bool {
        self.entries.is_some()
    }

    /// Whether there are GUIDs for `num_vfs` VFs of a PF, and no other PF's among them.
    pub fn check(&self, pf: &PfFacts, num_vfs: u16) -> Result<(), GuidFileError> {
        let Some(entries) = &self.entries else {
            return identity(pf).map(drop).ok_or(GuidFileError::NoIdentity { pf: pf.address });
        };
        let entry = find(entries, pf)
            .ok_or(GuidFileError::NoEntry { pf: pf.address, node_guid: usable_node_guid(pf) })?;
        let found = entry.guids.count();
        if found < u64::from(num_vfs) {
            let entry = Box::new(entry.name());
            return Err(GuidFileError::TooFew { entry, pf: pf.address, asked: num_vfs, found });
        }
        let others = entries.iter().filter(|other| !is_for(other, pf));
        for other in others {
            if let Some(guid) = entry.guids.common(&other.guids) {
                let mut entries = [entry, other];
                entries.sort_by_key(|entry| entry.number);
                return Err(GuidFileError::Shared { guid, entries: Box::new(entries.map(Entry::name)) });
            }
        }
        Ok(())
    }

    /// The GUID of a VF, always the same. Only for VFs of a PF that [`GuidSource::check`] has nothing against.
    pub fn guid(&self, pf: &PfFacts, vf_index: u16) -> Guid {
        self.entries
            .as_ref()
            .and_then(|entries| find(entries, pf)?.guids.at(vf_index))
            .unwrap_or_else(|| made_guid(pf, vf_index))
    }
}

fn find<'a>(entries: &'a [Entry], pf: &PfFacts) -> Option<&'a Entry> {
    entries.iter().find(|entry| is_for(entry, pf))
}

fn is_for(entry: &Entry, pf: &PfFacts) -> bool {
    match entry.device {
        Device::Pci(address) => address == pf.address,
        Device::PfGuid(guid) => usable_node_guid(pf) == Some(guid),
    }
}

fn usable_node_guid(pf: &PfFacts) -> Option<Guid> {
    pf.rdma.as_ref().map(|rdma| rdma.node_guid).filter(|guid| guid.0 != [0; 8])
}

/// What tells a PF from all others in the world.
fn identity(pf: &PfFacts) -> Option<Vec<u8>> {
    let mac = || pf.link.as_ref().and_then(|link| link.permanent_mac.or(link.mac));
    usable_node_guid(pf).map(|guid| guid.0.to_vec()).or_else(|| mac().map(|mac| mac.0.to_vec()))
}

/// Locally administered; 62 bits of a hash of what makes the VF unique, as [`crate::mac::vf_mac`] does it.
fn made_guid(pf: &PfFacts, index: u16) -> Guid {
    let mut hash = Fnv1a::new();
    hash.write(&identity(pf).unwrap_or_default());
    hash.write(pf.address.to_string().as_bytes());
    hash.write(&index.to_be_bytes());
    let mut guid = hash.finish().to_be_bytes();
    guid[0] = guid[0] & 0xfc | 0x02;
    Guid(guid)
}
