//! The administrator's file.

use alloc::boxed::Box;
use core::fmt;

use serde::Deserialize;
use serde_json::Value;
use vfleet_api::{Guid, PciAddress};

use super::error::{EntryFault, EntryName, GuidFileError};
use crate::prelude::*;

/// GUIDs for the VFs of one PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its place in the file, from 1.
    pub(super) number: usize,
    /// Whose VFs.
    pub(super) device: Device,
    /// By index of the VF.
    pub(super) guids: Guids,
}

/// How an entry names its PF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Device {
    Pci(PciAddress),
    PfGuid(Guid),
}

/// GUIDs, never zero and never the same twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guids {
    List(Vec<Guid>),
    /// Both ends belong to it.
    Range {
        start: u64,
        end: u64,
    },
}

impl Entry {
    /// For people.
    pub(super) fn name(&self) -> EntryName {
        EntryName { number: self.number, device: Some(self.device.to_string()) }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => write!(f, "{address}"),
            Self::PfGuid(guid) => write!(f, "{guid}"),
        }
    }
}

impl Guids {
    /// How many. A range from 1 on has at most as many as fit.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::List(list) => u64::try_from(list.len()).unwrap_or(u64::MAX),
            Self::Range { start, end } => (end - start).saturating_add(1),
        }
    }

    /// The one of the VF with this index.
    pub(super) fn at(&self, index: u16) -> Option<Guid> {
        match self {
            Self::List(list) => list.get(usize::from(index)).copied(),
            Self::Range { start, end } => {
                start.checked_add(index.into()).filter(|guid| guid <= end).map(guid_of)
            }
        }
    }

    /// One that is also among `others`.
    pub(super) fn common(&self, others: &Self) -> Option<Guid> {
        match (self, others) {
            (Self::Range { start, end }, Self::Range { start: other_start, end: other_end }) => {
                let first = start.max(other_start);
                (first <= end.min(other_end)).then(|| guid_of(*first))
            }
            (Self::Range { start, end }, Self::List(list))
            | (Self::List(list), Self::Range { start, end }) => {
                list.iter().copied().find(|guid| (start..=end).contains(&&number_of(*guid)))
            }
            (Self::List(list), Self::List(others)) => {
                let others: BTreeSet<_> = others.iter().collect();
                list.iter().copied().find(|guid| others.contains(guid))
            }
        }
    }
}

const fn guid_of(number: u64) -> Guid {
    Guid(number.to_be_bytes())
}

const fn number_of(guid: Guid) -> u64 {
    u64::from_be_bytes(guid.0)
}

/// An entry as it is written. Programs that leave out empty values and programs that do not mean the same.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    pci_address: Option<String>,
    #[serde(rename = "pciAddress")]
    pci_address_camel: Option<String>,
    pf_guid: Option<String>,
    #[serde(rename = "pfGuid")]
    pf_guid_camel: Option<String>,
    guids: Option<Vec<String>>,
    #[serde(rename = "guidsRange")]
    guids_range: Option<WrittenRange>,
}

#[derive(Deserialize)]
struct WrittenRange {
    start: String,
    end: String,
}

/// The entries of a file. A later entry of a device that has one is left out, if it is correct.
pub(super) fn read(text: &str) -> Result<Vec<Entry>, GuidFileError> {
    let values: Vec<Value> =
        serde_json::from_str(text).map_err(|error| GuidFileError::NotAList { problem: error.to_string() })?;
    let (mut entries, mut known) = (Vec::new(), BTreeSet::new());
    for (index, value) in values.into_iter().enumerate() {
        let entry = read_entry(index + 1, value)?;
        if known.insert(entry.device) {
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn read_entry(number: usize, value: Value) -> Result<Entry, GuidFileError> {
    let fault = |device: Option<String>, fault: EntryFault| GuidFileError::Entry {
        entry: EntryName { number, device },
        fault: Box::new(fault),
    };
    if !value.is_object() {
        return Err(fault(None, EntryFault::Shape("it is not an object".to_owned())));
    }
    let written: Written =
        serde_json::from_value(value).map_err(|error| fault(None, EntryFault::Shape(error.to_string())))?;
    let name = written.device_texts().next().map(ToOwned::to_owned);
    let device = written.device().map_err(|problem| fault(name.clone(), problem))?;
    let guids = written.guids().map_err(|problem| fault(name, problem))?;
    Ok(Entry { number, device, guids })
}

impl Written {
    fn pci_addresses(&self) -> impl Iterator<Item = &str> {
        [&self.pci_address, &self.pci_address_camel]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .filter(is_given)
    }

    fn pf_guids(&self) -> impl Iterator<Item = &str> {
        [&self.pf_guid, &self.pf_guid_camel].into_iter().flatten().map(String::as_str).filter(is_given)
    }

    fn device_texts(&self) -> impl Iterator<Item = &str> {
        self.pci_addresses().chain(self.pf_guids())
    }

    fn device(&self) -> Result<Device, EntryFault> {
        if self.device_texts().count() != 1 {
            return Err(EntryFault::Device);
        }
        match (self.pci_addresses().next(), self.pf_guids().next()) {
            (Some(address), _) => Ok(Device::Pci(address.parse()?)),
            (None, Some(guid)) => Ok(Device::PfGuid(guid.parse()?)),
            (None, None) => Err(EntryFault::Device),
        }
    }

    fn guids(&self) -> Result<Guids, EntryFault> {
        let list = self.guids.as_deref().filter(|list| !list.is_empty());
        match (list, &self.guids_range) {
            (Some(list), None) => read_list(list),
            (None, Some(range)) => read_range(range),
            _ => Err(EntryFault::Guids),
        }
    }
}

fn is_given(text: &&str) -> bool {
    !text.is_empty()
}

fn read_list(texts: &[String]) -> Result<Guids, EntryFault> {
    let list: Vec<Guid> = texts.iter().map(|text| read_guid(text)).collect::<Result<_, _>>()?;
    let mut seen = BTreeSet::new();
    match list.iter().find(|guid| !seen.insert(**guid)) {
        Some(twice) => Err(EntryFault::Twice(*twice)),
        None => Ok(Guids::List(list)),
    }
}

fn read_range(range: &WrittenRange) -> Result<Guids, EntryFault> {
    let (start, end) = (read_guid(&range.start)?, read_guid(&range.end)?);
    if end < start {
        return Err(EntryFault::Backwards { start, end });
    }
    Ok(Guids::Range { start: number_of(start), end: number_of(end) })
}

fn read_guid(text: &str) -> Result<Guid, EntryFault> {
    let guid: Guid = text.parse()?;
    if number_of(guid) == 0 { Err(EntryFault::Zero) } else { Ok(guid) }
}
