//! InfiniBand GUIDs for VFs: from the administrator's file, or derived from the PF's own.
//!
//! The file is a JSON list. Each entry names a PF by its PCI address or its GUID, and gives a list or a range of GUIDs:
//! VF 0 takes the first, VF 1 the second. The first entry of a PF counts. Fields that are not known are ignored.
//! `docs/infiniband-guids.md` is its description.

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

/// VFs of a PF that are to have GUIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuidDemand {
    /// The PF.
    pub pf: PciAddress,
    /// The VFs.
    pub vfs: Vec<VfRange>,
}

impl GuidDemand {
    fn indices(&self) -> impl Iterator<Item = u16> {
        self.vfs.iter().flat_map(|range| range.first()..=range.last())
    }
}

/// Where the GUIDs of a machine's VFs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuidSource {
    /// `None` without a file.
    file: Option<Result<GuidFile, GuidFileError>>,
}

/// The administrator's file, on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GuidFile {
    /// The entries, each with the PFs of this machine that it is for; `None` where nobody can tell.
    entries: Vec<(Entry, Option<Vec<PciAddress>>)>,
    /// PFs with a VF that would get a GUID that another VF would get, too.
    shared: BTreeMap<PciAddress, GuidFileError>,
}

impl GuidSource {
    /// Reads the file's text; without a file GUIDs are derived. `pfs` are those of the machine, and `demands` all VFs that
    /// are to have a GUID.
    pub fn read(guid_file: Option<&str>, pfs: &[PfFacts], demands: &[GuidDemand]) -> Self {
        let read = |text| Ok(GuidFile::new(file::read(text)?, pfs, demands));
        Self { file: guid_file.map(read) }
    }

    /// Returns whether the administrator says what GUIDs shall be: then a VF that has another is given its own.
    pub const fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the faults of entries that may be of any PF.
    pub fn faults_of_unknown_pfs(&self) -> impl Iterator<Item = GuidFileError> {
        let entries = self.file.iter().flatten().flat_map(|file| &file.entries);
        entries.filter_map(|(entry, _)| unknown_pf(entry))
    }

    /// Checks that there are GUIDs for the VFs of a PF, and that no other VF gets one of them.
    pub fn check(&self, pf: &PfFacts, demand: &GuidDemand) -> Result<(), GuidFileError> {
        let Some(file) = &self.file else {
            return identity(pf).map(drop).ok_or(GuidFileError::NoIdentity { pf: pf.address });
        };
        let file = file.as_ref().map_err(Clone::clone)?;
        let found = file.find(pf.address).unwrap_or_else(|| {
            let node_guid = usable_node_guid(pf).or_else(|| usable_port_guid(pf));
            Err(GuidFileError::NoEntry { pf: pf.address, node_guid })
        });
        let (entry, guids) = found?;
        let (asked, found) = (demand.indices().max().map_or(0, |last| u32::from(last) + 1), guids.count());
        if found < u64::from(asked) {
            let entry = Box::new(entry.name.clone());
            return Err(GuidFileError::TooFew { entry, pf: pf.address, asked, found });
        }
        file.shared.get(&pf.address).cloned().map_or(Ok(()), Err)
    }

    /// Returns the GUID of a VF, always the same. Only for VFs of a PF that [`GuidSource::check`] has nothing against.
    pub fn guid(&self, pf: &PfFacts, vf_index: u16) -> Guid {
        let of_file = || {
            let (_, guids) = self.file.as_ref()?.as_ref().ok()?.find(pf.address)?.ok()?;
            guids.at(vf_index)
        };
        of_file().unwrap_or_else(|| made_guid(pf, vf_index))
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
        let mut file = Self { entries, shared: BTreeMap::new() };
        file.shared = file.shared(demands);
        file
    }

    /// Returns the entry of a PF, the first one that names it. One of which nobody can tell whose it is may be that.
    fn find(&self, pf: PciAddress) -> Option<Result<(&Entry, &Guids), GuidFileError>> {
        self.entries.iter().find_map(|(entry, named)| match named {
            None => unknown_pf(entry).map(Err),
            Some(named) if named.contains(&pf) => Some(match &entry.guids {
                Ok(guids) => Ok((entry, guids)),
                Err(fault) => {
                    Err(GuidFileError::Entry { entry: entry.name.clone(), fault: Box::new(fault.clone()) })
                }
            }),
            Some(_) => None,
        })
    }

    /// Returns the PFs with a VF whose GUID another VF would get, too.
    fn shared(&self, demands: &[GuidDemand]) -> BTreeMap<PciAddress, GuidFileError> {
        let mut given: BTreeMap<Guid, (VfRef, &Entry)> = BTreeMap::new();
        let mut shared = BTreeMap::new();
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
                    shared.entry(other.pf).or_insert_with(|| error.clone());
                    shared.entry(vf.pf).or_insert(error);
                }
            }
        }
        shared
    }
}

fn unknown_pf(entry: &Entry) -> Option<GuidFileError> {
    let fault = Box::new(entry.pfs.as_ref().err()?.clone());
    Some(GuidFileError::UnknownPf { entry: entry.name.clone(), fault })
}

/// Returns the PFs that a name means. A GUID is looked for among the node GUIDs of all PFs, then among their port GUIDs.
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
