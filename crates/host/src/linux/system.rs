//! The kernel and how it is started; restarts.

use vfleet_plan::files::REBOOTS;
use vfleet_plan::{KernelFacts, Processor, Reboots};

use super::command::Command;
use super::root::HostRoot;
use super::{boot_loader, durable, modules, sysfs, systemd};
use crate::HostError;

/// The kernel, and how it is started.
pub(super) fn kernel(root: &HostRoot) -> Result<KernelFacts, HostError> {
    Ok(KernelFacts {
        command_line: proc(root, "cmdline")?,
        boot_loader: boot_loader::find(root),
        boot_id: proc(root, "sys/kernel/random/boot_id")?,
        reboots: reboots(root)?,
        processor: processor(&proc(root, "cpuinfo")?),
        has_iommu: !sysfs::names_if_there(&root.at("/sys/kernel/iommu_groups"))?.is_empty(),
        is_locked_down: is_locked_down(root)?,
        modules: modules::states(root)?,
        rdma_mode: None,
    })
}

fn proc(root: &HostRoot, name: &str) -> Result<String, HostError> {
    let path = root.proc(name);
    sysfs::read(&path).map_err(|source| sysfs::failed("read", &path, source))
}

pub(super) fn processor(info: &str) -> Processor {
    let vendor =
        info.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == "vendor_id");
    match vendor.map(|(_, vendor)| vendor.trim()) {
        Some("GenuineIntel") => Processor::Intel,
        Some("AuthenticAMD" | "HygonGenuine") => Processor::Amd,
        _ => Processor::Other,
    }
}

/// The kernel marks the level that counts: `none [integrity] confidentiality`. Without the file there is no lockdown.
fn is_locked_down(root: &HostRoot) -> Result<bool, HostError> {
    let path = root.at("/sys/kernel/security/lockdown");
    Ok(sysfs::read_if_there(&path, "the level of lockdown", locks_down)?.unwrap_or(false))
}

pub(super) fn locks_down(levels: &str) -> Option<bool> {
    let level = levels.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    Some(level != "none")
}

fn reboots(root: &HostRoot) -> Result<Option<Reboots>, HostError> {
    let path = root.at(REBOOTS);
    let Some(text) = durable::read_text(&path)? else { return Ok(None) };
    let parsed = serde_json::from_str(&text).map(Some);
    // It must not be taken for no restarts: then there would be no end of them.
    let expected = "a count of restarts: remove it to begin a new count";
    parsed.map_err(|_| HostError::Unreadable { path, found: text, expected })
}

/// Writes down that a restart is asked for.
pub(super) fn count_reboot(root: &HostRoot, reboots: &Reboots) -> Result<(), HostError> {
    let path = root.at(REBOOTS);
    let text = serde_json::to_vec_pretty(reboots)
        .map_err(|source| sysfs::failed("write to", &path, source.into()))?;
    durable::replace(&path, &text, durable::PRIVATE)
}

pub(super) fn forget_reboots(root: &HostRoot) -> Result<(), HostError> {
    durable::remove(&root.at(REBOOTS))
}

/// Asks for a restart of the machine, as `systemctl reboot` does: services are stopped first, and nothing that is
/// started later can call it off. It is over when systemd has accepted.
pub(super) fn reboot(root: &HostRoot, attempt: &str) -> Result<(), HostError> {
    if !systemd::is_there(root) {
        return Command::new("systemctl", systemd::ACCEPTING).arguments(["reboot"]).run(root).map(drop);
    }
    systemd::reboot(root, attempt)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::linux::tree::Tree;

    #[test]
    fn the_vendor_of_the_first_processor_counts() {
        let info = |vendor: &str| format!("processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: vendor_id\n");
        assert_eq!(processor(&info("GenuineIntel")), Processor::Intel);
        assert_eq!(processor(&info("AuthenticAMD")), Processor::Amd);
        assert_eq!(processor(&info("IBM/S390")), Processor::Other);
        assert_eq!(processor("processor\t: 0\nCPU implementer\t: 0x41\n"), Processor::Other);
    }

    proptest! {
        #[test]
        fn takes_any_text(text in "(?s).{0,200}") {
            let _ = (processor(&text), locks_down(&text));
        }

        /// Whatever the file of restarts says: it is never taken for no restarts.
        #[test]
        fn a_damaged_count_of_restarts_is_none_that_was_not_counted(at in 0..60_usize, byte: u8, length in 0..60_usize) {
            let tree = Tree::new();
            let counted = Reboots::for_one("x", 2, "y");
            count_reboot(tree.root(), &counted).unwrap();
            let mut bytes = std::fs::read(tree.path(REBOOTS)).unwrap();
            if let Some(found) = bytes.get_mut(at) {
                *found = byte;
            }
            bytes.truncate(length);
            std::fs::write(tree.path(REBOOTS), bytes).unwrap();
            prop_assert_ne!(reboots(tree.root()).ok(), Some(None));
        }
    }
}
