//! Parts of the kernel that are known by name: generic netlink families.

use netlink_sys::protocols::NETLINK_GENERIC;

use super::attribute::{Attributes, Received};
use super::{Connection, Request, unreadable};
use crate::HostError;

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// All families that are used here have this version.
const VERSION: u8 = 1;
const HEADER: usize = 4;
const ENOENT: i32 = 2;

/// A command to a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct Command {
    pub(super) number: u8,
    pub(super) attributes: Attributes,
}

impl Command {
    /// Returns the message that carries it to the family with this number.
    pub(super) fn request(&self, family: u16) -> Request {
        Request { kind: family, body: self.attributes.after(&[self.number, VERSION, 0, 0]) }
    }
}

/// A connection to a family.
pub(in crate::linux) struct Family {
    connection: Connection,
    id: u16,
}

impl Family {
    /// Connects to the family of this name; `None` when this kernel has none, or its module is not loaded.
    pub(in crate::linux) fn open(name: &str) -> Result<Option<Self>, HostError> {
        let attempt = format!("find the kernel's part {name}");
        let mut connection = Connection::open(NETLINK_GENERIC)?;
        match connection.get(&find(name).request(GENL_ID_CTRL), &attempt) {
            Ok(answer) => {
                let id = family_id(&answer).ok_or_else(|| unreadable(&attempt))?;
                Ok(Some(Self { connection, id }))
            }
            Err(error) if error.errno() == Some(ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads one object; returns the attributes of the answer, as they came.
    pub(in crate::linux) fn get(&mut self, command: &Command, attempt: &str) -> Result<Vec<u8>, HostError> {
        let mut answer = self.connection.get(&command.request(self.id), attempt)?;
        if answer.len() < HEADER {
            return Err(unreadable(attempt));
        }
        Ok(answer.split_off(HEADER))
    }

    /// Changes something, and waits until the kernel has done it.
    pub(in crate::linux) fn change(&mut self, command: &Command, attempt: &str) -> Result<(), HostError> {
        self.connection.change(&command.request(self.id), attempt)
    }
}

/// Asks which number the family of this name has.
pub(super) fn find(name: &str) -> Command {
    let attributes = Attributes::default().with_text(CTRL_ATTR_FAMILY_NAME, name);
    Command { number: CTRL_CMD_GETFAMILY, attributes }
}

pub(in crate::linux) fn family_id(answer: &[u8]) -> Option<u16> {
    Received::parse(answer.get(HEADER..)?)?.u16(CTRL_ATTR_FAMILY_ID)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernel_knows_itself_and_no_nonsense() {
        assert_eq!(Family::open("nlctrl").unwrap().map(|family| family.id), Some(GENL_ID_CTRL));
        assert!(Family::open("no-such-family").unwrap().is_none());
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = family_id(&bytes);
        }
    }
}
