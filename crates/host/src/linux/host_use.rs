//! Recent uses of cards by the node, kept in memory and in a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vfleet_plan::drain::Moment;
use vfleet_plan::files::HOST_USES;
use vfleet_plan::{ClockReading, HostFacts, UseHistory};

use super::root::HostRoot;
use super::{atomic_file, cache, sysfs};
use crate::{HostError, format_error_chain};

/// Recent uses in the memory of this process.
#[derive(Debug)]
pub(super) struct CachedUses {
    uses: UseHistory,
    /// The file has the same content.
    is_written: bool,
}

/// Stores the uses in `facts` and adds recent uses to `facts`. `is_complete` is false if not all uses could be
/// observed. If the file cannot be written, the uses are kept in memory only.
pub(super) fn update(
    root: &HostRoot,
    facts: &mut HostFacts,
    is_complete: bool,
    hold: Duration,
) -> Result<(), HostError> {
    let now = read_clock(root, &facts.kernel.boot_id)?;
    let mut cached = cache::lock(&root.cache().uses);
    let previous = match cached.take() {
        Some(previous) => previous,
        None => CachedUses { uses: read(root)?, is_written: true },
    };
    let mut uses = previous.uses.clone();
    uses.update(facts, is_complete, &now, hold);
    uses.add_lingering_uses(facts, &now, hold);
    let has_changed = uses != previous.uses || !previous.is_written;
    let is_written = !has_changed || write(root, &uses);
    *cached = Some(CachedUses { uses, is_written });
    Ok(())
}

fn read(root: &HostRoot) -> Result<UseHistory, HostError> {
    let path = root.at(HOST_USES);
    let Some(text) = atomic_file::read_text(&path)? else { return Ok(UseHistory::default()) };
    // A damaged file must not count as an empty one: a card in use may look unused at this moment.
    let expected = "recent uses of cards as JSON: remove the file to discard them";
    parse(&text).ok_or(HostError::InvalidContent { path, found: text, expected })
}

/// Parses the text of [`HOST_USES`].
pub(super) fn parse(text: &str) -> Option<UseHistory> {
    serde_json::from_str(text).ok()
}

fn write(root: &HostRoot, uses: &UseHistory) -> bool {
    let path = root.at(HOST_USES);
    let write = || {
        if uses.functions.is_empty() {
            return atomic_file::remove(&path);
        }
        let text = serde_json::to_vec_pretty(uses)
            .map_err(|source| sysfs::failed("write to", &path, source.into()))?;
        atomic_file::replace(&path, &text, atomic_file::PUBLIC)
    };
    let written = write();
    if let Err(error) = &written {
        let error = format_error_chain(error);
        tracing::warn!(
            error,
            "cannot store which cards the node uses, they are known until the agent restarts"
        );
    }
    written.is_ok()
}

fn read_clock(root: &HostRoot, boot_id: &str) -> Result<ClockReading, HostError> {
    let since_boot = sysfs::read_as(&root.proc("uptime"), "the time since boot", parse_uptime)?;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall = Moment(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX));
    Ok(ClockReading { boot_id: boot_id.to_owned(), since_boot, wall })
}

/// Parses the first number of `/proc/uptime`: seconds with two decimal places.
pub(super) fn parse_uptime(text: &str) -> Option<Duration> {
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    let hundredths: u64 = hundredths.parse().ok().filter(|_| hundredths.len() == 2)?;
    Duration::from_secs(seconds.parse().ok()?).checked_add(Duration::from_millis(hundredths * 10))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vfleet_plan::{HostUse, RememberedUse};

    use super::*;
    use crate::linux::test_tree::TestTree;

    fn one_use() -> UseHistory {
        let pf = "0000:01:00.0".parse().unwrap();
        let remembered = RememberedUse {
            pf,
            host_use: HostUse::DefaultRoute,
            is_possible: false,
            last_boot_id: "boot".to_owned(),
            absence: None,
        };
        UseHistory { functions: [(pf, remembered)].into() }
    }

    #[test]
    fn the_uptime_has_two_decimal_places() {
        assert_eq!(parse_uptime("12.05 40.00\n"), Some(Duration::from_millis(12_050)));
        for text in ["", "12", "12.5 1", "x.05", "-1.00", "99999999999999999999.00"] {
            assert_eq!(parse_uptime(text), None, "{text}");
        }
    }

    #[test]
    fn the_uses_are_read_from_the_file_and_a_damaged_file_is_an_error() {
        let tree = TestTree::new();
        assert_eq!(read(tree.root()).unwrap(), UseHistory::default());
        assert!(write(tree.root(), &one_use()));
        assert_eq!(read(tree.root()).unwrap(), one_use());
        std::fs::write(tree.path(HOST_USES), "{").unwrap();
        let error = read(tree.root()).unwrap_err().to_string();
        assert!(error.contains("remove the file to discard them"), "{error}");
        assert!(write(tree.root(), &UseHistory::default()));
        assert!(!tree.path(HOST_USES).exists());
    }

    proptest! {
        #[test]
        fn accepts_any_text(text in "(?s).{0,100}") {
            let _ = (parse_uptime(&text), parse(&text));
        }
    }
}
