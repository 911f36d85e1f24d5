//! Kernel arguments, compared by meaning: `intel_iommu=sm_on,on` equals `intel_iommu=on`, and of contradicting
//! arguments the last one counts.

use crate::prelude::*;

/// Kernel argument that a desired state may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelArgument {
    /// `intel_iommu=on`.
    IntelIommu,
    /// `iommu=pt`: only devices with a userspace driver use the IOMMU.
    IommuPassthrough,
    /// `ib_core.netns_mode`: 1 if network namespaces share RDMA devices, else 0.
    RdmaShared(bool),
}

impl KernelArgument {
    /// Returns the text of the argument.
    pub const fn text(self) -> &'static str {
        match self {
            Self::IntelIommu => "intel_iommu=on",
            Self::IommuPassthrough => "iommu=pt",
            Self::RdmaShared(true) => "ib_core.netns_mode=1",
            Self::RdmaShared(false) => "ib_core.netns_mode=0",
        }
    }

    /// Returns whether `argument` has this meaning (`true`) or the opposite; `None` if it is unrelated.
    fn value_in(self, argument: &ParsedArgument) -> Option<bool> {
        let list = || argument.value.split(',');
        match (self, argument.name.as_str()) {
            (Self::IntelIommu, "intel_iommu") => {
                list().filter_map(|word| choose(word, "on", "off")).next_back()
            }
            (Self::IommuPassthrough, "iommu") => {
                list().filter_map(|word| choose(word, "pt", "nopt")).next_back()
            }
            (Self::IommuPassthrough, "iommu.passthrough") => parse_bool(&argument.value),
            (Self::RdmaShared(desired), "ib_core.netns_mode") => {
                parse_bool(&argument.value).map(|shared| shared == desired)
            }
            _ => None,
        }
    }
}

/// Returns the arguments of `desired` that the command line lacks.
pub fn missing_arguments(desired: &[KernelArgument], command_line: &str) -> Vec<String> {
    let arguments = split(command_line);
    let is_missing = |desired: &KernelArgument| {
        arguments.iter().filter_map(|argument| desired.value_in(argument)).next_back() != Some(true)
    };
    desired.iter().copied().filter(is_missing).map(|argument| argument.text().to_owned()).collect()
}

/// Returns the arguments that contradict one of `desired`, as written. They are removed when the argument is added, so
/// that their order does not matter.
pub fn contradicting_arguments(desired: &[KernelArgument], command_line: &str) -> Vec<String> {
    let contradicts =
        |argument: &ParsedArgument| desired.iter().any(|desired| desired.value_in(argument) == Some(false));
    as_written(command_line, contradicts)
}

/// Returns the arguments that set the RDMA mode, as written.
pub fn rdma_mode_arguments(command_line: &str) -> Vec<String> {
    contradicting_arguments(
        &[KernelArgument::RdmaShared(true), KernelArgument::RdmaShared(false)],
        command_line,
    )
}

/// Returns the arguments that disable the IOMMU, as written. No other argument enables it again.
pub fn iommu_off_arguments(command_line: &str) -> Vec<String> {
    let is_one = |argument: &ParsedArgument| {
        ["iommu", "amd_iommu"].contains(&argument.name.as_str())
            && argument.value.split(',').any(|word| word == "off")
    };
    as_written(command_line, is_one)
}

/// Returns the matching arguments as written, without duplicates.
fn as_written(command_line: &str, matches: impl Fn(&ParsedArgument) -> bool) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for argument in split(command_line).into_iter().filter(matches) {
        if !found.contains(&argument.written) {
            found.push(argument.written);
        }
    }
    found
}

/// Argument of a kernel command line.
struct ParsedArgument {
    /// Name with `_` for `-`, since the kernel accepts both.
    name: String,
    /// Value without quotes.
    value: String,
    /// Argument as written.
    written: String,
}

/// Splits the command line into arguments, up to `--`, after which they belong to init. Quotes protect blanks.
fn split(command_line: &str) -> Vec<ParsedArgument> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in command_line.chars() {
        match letter {
            letter if letter.is_whitespace() && !is_quoted => words.push(core::mem::take(&mut word)),
            letter => {
                is_quoted ^= letter == '"';
                word.push(letter);
            }
        }
    }
    words.push(word);
    let words = words.into_iter().filter(|word| !word.is_empty()).take_while(|word| word != "--");
    words.map(parse).collect()
}

fn parse(written: String) -> ParsedArgument {
    let text = written.replace('"', "");
    let (name, value) = text.split_once('=').unwrap_or((&text, ""));
    ParsedArgument { name: name.replace('-', "_"), value: value.to_owned(), written }
}

fn choose(word: &str, yes: &str, no: &str) -> Option<bool> {
    if word == yes {
        Some(true)
    } else if word == no {
        Some(false)
    } else {
        None
    }
}

/// Parses a boolean as the kernel does. A name without a value is true.
fn parse_bool(value: &str) -> Option<bool> {
    match value {
        "" | "1" | "y" | "Y" | "t" | "T" | "on" | "On" | "ON" | "oN" => Some(true),
        "0" | "n" | "N" | "f" | "F" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}
