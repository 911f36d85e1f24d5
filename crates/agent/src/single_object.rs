//! Watch of one object, which is selected by its name.

use kube::runtime::watcher::Event;

/// Returns the object after this event; `None` while a list is incomplete. An object that was deleted while the watch was
/// interrupted is missing in the next list.
#[expect(clippy::option_option, reason = "unknown differs from absent")]
pub(crate) fn apply_event<K>(listed: &mut Option<K>, event: Event<K>) -> Option<Option<K>> {
    match event {
        Event::Init => {
            *listed = None;
            None
        }
        Event::InitApply(object) => {
            *listed = Some(object);
            None
        }
        Event::InitDone => Some(listed.take()),
        Event::Apply(object) => Some(Some(object)),
        Event::Delete(_) => Some(None),
    }
}

/// Returns whether a version of an object is older than the one that is stored. Versions that cannot be compared count as
/// newer.
pub(crate) fn is_older(version: Option<&str>, stored: Option<&str>) -> bool {
    let number = |version: Option<&str>| version?.parse::<u64>().ok();
    number(version).zip(number(stored)).is_some_and(|(version, stored)| version < stored)
}
