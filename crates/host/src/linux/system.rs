//! Kernel facts and reboots.

use vfleet_plan::files::REBOOTS;
use vfleet_plan::{KernelFacts, Processor, Reboots};

use super::command::Command;
use super::root::HostRoot;
use super::{atomic_file, boot_loader, modules, sysfs, systemd};
use crate::HostError;

/// Reads the facts of the kernel, except the RDMA mode.
pub(super) fn read_kernel_facts(root: &HostRoot) -> Result<KernelFacts, HostError> {
    Ok(KernelFacts {
        command_line: read_proc(root, "cmdline")?,
        boot_loader: boot_loader::find(root),
        boot_id: read_boot_id(root)?,
        reboots: read_reboots(root)?,
        processor: parse_processor(&read_proc(root, "cpuinfo")?),
        has_iommu: !sysfs::list_names_if_exists(&root.at("/sys/kernel/iommu_groups"))?.is_empty(),
        is_locked_down: is_locked_down(root)?,
        modules: modules::read_states(root)?,
        rdma_mode: None,
    })
}

/// Reads the ID of the current boot.
pub(super) fn read_boot_id(root: &HostRoot) -> Result<String, HostError> {
    read_proc(root, "sys/kernel/random/boot_id")
}

fn read_proc(root: &HostRoot, name: &str) -> Result<String, HostError> {
    let path = root.proc(name);
    sysfs::read(&path).map_err(|source| sysfs::failed("read", &path, source))
}

/// Parses the vendor of the first processor in `/proc/cpuinfo`.
pub(super) fn parse_processor(info: &str) -> Processor {
    let vendor =
        info.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == "vendor_id");
    match vendor.map(|(_, vendor)| vendor.trim()) {
        Some("GenuineIntel") => Processor::Intel,
        Some("AuthenticAMD" | "HygonGenuine") => Processor::Amd,
        _ => Processor::Other,
    }
}

/// Returns whether kernel lockdown is active. A kernel without the file has no lockdown.
fn is_locked_down(root: &HostRoot) -> Result<bool, HostError> {
    let path = root.at("/sys/kernel/security/lockdown");
    Ok(sysfs::read_if_exists(&path, "the lockdown level", parse_lockdown)?.unwrap_or(false))
}

/// Parses the levels of lockdown, of which the active one is marked: `none [integrity] confidentiality`.
pub(super) fn parse_lockdown(levels: &str) -> Option<bool> {
    let level = levels.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    Some(level != "none")
}

fn read_reboots(root: &HostRoot) -> Result<Option<Reboots>, HostError> {
    let path = root.at(REBOOTS);
    let Some(text) = atomic_file::read_text(&path)? else { return Ok(None) };
    let parsed = serde_json::from_str(&text).map(Some);
    // A damaged file must not count as no reboots: the node might reboot forever.
    let expected = "a count of reboots: remove the file to start a new count";
    parsed.map_err(|_| HostError::InvalidContent { path, found: text, expected })
}

/// Writes the count of requested reboots.
pub(super) fn count_reboot(root: &HostRoot, reboots: &Reboots) -> Result<(), HostError> {
    let path = root.at(REBOOTS);
    let text = serde_json::to_vec_pretty(reboots)
        .map_err(|source| sysfs::failed("write to", &path, source.into()))?;
    atomic_file::replace(&path, &text, atomic_file::PRIVATE)
}

/// Removes the count of requested reboots.
pub(super) fn forget_reboots(root: &HostRoot) -> Result<(), HostError> {
    atomic_file::remove(&root.at(REBOOTS))
}

/// Requests a reboot of the machine, as `systemctl reboot` does: services are stopped first, and later jobs cannot
/// cancel it. Returns when systemd has accepted the request.
pub(super) fn reboot(root: &HostRoot, attempt: &str) -> Result<(), HostError> {
    if !systemd::is_available(root) {
        return Command::new("systemctl", systemd::REBOOT_TIMEOUT).arguments(["reboot"]).run(root).map(drop);
    }
    systemd::reboot(root, attempt)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::linux::test_tree::TestTree;

    #[test]
    fn the_vendor_of_the_first_processor_is_parsed() {
        let info = |vendor: &str| format!("processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: vendor_id\n");
        assert_eq!(parse_processor(&info("GenuineIntel")), Processor::Intel);
        assert_eq!(parse_processor(&info("AuthenticAMD")), Processor::Amd);
        assert_eq!(parse_processor(&info("IBM/S390")), Processor::Other);
        assert_eq!(parse_processor("processor\t: 0\nCPU implementer\t: 0x41\n"), Processor::Other);
    }

    proptest! {
        #[test]
        fn accepts_any_text(text in "(?s).{0,200}") {
            let _ = (parse_processor(&text), parse_lockdown(&text));
        }

        /// A damaged file of reboots never counts as no reboots.
        #[test]
        fn a_damaged_count_of_reboots_never_counts_as_none(at in 0..60_usize, byte: u8, length in 0..60_usize) {
            let tree = TestTree::new();
            let counted = Reboots::for_need("x", 2, "y");
            count_reboot(tree.root(), &counted).unwrap();
            let mut bytes = std::fs::read(tree.path(REBOOTS)).unwrap();
            if let Some(found) = bytes.get_mut(at) {
                *found = byte;
            }
            bytes.truncate(length);
            std::fs::write(tree.path(REBOOTS), bytes).unwrap();
            prop_assert_ne!(read_reboots(tree.root()).ok(), Some(None));
        }
    }
}
