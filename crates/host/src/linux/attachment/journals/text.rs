//! Text of a journal: the journal as JSON in one line, and in a second line the result, once there is one.
//!
//! The second line is appended, and the phase, which has a fixed width, is overwritten in place. Neither has to be synchronized:
//! whatever a crash of the machine leaves is the journal before or after, since a second line that was cut off is ignored, and the
//! few bytes of a phase are in one block. So only the first write of an attachment waits for the disk, and an update needs no
//! space on it.

use std::error::Error;
use std::ops::Range;

use serde_json::{Deserializer, Value};
use thiserror::Error;
use vfleet_plan::cni::journal::{JOURNAL_VERSION, Journal};

/// Key of the phase, and the quote before it. No text before it can contain this: quotes in texts are escaped.
const PHASE: &[u8] = b"\"phase\":\"";
/// Width of a phase with its quotes: that of the longest.
const PHASE_WIDTH: usize = 11;

/// Text of a journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JournalText {
    /// First line.
    line: Vec<u8>,
    /// Place of the phase in it.
    phase: Range<usize>,
    /// Second line, or nothing.
    result: Vec<u8>,
}

/// Bytes to write to a file at an offset.
pub(super) type InPlaceWrite<'a> = (u64, &'a [u8]);

impl JournalText {
    pub(super) fn new(journal: &Journal) -> Result<Self, serde_json::Error> {
        let mut result = Vec::new();
        if let Some(value) = &journal.result {
            serde_json::to_writer(&mut result, value)?;
            result.push(b'\n');
        }
        let mut line = serde_json::to_vec(&Journal { result: None, ..journal.clone() })?;
        line.push(b'\n');
        let phase = pad_phase(&mut line, journal.phase.as_str().len() + 2).unwrap_or_default();
        Ok(Self { line, phase, result })
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [&self.line[..], &self.result].concat()
    }

    /// Returns the writes, in this order, that turn a file with the text `old` into one with this text; `None` if more than the
    /// phase and a new result differs.
    pub(super) fn changes_of(&self, old: &[u8]) -> Option<Vec<InPlaceWrite<'_>>> {
        let (old_line, old_result) = old.split_at_checked(self.line.len())?;
        let differs = |range: Range<usize>| old_line.get(range.clone()) != self.line.get(range);
        if differs(0..self.phase.start) || differs(self.phase.end..self.line.len()) {
            return None;
        }
        let mut writes = Vec::new();
        if old_result != self.result {
            if !old_result.is_empty() {
                return None;
            }
            writes.push((self.line.len() as u64, &self.result[..]));
        }
        if differs(self.phase.clone()) {
            writes.push((self.phase.start as u64, self.line.get(self.phase.clone())?));
        }
        Some(writes)
    }
}

/// Gives the phase, which has this width with its quotes, its fixed width. Returns its place.
fn pad_phase(line: &mut Vec<u8>, width: usize) -> Option<Range<usize>> {
    let start = line.windows(PHASE.len()).position(|window| window == PHASE)? + PHASE.len() - 1;
    let padding = std::iter::repeat_n(b' ', PHASE_WIDTH.saturating_sub(width));
    line.splice(start + width..start + width, padding);
    Some(start..start + PHASE_WIDTH)
}

/// Error of a journal that another version of vfleet wrote. The rest of its content is unknown.
#[derive(Debug, Error)]
#[error("it has the unknown version {0}")]
pub(super) struct OtherVersion(u64);

/// Parses the text of a journal of a known version.
pub(in crate::linux) fn parse(bytes: &[u8]) -> Result<Journal, Box<dyn Error + Send + Sync>> {
    let mut values = Deserializer::from_slice(bytes).into_iter::<Value>();
    let first = values.next().ok_or("the file is empty")??;
    let version = first.get("version").and_then(Value::as_u64);
    if let Some(other) = version.filter(|version| *version != u64::from(JOURNAL_VERSION)) {
        return Err(OtherVersion(other).into());
    }
    let journal: Journal = serde_json::from_value(first)?;
    let rest = bytes.get(values.byte_offset()..).unwrap_or_default();
    let result = serde_json::from_slice::<Value>(rest).ok();
    Ok(Journal { result: result.or(journal.result), ..journal })
}

#[cfg(test)]
#[path = "text/tests.rs"]
mod tests;
