use alloc::boxed::Box;
use core::fmt;

use thiserror::Error;
use vfleet_api::{Guid, Invalid, PciAddress, VfRef};

use crate::files::GUIDS;
use crate::prelude::*;

/// Why VFs cannot be given GUIDs. Each says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GuidFileError {
    /// It is no JSON, or no list.
    #[error("{GUIDS} is not a JSON list of entries: {problem}; correct it, or remove it to have GUIDs made")]
    NotAList {
        /// What is wrong, and where.
        problem: String,
    },
    /// The entry of the PF makes no sense.
    #[error("{GUIDS}, {entry}: {fault}")]
    Entry {
        /// Which.
        entry: EntryName,
        /// What is wrong.
        #[source]
        fault: Box<EntryFault>,
    },
    /// Nobody can tell which PF an entry is for: it may be any.
    #[error(
        "{GUIDS}, {entry}: {fault}; until it is corrected, it may be the entry of each PF that none before it names"
    )]
    UnknownPf {
        /// Which.
        entry: EntryName,
        /// What is wrong.
        #[source]
        fault: Box<EntryFault>,
    },
    /// A PF that the file forgets.
    #[error("{GUIDS} has no entry for {pf}{}: add one", or_guid(*node_guid))]
    NoEntry {
        /// The PF.
        pf: PciAddress,
        /// Its GUID, by which an entry could name it as well.
        node_guid: Option<Guid>,
    },
    /// Some VFs would have none.
    #[error(
        "{GUIDS}, {entry}: {asked} VFs are wanted on {pf}, but there are {found} GUIDs: add more, or lower numVfs"
    )]
    TooFew {
        /// The PF's entry.
        entry: Box<EntryName>,
        /// The PF.
        pf: PciAddress,
        /// How many are needed.
        asked: u32,
        /// How many there are.
        found: u64,
    },
    /// Two VFs with one GUID break the fabric.
    #[error("{GUIDS}: {guid} is for {} and for {}: give each VF a GUID of its own", uses[0], uses[1])]
    Shared {
        /// The GUID.
        guid: Guid,
        /// The VFs that would get it.
        uses: Box<[GuidUse; 2]>,
    },
    /// There is no file, and nothing to make GUIDs from that would differ on other machines.
    #[error(
        "{pf} has no RDMA device whose GUID its VFs' could be made from: load its RDMA driver, or write {GUIDS}"
    )]
    NoIdentity {
        /// The PF.
        pf: PciAddress,
    },
}

fn or_guid(guid: Option<Guid>) -> String {
    guid.map(|guid| format!(" (or its GUID {guid})")).unwrap_or_default()
}

impl GuidFileError {
    /// In one word, for conditions, events and metrics.
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

/// An entry, for people: its number, counted from 1, and its device as it is written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryName {
    /// From 1.
    pub number: usize,
    /// As it is written; `None` when none is.
    pub device: Option<String>,
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}", self.number)?;
        self.device.as_ref().map_or(Ok(()), |device| write!(f, " ({device})"))
    }
}

/// A VF that an entry gives a GUID to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuidUse {
    /// The VF.
    pub vf: VfRef,
    /// The entry of its PF.
    pub entry: EntryName,
}

impl fmt::Display for GuidUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VF {} of {}, by {}", self.vf.index, self.vf.pf, self.entry)
    }
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EntryFault {
    /// It is no object, or a field has another type.
    #[error("{0}; correct it")]
    Shape(String),
    /// It names no PF, or two.
    #[error("it must have exactly one of pci_address (or pciAddress) and pf_guid (or pfGuid)")]
    Device,
    /// It gives no GUIDs, or in two ways.
    #[error("it must have exactly one of guids and guidsRange, and not an empty one")]
    Guids,
    /// An address or a GUID is misspelt.
    #[error("{0}")]
    Word(#[from] Invalid),
    /// The range is turned round.
    #[error("guidsRange ends at {end}, before its start {start}: exchange them")]
    Backwards {
        /// Its first GUID.
        start: Guid,
        /// Its last GUID.
        end: Guid,
    },
    /// A zero GUID means that there is none.
    #[error("a GUID of zeros means none: give another")]
    Zero,
}
