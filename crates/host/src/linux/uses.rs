//! What the node used a moment ago, remembered by this process and on the disk.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vfleet_plan::drain::Moment;
use vfleet_plan::files::HOST_USES;
use vfleet_plan::{ClockReading, HostFacts, UseMemory};

use super::root::HostRoot;
use super::{durable, kept, sysfs};
use crate::{HostError, with_causes};

/// What this process remembers.
#[derive(Debug)]
pub(super) struct Remembered {
    uses: UseMemory,
    /// Whether the file has the same.
    is_written: bool,
}

/// Takes in a look at the machine, and adds to it what is remembered of earlier ones. `is_complete` is false when not all
/// uses could be observed. What cannot be written is remembered by this process alone.
pub(super) fn remember(
    root: &HostRoot,
    facts: &mut HostFacts,
    is_complete: bool,
    hold: Duration,
) -> Result<(), HostError> {
    let now = now(root, &facts.kernel.boot_id)?;
    let mut kept = kept::lock(&root.kept().uses);
    let remembered = match kept.take() {
        Some(remembered) => remembered,
        None => Remembered { uses: read(root)?, is_written: true },
    };
    let mut uses = remembered.uses.clone();
    uses.observe(facts, is_complete, &now, hold);
    uses.recall(facts, &now, hold);
    let is_news = uses != remembered.uses || !remembered.is_written;
    let is_written = !is_news || write(root, &uses);
    *kept = Some(Remembered { uses, is_written });
    Ok(())
}

fn read(root: &HostRoot) -> Result<UseMemory, HostError> {
    let path = root.at(HOST_USES);
    let Some(text) = durable::read_text(&path)? else { return Ok(UseMemory::default()) };
    // It must not be taken for nothing: what is in use might not be seen at this moment.
    let expected = "what the node used last: remove it to begin anew";
    parse(&text).ok_or(HostError::Unreadable { path, found: text, expected })
}

/// Parses the text of [`HOST_USES`].
pub(super) fn parse(text: &str) -> Option<UseMemory> {
    serde_json::from_str(text).ok()
}

fn write(root: &HostRoot, uses: &UseMemory) -> bool {
    let path = root.at(HOST_USES);
    let write = || {
        if uses.functions.is_empty() {
            return durable::remove(&path);
        }
        let text = serde_json::to_vec_pretty(uses)
            .map_err(|source| sysfs::failed("write to", &path, source.into()))?;
        durable::replace(&path, &text, durable::PUBLIC)
    };
    let written = write();
    if let Err(error) = &written {
        let error = with_causes(error);
        tracing::warn!(error, "what the node uses is not remembered beyond the end of this process");
    }
    written.is_ok()
}

fn now(root: &HostRoot, boot_id: &str) -> Result<ClockReading, HostError> {
    let since_boot = sysfs::read_as(&root.proc("uptime"), "the time since the start", uptime)?;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall = Moment(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX));
    Ok(ClockReading { boot_id: boot_id.to_owned(), since_boot, wall })
}

/// Parses `/proc/uptime`: seconds with two digits after the point, and what does not matter.
pub(super) fn uptime(text: &str) -> Option<Duration> {
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    let hundredths: u64 = hundredths.parse().ok().filter(|_| hundredths.len() == 2)?;
    Duration::from_secs(seconds.parse().ok()?).checked_add(Duration::from_millis(hundredths * 10))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vfleet_plan::{HostUse, RememberedUse};

    use super::*;
    use crate::linux::tree::Tree;

    fn one_use() -> UseMemory {
        let pf = "0000:01:00.0".parse().unwrap();
        let remembered =
            RememberedUse { pf, host_use: HostUse::DefaultRoute, seen_in: "boot".to_owned(), absence: None };
        UseMemory { functions: [(pf, remembered)].into() }
    }

    #[test]
    fn the_time_since_the_start_is_in_hundredths() {
        assert_eq!(uptime("12.05 40.00\n"), Some(Duration::from_millis(12_050)));
        for text in ["", "12", "12.5 1", "x.05", "-1.00", "99999999999999999999.00"] {
            assert_eq!(uptime(text), None, "{text}");
        }
    }

    #[test]
    fn another_process_remembers_what_one_wrote_and_a_damaged_file_is_not_nothing() {
        let tree = Tree::new();
        assert_eq!(read(tree.root()).unwrap(), UseMemory::default());
        assert!(write(tree.root(), &one_use()));
        assert_eq!(read(tree.root()).unwrap(), one_use());
        std::fs::write(tree.path(HOST_USES), "{").unwrap();
        let error = read(tree.root()).unwrap_err().to_string();
        assert!(error.contains("remove it to begin anew"), "{error}");
        assert!(write(tree.root(), &UseMemory::default()));
        assert!(!tree.path(HOST_USES).exists());
    }

    proptest! {
        #[test]
        fn takes_any_text(text in "(?s).{0,100}") {
            let _ = (uptime(&text), parse(&text));
        }
    }
}
