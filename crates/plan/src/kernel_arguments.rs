//! Arguments of the kernel, compared by what they mean: `intel_iommu=sm_on,on` is as good as `intel_iommu=on`, and of
//! several that contradict each other the last one counts.

use crate::prelude::*;

/// What a kernel may have to be started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// `intel_iommu=on`.
    IntelIommu,
    /// `iommu=pt`: only devices that are handed to programs pay for the IOMMU.
    IommuPassthrough,
    /// `ib_core.netns_mode=1`: network namespaces share RDMA devices; `=0` when they do not.
    RdmaShared(bool),
}

impl Wanted {
    /// The argument that says so.
    pub const fn argument(self) -> &'static str {
        match self {
            Self::IntelIommu => "intel_iommu=on",
            Self::IommuPassthrough => "iommu=pt",
            Self::RdmaShared(true) => "ib_core.netns_mode=1",
            Self::RdmaShared(false) => "ib_core.netns_mode=0",
        }
    }

    /// Whether an argument says so (`true`), or the contrary; `None` when it is about something else.
    fn said_by(self, argument: &Argument) -> Option<bool> {
        let list = || argument.value.split(',');
        match (self, argument.name.as_str()) {
            (Self::IntelIommu, "intel_iommu") => {
                list().filter_map(|word| choose(word, "on", "off")).next_back()
            }
            (Self::IommuPassthrough, "iommu") => {
                list().filter_map(|word| choose(word, "pt", "nopt")).next_back()
            }
            (Self::IommuPassthrough, "iommu.passthrough") => read_bool(&argument.value),
            (Self::RdmaShared(wanted), "ib_core.netns_mode") => {
                read_bool(&argument.value).map(|shared| shared == wanted)
            }
            _ => None,
        }
    }
}

/// Those of `wanted` that a kernel with this command line was not started with.
pub fn missing(wanted: &[Wanted], command_line: &str) -> Vec<String> {
    let arguments = split(command_line);
    let is_missing = |wanted: &Wanted| {
        arguments.iter().filter_map(|argument| wanted.said_by(argument)).next_back() != Some(true)
    };
    wanted.iter().copied().filter(is_missing).map(|wanted| wanted.argument().to_owned()).collect()
}

/// Arguments that say the contrary of one of `wanted`, as they are written. Whoever adds an argument removes them, so
/// that it does not depend on their order.
pub fn contrary(wanted: &[Wanted], command_line: &str) -> Vec<String> {
    let says_the_contrary =
        |argument: &Argument| wanted.iter().any(|wanted| wanted.said_by(argument) == Some(false));
    as_written(command_line, says_the_contrary)
}

/// Arguments about the RDMA mode, as they are written.
pub fn about_rdma_mode(command_line: &str) -> Vec<String> {
    contrary(&[Wanted::RdmaShared(true), Wanted::RdmaShared(false)], command_line)
}

/// Arguments that switch the IOMMU off, as they are written. No other argument switches it on again.
pub fn switching_iommu_off(command_line: &str) -> Vec<String> {
    let is_one = |argument: &Argument| {
        ["iommu", "amd_iommu"].contains(&argument.name.as_str())
            && argument.value.split(',').any(|word| word == "off")
    };
    as_written(command_line, is_one)
}

/// Those of the arguments that are meant, once each.
fn as_written(command_line: &str, is_meant: impl Fn(&Argument) -> bool) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for argument in split(command_line).into_iter().filter(is_meant) {
        if !found.contains(&argument.written) {
            found.push(argument.written);
        }
    }
    found
}

struct Argument {
    /// With `_` for `-`: the kernel takes both.
    name: String,
    /// Without quotes.
    value: String,
    /// As it is.
    written: String,
}

/// The kernel's own arguments: up to `--`, after which they are for init. Quotes keep blanks together.
fn split(command_line: &str) -> Vec<Argument> {
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
    words.map(read).collect()
}

fn read(written: String) -> Argument {
    let text = written.replace('"', "");
    let (name, value) = text.split_once('=').unwrap_or((&text, ""));
    Argument { name: name.replace('-', "_"), value: value.to_owned(), written }
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

/// As the kernel reads them. A switch that is only named is on.
fn read_bool(value: &str) -> Option<bool> {
    match value {
        "" | "1" | "y" | "Y" | "t" | "T" | "on" | "On" | "ON" | "oN" => Some(true),
        "0" | "n" | "N" | "f" | "F" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}
