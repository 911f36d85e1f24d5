//! Parser of the administrator's GUID file.

use serde_json::{Map, Value};
use vfleet_api::{Guid, PciAddress};

use super::error::{EntryFault, EntryName, GuidFileError};
use super::text::{read_guid, read_pf_guid};
use crate::prelude::*;

/// Entry of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Number of the entry, and its device.
    pub(super) name: EntryName,
    /// PFs that the entry names (more than one is a fault), or the fault if they are not valid.
    pub(super) pfs: Result<Vec<PfName>, EntryFault>,
    /// GUIDs of the VFs, by index, or their fault.
    pub(super) guids: Result<Guids, EntryFault>,
}

/// Name of the PF in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PfName {
    Address(PciAddress),
    Guid(Guid),
}

/// GUIDs by VF index, never zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guids {
    List(Vec<Guid>),
    /// Range that includes both ends.
    Range {
        start: u64,
        end: u64,
    },
}

impl Guids {
    /// Returns the number of GUIDs, at most `u64::MAX`.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::List(list) => u64::try_from(list.len()).unwrap_or(u64::MAX),
            Self::Range { start, end } => (end - start).saturating_add(1),
        }
    }

    /// Returns the GUID of the VF with this index.
    pub(super) fn at(&self, index: u16) -> Option<Guid> {
        match self {
            Self::List(list) => list.get(usize::from(index)).copied(),
            Self::Range { start, end } => start
                .checked_add(index.into())
                .filter(|guid| guid <= end)
                .map(|number| Guid(number.to_be_bytes())),
        }
    }
}

/// Parses the entries of a file. Faults of an entry are stored in the entry.
pub(super) fn read(text: &str) -> Result<Vec<Entry>, GuidFileError> {
    let values: Vec<Value> =
        serde_json::from_str(text).map_err(|error| GuidFileError::NotAList { problem: error.to_string() })?;
    Ok(values.iter().enumerate().map(|(index, value)| read_entry(index + 1, value)).collect())
}

fn read_entry(number: usize, value: &Value) -> Entry {
    let Some(fields) = value.as_object().map(Fields) else {
        let fault = shape("not an object");
        let name = EntryName { number, device: None };
        return Entry { name, pfs: Err(fault.clone()), guids: Err(fault) };
    };
    let pfs = fields.pf_names();
    // Two names of the same PF are a fault too: one of them may be outdated.
    let guids = match &pfs {
        Ok(names) if names.len() > 1 => Err(EntryFault::Device),
        _ => fields.guids(),
    };
    Entry { name: EntryName { number, device: fields.device() }, pfs, guids }
}

/// Fields of an entry. Case and underscores of field names are ignored, and empty values count as missing, since some
/// programs write them.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// Returns the distinct values of a field.
    fn values(&self, name: &str) -> Vec<&'a Value> {
        let is_it = |key: &str| key.replace('_', "").eq_ignore_ascii_case(name);
        let mut values = Vec::new();
        for (_, value) in self.0.iter().filter(|(key, value)| is_it(key) && is_given(value)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    fn addresses(&self) -> Vec<&'a Value> {
        self.values("pciaddress")
    }

    fn pf_guids(&self) -> Vec<&'a Value> {
        self.values("pfguid")
    }

    /// Returns the device of the entry, for messages.
    fn device(&self) -> Option<String> {
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        self.addresses().into_iter().chain(self.pf_guids()).find_map(text)
    }

    fn pf_names(&self) -> Result<Vec<PfName>, EntryFault> {
        let address = |value| Ok(PfName::Address(text_of("pciAddress", value)?.parse()?));
        let guid = |value| Ok(PfName::Guid(read_pf_guid(text_of("pfGuid", value)?)?));
        let addresses = self.addresses().into_iter().map(address);
        let names = addresses.chain(self.pf_guids().into_iter().map(guid));
        let mut names = names.collect::<Result<Vec<PfName>, EntryFault>>()?;
        names.dedup();
        if names.is_empty() { Err(EntryFault::Device) } else { Ok(names) }
    }

    fn guids(&self) -> Result<Guids, EntryFault> {
        match (self.values("guids").as_slice(), self.values("guidsrange").as_slice()) {
            ([list], []) => read_list(list),
            ([], [range]) => read_range(range),
            _ => Err(EntryFault::Guids),
        }
    }
}

fn is_given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(fields) => fields.values().any(is_given),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

fn shape(problem: &str) -> EntryFault {
    EntryFault::Shape(problem.to_owned())
}

fn text_of<'a>(field: &str, value: &'a Value) -> Result<&'a str, EntryFault> {
    value.as_str().ok_or_else(|| EntryFault::Shape(format!("{field} is {value} and not a string")))
}

fn read_list(list: &Value) -> Result<Guids, EntryFault> {
    let list = list.as_array().ok_or_else(|| shape("guids is not a list"))?;
    list.iter().map(|value| read_usable_guid("a GUID", value)).collect::<Result<_, _>>().map(Guids::List)
}

fn read_range(range: &Value) -> Result<Guids, EntryFault> {
    let fields = range.as_object().map(Fields).ok_or_else(|| shape("guidsRange is not an object"))?;
    let end_of = |name: &str| match fields.values(name).as_slice() {
        [value] => read_usable_guid(name, value),
        _ => Err(EntryFault::Shape(format!("guidsRange must have exactly one {name}"))),
    };
    let (start, end) = (end_of("start")?, end_of("end")?);
    if end < start {
        return Err(EntryFault::Backwards { start, end });
    }
    Ok(Guids::Range { start: u64::from_be_bytes(start.0), end: u64::from_be_bytes(end.0) })
}

fn read_usable_guid(what: &str, value: &Value) -> Result<Guid, EntryFault> {
    let guid = read_guid(text_of(what, value)?)?;
    if guid.0 == [0; 8] { Err(EntryFault::Zero) } else { Ok(guid) }
}
