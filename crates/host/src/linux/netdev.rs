//! The network interfaces of a PCI function.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{parse, sysfs};
use crate::HostError;

/// A network interface, known by its index: udev changes names at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Netdev {
    pub(super) index: u32,
    /// Its directory in sysfs.
    path: PathBuf,
}

impl Netdev {
    /// Mbit/s, while there is a carrier.
    pub(super) fn speed(&self) -> Result<Option<u32>, HostError> {
        let path = self.path.join("speed");
        let Some(text) = sysfs::read_if_said(&path)? else { return Ok(None) };
        parse::speed(&text).map_err(|_| HostError::Unreadable {
            path,
            found: text,
            expected: "a speed in Mbit/s",
        })
    }
}

/// All interfaces of a function, in the network namespace that sysfs shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Netdevs {
    /// The function's own.
    pub(super) own: Option<Netdev>,
    /// All of them, with those that stand for its VFs.
    pub(super) indices: BTreeSet<u32>,
}

/// An interface of a function that may have several.
#[derive(Debug)]
struct Candidate {
    netdev: Netdev,
    port: u32,
    is_representor: bool,
}

/// The function's own interface, if it has one.
pub(super) fn of_device(device: &Path) -> Result<Option<Netdev>, HostError> {
    all(device).map(|netdevs| netdevs.own)
}

/// The interfaces of the function at `device`. When one vanishes meanwhile, that is an error: see [`super::settle`].
pub(super) fn all(device: &Path) -> Result<Netdevs, HostError> {
    let mut candidates = Vec::new();
    for directory in directories(device)? {
        for path in sysfs::entries_if_there(&directory)? {
            candidates.push(read(path)?);
        }
    }
    let indices = candidates.iter().map(|candidate| candidate.netdev.index).collect();
    Ok(Netdevs { own: choose(candidates), indices })
}

/// Where a function's interfaces are: a virtio device is between it and them.
fn directories(device: &Path) -> Result<Vec<PathBuf>, HostError> {
    if sysfs::target_name(&device.join("driver"))?.as_deref() != Some("virtio-pci") {
        return Ok(vec![device.join("net")]);
    }
    let names = sysfs::names(device)?;
    let virtio = names.iter().filter(|name| name.starts_with("virtio"));
    Ok(virtio.map(|name| device.join(name).join("net")).collect())
}

/// The function's own port and not the stand-in of one of its VFs; the first port of a card that has several
/// behind one function.
fn choose(candidates: Vec<Candidate>) -> Option<Netdev> {
    candidates
        .into_iter()
        .filter(|candidate| !candidate.is_representor)
        .min_by_key(|candidate| (candidate.port, candidate.netdev.index))
        .map(|candidate| candidate.netdev)
}

fn read(path: PathBuf) -> Result<Candidate, HostError> {
    let index = sysfs::read_of_interface(&path.join("ifindex"), "the index of an interface", parse::index)?;
    let port = sysfs::read_of_interface(&path.join("dev_port"), "the number of a port", parse::port);
    let port_name = sysfs::read_if_said(&path.join("phys_port_name"))?;
    Ok(Candidate {
        netdev: Netdev { index, path },
        port: sysfs::if_there(port)?.unwrap_or(0),
        is_representor: port_name.is_some_and(|name| parse::is_representor(&name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(index: u32, port: u32, is_representor: bool) -> Candidate {
        Candidate { netdev: Netdev { index, path: PathBuf::new() }, port, is_representor }
    }

    #[test]
    fn takes_the_first_port_that_is_no_representor() {
        let chosen = choose(vec![candidate(3, 0, true), candidate(9, 1, false), candidate(7, 0, false)]);
        assert_eq!(chosen.map(|netdev| netdev.index), Some(7));
        assert_eq!(choose(vec![candidate(3, 0, true)]), None);
        assert_eq!(choose(Vec::new()), None);
    }

    #[test]
    fn takes_the_older_of_two_on_one_port() {
        let chosen = choose(vec![candidate(9, 0, false), candidate(4, 0, false)]);
        assert_eq!(chosen.map(|netdev| netdev.index), Some(4));
    }
}
