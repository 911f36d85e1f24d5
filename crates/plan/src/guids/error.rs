use alloc::boxed::Box;
use core::fmt;

use thiserror::Error;
use vfleet_api::{Guid, ParseError, PciAddress, VfRef};

use crate::files::GUIDS;
use crate::prelude::*;

/// Error of the GUIDs of VFs. The text includes the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GuidFileError {
    /// The file is not a JSON list.
    #[error(
        "{GUIDS} is not a JSON list of entries: {problem}; correct it, or remove it to use derived GUIDs"
    )]
    NotAList {
        /// Error of the JSON parser.
        problem: String,
    },
    /// The entry of the PF is not valid.
    #[error("{GUIDS}, {entry}: {fault}")]
    Entry {
        /// The entry.
        entry: EntryName,
        /// Fault of the entry.
        #[source]
        fault: Box<EntryFault>,
    },
    /// The entry may belong to any PF, since its PF is not valid.
    #[error("{GUIDS}, {entry}: {fault}; until it is corrected, PFs without an earlier entry get no GUIDs")]
    UnknownPf {
        /// The entry.
        entry: EntryName,
        /// Fault of the entry.
        #[source]
        fault: Box<EntryFault>,
    },
    /// The file has no entry for the PF.
    #[error("{GUIDS} has no entry for {pf}{}: add one", or_guid(*node_guid))]
    NoEntry {
        /// PCI address of the PF.
        pf: PciAddress,
        /// GUID of the PF, which an entry may use instead.
        node_guid: Option<Guid>,
    },
    /// The entry has fewer GUIDs than VFs.
    #[error(
        "{GUIDS}, {entry}: {requested} VFs are requested on PF {pf}, but there are {available} GUIDs: add more, or lower numVfs"
    )]
    TooFew {
        /// Entry of the PF.
        entry: Box<EntryName>,
        /// PCI address of the PF.
        pf: PciAddress,
        /// Number of needed GUIDs.
        requested: u32,
        /// Number of GUIDs in the entry.
        available: u64,
    },
    /// Two VFs would get the same GUID, which breaks the fabric.
    #[error("{GUIDS}: {guid} belongs to {} and to {}: give each VF its own GUID", uses[0], uses[1])]
    Shared {
        /// The GUID.
        guid: Guid,
        /// VFs that would get the GUID.
        uses: Box<[GuidUse; 2]>,
    },
    /// There is no file, and the PF has no unique identity from which GUIDs could be derived.
    #[error(
        "PF {pf} has no RDMA device from which GUIDs of VFs can be derived: load its RDMA driver, or write {GUIDS}"
    )]
    NoIdentity {
        /// PCI address of the PF.
        pf: PciAddress,
    },
}

fn or_guid(guid: Option<Guid>) -> String {
    guid.map(|guid| format!(" (or its GUID {guid})")).unwrap_or_default()
}

impl GuidFileError {
    /// Returns the reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotAList { .. } | Self::Entry { .. } | Self::UnknownPf { .. } | Self::Shared { .. } => {
                "InvalidGuidFile"
            }
            Self::NoEntry { .. } => "NoGuidsForPf",
            Self::TooFew { .. } => "TooFewGuids",
            Self::NoIdentity { .. } => "NoRdmaDevice",
        }
    }
}

/// Name of an entry in messages: its number and its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryName {
    /// Number of the entry, from 1.
    pub number: usize,
    /// PCI address or GUID in the entry; `None` without one.
    pub device: Option<String>,
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}", self.number)?;
        self.device.as_ref().map_or(Ok(()), |device| write!(f, " ({device})"))
    }
}

/// VF that gets a GUID from an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuidUse {
    /// The VF.
    pub vf: VfRef,
    /// Entry of its PF.
    pub entry: EntryName,
}

impl fmt::Display for GuidUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VF {} of {}, by {}", self.vf.index, self.vf.pf, self.entry)
    }
}

/// Fault of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EntryFault {
    /// The entry is not an object, or a field has the wrong type.
    #[error("{0}; correct it")]
    Shape(String),
    /// The entry names no PF, or two.
    #[error("exactly one of pci_address (or pciAddress) and pf_guid (or pfGuid) is required")]
    Device,
    /// The entry has no GUIDs, or a list and a range.
    #[error("exactly one of guids and guidsRange is required, and it must not be empty")]
    Guids,
    /// A PCI address or a GUID is not valid.
    #[error("{0}")]
    Word(#[from] ParseError),
    /// The range is reversed.
    #[error("guidsRange ends at {end}, before its start {start}: swap them")]
    Backwards {
        /// First GUID.
        start: Guid,
        /// Last GUID.
        end: Guid,
    },
    /// A GUID is zero, which means none.
    #[error("a GUID of zeros means none: use another one")]
    Zero,
}
