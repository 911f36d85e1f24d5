//! The network interface of a PCI function.

use std::io;
use std::path::Path;

use super::{parse, sysfs};
use crate::HostError;

/// ENODATA, EOPNOTSUPP and EINVAL: a driver that has nothing to say.
const NOTHING_TO_SAY: [i32; 3] = [61, 95, 22];

/// A network interface, known by its index: udev changes names at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Netdev {
    pub(super) index: u32,
    /// Mbit/s, while there is a carrier.
    pub(super) speed: Option<u32>,
}

/// An interface of a function that may have several.
#[derive(Debug)]
struct Candidate {
    netdev: Netdev,
    port: u32,
    is_representor: bool,
}

/// The interface of the function at `device`, if it has one in the network namespace that sysfs shows.
pub(super) fn of_device(device: &Path) -> Result<Option<Netdev>, HostError> {
    let directory = device.join("net");
    let names = sysfs::names_if_there(&directory)?;
    let candidates =
        names.iter().map(|name| read(&directory.join(name))).collect::<Result<Vec<_>, HostError>>()?;
    Ok(choose(candidates))
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

fn read(interface: &Path) -> Result<Candidate, HostError> {
    let index = sysfs::read_as(&interface.join("ifindex"), "the index of an interface", parse::index)?;
    let port = sysfs::read_if_there(&interface.join("dev_port"), "the number of a port", parse::port)?;
    let port_name = said(&interface.join("phys_port_name"))?;
    Ok(Candidate {
        netdev: Netdev { index, speed: speed(&interface.join("speed"))? },
        port: port.unwrap_or(0),
        is_representor: port_name.is_some_and(|name| parse::is_representor(&name)),
    })
}

fn speed(path: &Path) -> Result<Option<u32>, HostError> {
    let Some(text) = said(path)? else { return Ok(None) };
    parse::speed(&text).map_err(|_| HostError::Unreadable {
        path: path.to_owned(),
        found: text,
        expected: "a speed in Mbit/s",
    })
}

/// What the file says; `None` when the driver has nothing to say or the kernel no such file.
pub(super) fn said(path: &Path) -> Result<Option<String>, HostError> {
    match sysfs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if has_nothing_to_say(&error) => Ok(None),
        Err(error) => Err(sysfs::failed("read", path, error)),
    }
}

fn has_nothing_to_say(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error().is_some_and(|errno| NOTHING_TO_SAY.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(index: u32, port: u32, is_representor: bool) -> Candidate {
        Candidate { netdev: Netdev { index, speed: None }, port, is_representor }
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
