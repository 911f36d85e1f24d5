//! Parts of the kernel that are known by name: generic netlink families.

use netlink_sys::protocols::NETLINK_GENERIC;

use super::netlink::{Attributes, Conversation, attributes, find, nonsense};
use crate::HostError;

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const HEADER: usize = 4;
const ENOENT: i32 = 2;

/// A family, to talk to.
pub(super) struct Family {
    conversation: Conversation,
    id: u16,
}

impl Family {
    /// The family of this name; `None` when this kernel has none, or its module is not loaded.
    pub(super) fn open(name: &str) -> Result<Option<Self>, HostError> {
        let attempt = format!("find the kernel's part {name}");
        let mut conversation = Conversation::open(NETLINK_GENERIC)?;
        let body = body(CTRL_CMD_GETFAMILY, &Attributes::default().with_text(CTRL_ATTR_FAMILY_NAME, name));
        match conversation.ask(GENL_ID_CTRL, &body, &attempt) {
            Ok(answer) => {
                let id = family_id(&answer).ok_or_else(|| nonsense(&attempt))?;
                Ok(Some(Self { conversation, id }))
            }
            Err(error) if error.errno() == Some(ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks; gives the attributes of the answer, as they came.
    pub(super) fn ask(
        &mut self,
        command: u8,
        what: &Attributes,
        attempt: &str,
    ) -> Result<Vec<u8>, HostError> {
        let mut answer = self.conversation.ask(self.id, &body(command, what), attempt)?;
        if answer.len() < HEADER {
            return Err(nonsense(attempt));
        }
        Ok(answer.split_off(HEADER))
    }

    /// Has something changed, and waits until that is done.
    pub(super) fn change(&mut self, command: u8, what: &Attributes, attempt: &str) -> Result<(), HostError> {
        self.conversation.change(self.id, &body(command, what), attempt)
    }
}

/// A request's body. All families that are asked here have version 1.
pub(super) fn body(command: u8, what: &Attributes) -> Vec<u8> {
    what.after(&[command, 1, 0, 0])
}

pub(super) fn family_id(answer: &[u8]) -> Option<u16> {
    let id = find(&attributes(answer.get(HEADER..)?)?, CTRL_ATTR_FAMILY_ID)?;
    Some(u16::from_ne_bytes(id.try_into().ok()?))
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
