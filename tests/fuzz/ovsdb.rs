//! Messages of the Open vSwitch database server.

use vfleet_host::fuzzing;

use crate::driver::{Target, Verdict};

/// Size of the pieces in which the server sends a torn message.
const PIECE: usize = 7;

#[test]
fn ovsdb() {
    Target::new("ovsdb").run(|bytes| {
        let (messages, error) = fuzzing::ovsdb_messages(bytes, bytes.len());
        let (torn, torn_error) = fuzzing::ovsdb_messages(bytes, PIECE);
        assert_eq!(messages, torn, "pieces change the messages");
        assert_eq!(error.is_some(), torn_error.is_some(), "{error:?} and {torn_error:?}");
        assert!(messages.len() * 2 <= bytes.len(), "more messages than the input can contain");
        let mut is_accepted = false;
        for message in messages {
            let Some(database) = fuzzing::ovsdb_message(message) else { continue };
            is_accepted = true;
            assert!(database.bridges.is_sorted_by(|one, other| one.name <= other.name), "{database:?}");
            for bridge in &database.bridges {
                assert!(bridge.ports.is_sorted_by(|one, other| one.name <= other.name), "{bridge:?}");
                assert_eq!(database.bridge(&bridge.name).map(|found| &found.name), Some(&bridge.name));
            }
        }
        Verdict::of(is_accepted)
    });
}

#[test]
fn ovsdb_switch() {
    Target::new("ovsdb_switch").run(|bytes| {
        let (messages, _) = fuzzing::ovsdb_messages(bytes, bytes.len());
        let mut is_accepted = false;
        for bridges in messages.into_iter().filter_map(fuzzing::ovsdb_switch) {
            is_accepted = true;
            assert!(bridges.is_sorted_by(|one, other| one.name <= other.name), "{bridges:?}");
            for bridge in &bridges {
                assert!(bridge.ports.is_sorted_by(|one, other| one.name <= other.name), "{bridge:?}");
                assert!(bridge.mirrors.is_sorted_by(|one, other| one.name <= other.name), "{bridge:?}");
            }
        }
        Verdict::of(is_accepted)
    });
}
