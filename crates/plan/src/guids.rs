//! InfiniBand GUIDs of VFs: from the administrator's file, or derived from the GUID of the PF.
//!
//! The file is a JSON list. Each entry names a PF by its PCI address or GUID, and has a list or a range of GUIDs: the
//! first for VF 0, the second for VF 1. The first entry of a PF counts. Unknown fields are ignored. The format is
//! described in `docs/infiniband-guids.md`.

mod error;
mod file;
mod text;

pub use error::{EntryFault, EntryName, GuidFileError, GuidUse};

use alloc::boxed::Box;

use vfleet_api::{Guid, PciAddress, VfRange, VfRef};

use crate::facts::PfFacts;
use crate::mac::Fnv1a;
use crate::prelude::*;
use file::{Entry, Guids, PfName};

/// VFs of a PF that need GUIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuidDemand {
    /// PCI address of the PF.
    pub pf: PciAddress,
    /// VF indexes.
    pub vfs: Vec<VfRange>,
}

impl GuidDemand {
    fn indices(&self) -> impl Iterator<Item = u16> {
        self.vfs.iter().flat_map(|range| range.first()..=range.last())
    }
}

/// Source of the GUIDs of a machine's VFs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuidSource {
    /// File, or its error; `None` without a file.
    file: Option<Result<GuidFile, GuidFileError>>,
}

/// File of the administrator, applied to this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GuidFile {
    /// Entries with the PFs of this machine that they name; `None` if that is unknown.
    entries: Vec<(Entry, Option<Vec<PciAddress>>)>,
    /// Errors of PFs with a VF that would get the same GUID as another VF.
    duplicates: BTreeMap<PciAddress, GuidFileError>,
}

impl GuidSource {
    /// Reads the content of the file; without a file, GUIDs are derived. `pfs` are all PFs of the machine, `demands`
    /// all VFs that need GUIDs.
    pub fn read(guid_file: Option<&str>, pfs: &[PfFacts], demands: &[GuidDemand]) -> Self {
        let read = |text| Ok(GuidFile::new(file::read(text)?, pfs, demands));
        Self { file: guid_file.map(read) }
    }

    /// Returns whether a file defines the GUIDs: then VFs with other GUIDs are changed.
    pub const fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns errors of entries that may belong to any PF.
    pub fn errors_of_unknown_pfs(&self) -> impl Iterator<Item = GuidFileError> {
        let entries = self.file.iter().flatten().flat_map(|file| &file.entries);
        entries.filter_map(|(entry, _)| unknown_pf_error(entry))
    }

    /// Checks that the VFs of a PF have GUIDs that no other VF has.
    pub fn check(&self, pf: &PfFacts, demand: &GuidDemand) -> Result<(), GuidFileError> {
        let Some(file) = &self.file else {
            return unique_identity(pf).map(drop).ok_or(GuidFileError::NoIdentity { pf: pf.address });
        };
        let file = file.as_ref().map_err(Clone::clone)?;
        let found = file.find(pf.address).unwrap_or_else(|| {
            let node_guid = usable_node_guid(pf).or_else(|| usable_port_guid(pf));
            Err(GuidFileError::NoEntry { pf: pf.address, node_guid })
        });
        let (entry, guids) = found?;
        let (requested, available) =
            (demand.indices().max().map_or(0, |last| u32::from(last) + 1), guids.count());
        if available < u64::from(requested) {
            let entry = Box::new(entry.name.clone());
            return Err(GuidFileError::TooFew { entry, pf: pf.address, requested, available });
        }
        file.duplicates.get(&pf.address).cloned().map_or(Ok(()), Err)
    }

    /// Returns the GUID of a VF, which is stable. [`GuidSource::check`] must have succeeded for the PF.
    pub fn guid(&self, pf: &PfFacts, vf_index: u16) -> Guid {
        let from_file = || {
            let (_, guids) = self.file.as_ref()?.as_ref().ok()?.find(pf.address)?.ok()?;
            guids.at(vf_index)
        };
        from_file().unwrap_or_else(|| derived_guid(pf, vf_index))
    }
}

impl GuidFile {
    fn new(entries: Vec<Entry>, pfs: &[PfFacts], demands: &[GuidDemand]) -> Self {
        let named = |entry: Entry| {
            let resolve_all =
                |names: &Vec<PfName>| names.iter().flat_map(|name| resolve(*name, pfs)).collect();
            let named = entry.pfs.as_ref().ok().map(resolve_all);
            (entry, named)
        };
        let entries = entries.into_iter().map(named).collect();
        let mut file = Self { entries, duplicates: BTreeMap::new() };
        file.duplicates = file.find_duplicates(demands);
        file
    }

    /// Returns the first entry that names the PF. An entry whose PF is unknown may be that entry.
    fn find(&self, pf: PciAddress) -> Option<Result<(&Entry, &Guids), GuidFileError>> {
        self.entries.iter().find_map(|(entry, named)| match named {
            None => unknown_pf_error(entry).map(Err),
            Some(named) if named.contains(&pf) => Some(match &entry.guids {
                Ok(guids) => Ok((entry, guids)),
                Err(fault) => {
                    Err(GuidFileError::Entry { entry: entry.name.clone(), fault: Box::new(fault.clone()) })
                }
            }),
            Some(_) => None,
        })
    }

    /// Returns the errors of PFs with a VF that would get the same GUID as another VF.
    fn find_duplicates(&self, demands: &[GuidDemand]) -> BTreeMap<PciAddress, GuidFileError> {
        let mut given: BTreeMap<Guid, (VfRef, &Entry)> = BTreeMap::new();
        let mut duplicates = BTreeMap::new();
        for demand in demands {
            let Some(Ok((entry, guids))) = self.find(demand.pf) else { continue };
            for index in demand.indices() {
                let vf = VfRef { pf: demand.pf, index };
                let Some(guid) = guids.at(index) else { continue };
                let (other, of_other) = *given.entry(guid).or_insert((vf, entry));
                if other != vf {
                    let uses = [(other, of_other), (vf, entry)]
                        .map(|(vf, entry)| GuidUse { vf, entry: entry.name.clone() });
                    let error = GuidFileError::Shared { guid, uses: Box::new(uses) };
                    duplicates.entry(other.pf).or_insert_with(|| error.clone());
                    duplicates.entry(vf.pf).or_insert(error);
                }
            }
        }
        duplicates
    }
}

fn unknown_pf_error(entry: &Entry) -> Option<GuidFileError> {
    let fault = Box::new(entry.pfs.as_ref().err()?.clone());
    Some(GuidFileError::UnknownPf { entry: entry.name.clone(), fault })
}

/// Returns the PFs with this name. A GUID is compared with the node GUIDs of all PFs, then with their port GUIDs.
fn resolve(name: PfName, pfs: &[PfFacts]) -> Vec<PciAddress> {
    let with = |guid: Guid, of: fn(&PfFacts) -> Option<Guid>| -> Vec<PciAddress> {
        pfs.iter().filter(|pf| of(pf) == Some(guid)).map(|pf| pf.address).collect()
    };
    match name {
        PfName::Address(address) => vec![address],
        PfName::Guid(guid) => match with(guid, usable_node_guid) {
            none if none.is_empty() => with(guid, usable_port_guid),
            some => some,
        },
    }
}

fn usable_node_guid(pf: &PfFacts) -> Option<Guid> {
    pf.rdma.as_ref().map(|rdma| rdma.node_guid).filter(|guid| guid.0 != [0; 8])
}

fn usable_port_guid(pf: &PfFacts) -> Option<Guid> {
    pf.rdma.as_ref().and_then(|rdma| rdma.port_guid)
}

/// Returns a globally unique identity of the PF.
fn unique_identity(pf: &PfFacts) -> Option<Vec<u8>> {
    let mac = || pf.link.as_ref().and_then(|link| link.permanent_mac.or(link.mac));
    usable_node_guid(pf).map(|guid| guid.0.to_vec()).or_else(|| mac().map(|mac| mac.0.to_vec()))
}

/// Returns a derived GUID: locally administered, with 62 bits of a hash like that of [`crate::mac::vf_mac`].
fn derived_guid(pf: &PfFacts, index: u16) -> Guid {
    let mut hash = Fnv1a::new();
    hash.write(&unique_identity(pf).unwrap_or_default());
    hash.write(pf.address.to_string().as_bytes());
    hash.write(&index.to_be_bytes());
    let mut guid = hash.finish().to_be_bytes();
    guid[0] = guid[0] & 0xfc | 0x02;
    Guid(guid)
}
