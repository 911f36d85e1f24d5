//! Interfaces of a PCI function.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{parse, sysfs};
use crate::HostError;

/// Interface, identified by its index: udev may rename it at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Netdev {
    pub(super) index: u32,
    /// Directory in sysfs.
    path: PathBuf,
}

impl Netdev {
    /// Reads the speed in Mbit/s, which is known while the link has a carrier.
    pub(super) fn read_speed(&self) -> Result<Option<u32>, HostError> {
        let path = self.path.join("speed");
        let Some(text) = sysfs::read_if_supported(&path)? else { return Ok(None) };
        parse::speed(&text).map_err(|_| HostError::InvalidContent {
            path,
            found: text,
            expected: "a speed in Mbit/s",
        })
    }
}

/// Interfaces of a function in the network namespace of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Netdevs {
    /// Interface of the function itself.
    pub(super) own: Option<Netdev>,
    /// Indexes of all interfaces, including representors of its VFs.
    pub(super) indexes: BTreeSet<u32>,
}

/// Interface of a function that may have several.
#[derive(Debug)]
struct Candidate {
    netdev: Netdev,
    port: u32,
    is_representor: bool,
}

/// Returns the interface of the function itself.
pub(super) fn of_device(device: &Path) -> Result<Option<Netdev>, HostError> {
    list(device).map(|netdevs| netdevs.own)
}

/// Lists the interfaces of the function at `device`. An interface that vanishes meanwhile is an error: see
/// [`super::stable_read`].
pub(super) fn list(device: &Path) -> Result<Netdevs, HostError> {
    let paths = interface_paths(device)?;
    let has_several = paths.len() > 1;
    let candidates = paths.into_iter().map(|path| read(path, has_several)).collect::<Result<Vec<_>, _>>()?;
    let indexes = candidates.iter().map(|candidate| candidate.netdev.index).collect();
    Ok(Netdevs { own: choose(candidates), indexes })
}

/// Returns the directories of the interfaces of a function, sorted. They belong to a virtio device if the driver is virtio-pci.
fn interface_paths(device: &Path) -> Result<Vec<PathBuf>, HostError> {
    let mut paths = sysfs::list_paths_if_exists(&device.join("net"))?;
    if paths.is_empty() && sysfs::target_name(&device.join("driver"))?.as_deref() == Some("virtio-pci") {
        for name in sysfs::list_names(device)?.iter().filter(|name| name.starts_with("virtio")) {
            paths.extend(sysfs::list_paths_if_exists(&device.join(name).join("net"))?);
        }
    }
    Ok(paths)
}

/// Returns the interface of the function itself, not a representor: the one with the lowest port, if the function has
/// several ports.
fn choose(candidates: Vec<Candidate>) -> Option<Netdev> {
    candidates
        .into_iter()
        .filter(|candidate| !candidate.is_representor)
        .min_by_key(|candidate| (candidate.port, candidate.netdev.index))
        .map(|candidate| candidate.netdev)
}

/// Reads an interface; its port only if the function has several.
fn read(path: PathBuf, has_several: bool) -> Result<Candidate, HostError> {
    let index = sysfs::read_of_interface(&path.join("ifindex"), "the index of an interface", parse::index)?;
    let port = if has_several { read_port(&path)? } else { 0 };
    let port_name = sysfs::read_if_supported(&path.join("phys_port_name"))?;
    Ok(Candidate {
        netdev: Netdev { index, path },
        port,
        is_representor: port_name.is_some_and(|name| parse::is_representor(&name)),
    })
}

fn read_port(path: &Path) -> Result<u32, HostError> {
    let port = sysfs::read_of_interface(&path.join("dev_port"), "the number of a port", parse::port);
    Ok(sysfs::none_if_not_found(port)?.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(index: u32, port: u32, is_representor: bool) -> Candidate {
        Candidate { netdev: Netdev { index, path: PathBuf::new() }, port, is_representor }
    }

    #[test]
    fn chooses_the_first_port_that_is_no_representor() {
        let chosen = choose(vec![candidate(3, 0, true), candidate(9, 1, false), candidate(7, 0, false)]);
        assert_eq!(chosen.map(|netdev| netdev.index), Some(7));
        assert_eq!(choose(vec![candidate(3, 0, true)]), None);
        assert_eq!(choose(Vec::new()), None);
    }

    #[test]
    fn chooses_the_older_of_two_interfaces_on_one_port() {
        let chosen = choose(vec![candidate(9, 0, false), candidate(4, 0, false)]);
        assert_eq!(chosen.map(|netdev| netdev.index), Some(4));
    }
}
