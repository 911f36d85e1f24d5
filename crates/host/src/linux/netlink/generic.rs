//! Generic netlink families: subsystems of the kernel that are identified by name.

use netlink_sys::protocols::NETLINK_GENERIC;

use super::attribute::{Attributes, ReceivedAttributes};
use super::{NetlinkConnection, NetlinkRequest, invalid_answer};
use crate::HostError;

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Version of all families that are used here.
const VERSION: u8 = 1;
const HEADER: usize = 4;
const ENOENT: i32 = 2;

/// Command to a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct FamilyCommand {
    pub(super) number: u8,
    pub(super) attributes: Attributes,
}

impl FamilyCommand {
    /// Returns the message with this command for the family with this number.
    pub(super) fn request(&self, family: u16) -> NetlinkRequest {
        NetlinkRequest { kind: family, body: self.attributes.after(&[self.number, VERSION, 0, 0]) }
    }
}

/// Connection to a family.
pub(in crate::linux) struct Family {
    connection: NetlinkConnection,
    id: u16,
}

impl Family {
    /// Connects to the family with this name; `None` if the kernel does not have it, or its module is not loaded.
    pub(in crate::linux) fn open(name: &str) -> Result<Option<Self>, HostError> {
        let attempt = format!("find the netlink family {name}");
        let mut connection = NetlinkConnection::open(NETLINK_GENERIC)?;
        match connection.get(&get_family(name).request(GENL_ID_CTRL), &attempt) {
            Ok(answer) => {
                let id = parse_family_id(&answer).ok_or_else(|| invalid_answer(&attempt))?;
                Ok(Some(Self { connection, id }))
            }
            Err(error) if error.errno() == Some(ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads one object and returns the attributes of the answer.
    pub(in crate::linux) fn get(
        &mut self,
        command: &FamilyCommand,
        attempt: &str,
    ) -> Result<Vec<u8>, HostError> {
        let mut answer = self.connection.get(&command.request(self.id), attempt)?;
        if answer.len() < HEADER {
            return Err(invalid_answer(attempt));
        }
        Ok(answer.split_off(HEADER))
    }

    /// Lists all objects of a kind. `parse` gets the attributes of one object. An object that it rejects is an error.
    pub(in crate::linux) fn dump<T>(
        &mut self,
        command: &FamilyCommand,
        attempt: &str,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, HostError> {
        self.connection.dump(&command.request(self.id), attempt, |answer| parse(answer.get(HEADER..)?))
    }

    /// Sends a command that changes something, and waits for the acknowledgment.
    pub(in crate::linux) fn change(
        &mut self,
        command: &FamilyCommand,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.connection.change(&command.request(self.id), attempt)
    }
}

/// Returns the request for the number of a family.
pub(super) fn get_family(name: &str) -> FamilyCommand {
    let attributes = Attributes::default().with_text(CTRL_ATTR_FAMILY_NAME, name);
    FamilyCommand { number: CTRL_CMD_GETFAMILY, attributes }
}

/// Parses the answer to [`get_family`].
pub(in crate::linux) fn parse_family_id(answer: &[u8]) -> Option<u16> {
    ReceivedAttributes::parse(answer.get(HEADER..)?)?.u16(CTRL_ATTR_FAMILY_ID)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_controller_family_is_found_and_an_unknown_one_is_not() {
        assert_eq!(Family::open("nlctrl").unwrap().map(|family| family.id), Some(GENL_ID_CTRL));
        assert!(Family::open("no-such-family").unwrap().is_none());
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse_family_id(&bytes);
        }
    }
}
