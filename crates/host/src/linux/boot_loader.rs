//! Boot loaders: detection, and changes of kernel arguments.
//!
//! | detected by | changed by |
//! | --- | --- |
//! | an ostree system with rpm-ostree | `rpm-ostree kargs` |
//! | grubby | `grubby --update-kernel=ALL` |
//! | `/etc/default/grub` and update-grub | our own file in `/etc/default/grub.d`, then `update-grub` |
//! | kernel-install, and its command line or systemd-boot's entries | `/etc/kernel/cmdline`, then `kernel-install` for each kernel |
//!
//! With systemd-boot, entries are not edited directly: the entry of the next kernel would lack the change, and a
//! unified kernel image has no entry. Both are generated from `/etc/kernel/cmdline`.

pub(super) mod arguments;

use std::time::Duration;

use vfleet_plan::BootLoader;

use self::arguments::{DropIn, first_entry_arguments, is_plain, merge, parse_grubby_arguments};
use super::command::{self, Command};
use super::root::HostRoot;
use super::{atomic_file, sysfs};
use crate::HostError;

/// Limit for a change: rpm-ostree creates a new deployment, update-grub reads every disk.
const CHANGE_TIMEOUT: Duration = Duration::from_mins(4);
const DROP_IN: &str = "/etc/default/grub.d/90-vfleet.cfg";
const GRUB_CONFIG: &str = "/boot/grub/grub.cfg";
const COMMAND_LINE: &str = "/etc/kernel/cmdline";
/// Kernel arguments of the distribution.
const DEFAULT_COMMAND_LINE: &str = "/usr/lib/kernel/cmdline";
const ENTRIES: [&str; 3] = ["/efi/loader/entries", "/boot/loader/entries", "/boot/efi/loader/entries"];
const MODULES: &str = "/lib/modules";

/// Returns the boot loader of the machine, if it is a supported one.
pub(super) fn find(root: &HostRoot) -> Option<BootLoader> {
    let has = |program| command::find(root, program).is_some();
    let is_there = |path: &&str| root.at(path).exists();
    if is_there(&"/run/ostree-booted") && has("rpm-ostree") {
        Some(BootLoader::RpmOstree)
    } else if has("grubby") {
        Some(BootLoader::Grubby)
    } else if is_there(&"/etc/default/grub") && has("update-grub") {
        Some(BootLoader::GrubDropIn)
    } else if has("kernel-install") && (is_there(&COMMAND_LINE) || ENTRIES.iter().any(is_there)) {
        Some(BootLoader::SystemdBoot)
    } else {
        None
    }
}

/// Changes the kernel arguments of the next boot. Arguments that need no change are left alone.
pub(super) fn change_arguments(
    root: &HostRoot,
    loader: BootLoader,
    add: &[String],
    remove: &[String],
    attempt: &str,
) -> Result<(), HostError> {
    if let Some(argument) = add.iter().chain(remove).find(|argument| !is_plain(argument)) {
        return Err(HostError::InvalidKernelArgument { argument: argument.clone() });
    }
    if find(root) != Some(loader) {
        return Err(HostError::WrongBootLoader { loader: loader.as_str() });
    }
    let next = match loader {
        BootLoader::RpmOstree => change_by_rpm_ostree(root, add, remove)?,
        BootLoader::Grubby => change_by_grubby(root, add, remove)?,
        BootLoader::GrubDropIn => change_by_grub_drop_in(root, add, remove)?,
        BootLoader::SystemdBoot => change_by_kernel_install(root, add, remove)?,
    };
    verify(&next, add, remove, attempt)
}

/// Changes the arguments and returns those of the next boot, as the other `change_by_` functions do.
fn change_by_rpm_ostree(root: &HostRoot, add: &[String], remove: &[String]) -> Result<String, HostError> {
    let rpm_ostree = || Command::new("rpm-ostree", CHANGE_TIMEOUT).arguments(["kargs"]);
    let added = add.iter().map(|argument| format!("--append-if-missing={argument}"));
    let removed = remove.iter().map(|argument| format!("--delete-if-present={argument}"));
    rpm_ostree().arguments(added.chain(removed)).run(root)?;
    rpm_ostree().run(root)
}

fn change_by_grubby(root: &HostRoot, add: &[String], remove: &[String]) -> Result<String, HostError> {
    let grubby = || Command::new("grubby", CHANGE_TIMEOUT);
    let list = |option: &str, arguments: &[String]| {
        (!arguments.is_empty()).then(|| format!("--{option}={}", arguments.join(" ")))
    };
    let options = [list("args", add), list("remove-args", remove)];
    grubby().arguments(["--update-kernel=ALL"]).arguments(options.into_iter().flatten()).run(root)?;
    Ok(parse_grubby_arguments(&grubby().arguments(["--info=DEFAULT"]).run(root)?))
}

/// Writes a drop-in file of vfleet. The file of the administrator is never written: GRUB reads the drop-in after it.
fn change_by_grub_drop_in(root: &HostRoot, add: &[String], remove: &[String]) -> Result<String, HostError> {
    let current =
        atomic_file::read_text(&root.at(DROP_IN))?.map(|text| DropIn::parse(&text)).unwrap_or_default();
    let mut drop_in = current.with_changes(add, remove);
    let mut next = update_grub(root, &drop_in)?;
    // The drop-in removes only arguments that another file really sets.
    let remaining = still_present(remove, next.as_deref());
    if !remaining.is_empty() {
        drop_in.without = merge(&drop_in.without, &remaining, &[]);
        next = update_grub(root, &drop_in)?;
    }
    let Some(next) = next else { return Ok(drop_in.with.join(" ")) };
    match still_present(remove, Some(&next)).into_iter().next() {
        Some(argument) => Err(HostError::KernelArgumentNotRemovable { argument }),
        None => Ok(next),
    }
}

/// Writes the drop-in and runs update-grub. Returns the arguments of the next boot, if the config of GRUB has its usual
/// path.
fn update_grub(root: &HostRoot, drop_in: &DropIn) -> Result<Option<String>, HostError> {
    let path = root.at(DROP_IN);
    if drop_in.is_empty() {
        atomic_file::remove(&path)?;
    } else {
        atomic_file::replace(&path, drop_in.to_text().as_bytes(), atomic_file::PUBLIC)?;
    }
    // Also if the drop-in was up to date: an earlier process may have ended before this command.
    Command::new("update-grub", CHANGE_TIMEOUT).run(root)?;
    Ok(atomic_file::read_text(&root.at(GRUB_CONFIG))?.map(|config| first_entry_arguments(&config)))
}

/// Returns those of `arguments` that are in `next`, the arguments of the next boot; all of them if these are unknown.
fn still_present(arguments: &[String], next: Option<&str>) -> Vec<String> {
    let is_present = |argument: &&String| {
        next.is_none_or(|next| next.split_whitespace().any(|word| word == argument.as_str()))
    };
    arguments.iter().filter(is_present).cloned().collect()
}

fn change_by_kernel_install(root: &HostRoot, add: &[String], remove: &[String]) -> Result<String, HostError> {
    let current = match atomic_file::read_text(&root.at(COMMAND_LINE))? {
        Some(text) => text,
        None => default_arguments(root)?,
    };
    let current: Vec<String> = current.split_whitespace().map(str::to_owned).collect();
    let text = format!("{}\n", merge(&current, add, remove).join(" "));
    atomic_file::replace(&root.at(COMMAND_LINE), text.as_bytes(), atomic_file::PUBLIC)?;
    for (version, image) in list_kernels(root)? {
        Command::new("kernel-install", CHANGE_TIMEOUT)
            .arguments(["add".to_owned(), version, image])
            .run(root)?;
    }
    Ok(text)
}

/// Returns the arguments that kernel-install uses without `/etc/kernel/cmdline`: those of the distribution, or those of
/// the running kernel without the ones that the boot loader added.
fn default_arguments(root: &HostRoot) -> Result<String, HostError> {
    if let Some(text) = atomic_file::read_text(&root.at(DEFAULT_COMMAND_LINE))? {
        return Ok(text);
    }
    let path = root.proc("cmdline");
    let running = sysfs::read(&path).map_err(|source| sysfs::failed("read", &path, source))?;
    let is_kept = |word: &&str| !word.starts_with("initrd=") && !word.starts_with("BOOT_IMAGE=");
    Ok(running.split_whitespace().filter(is_kept).collect::<Vec<_>>().join(" "))
}

/// Lists the installed kernels: version, and path of the image on the host.
fn list_kernels(root: &HostRoot) -> Result<Vec<(String, String)>, HostError> {
    let mut kernels = Vec::new();
    for version in sysfs::list_names_if_exists(&root.at(MODULES))? {
        let images = [format!("{MODULES}/{version}/vmlinuz"), format!("/boot/vmlinuz-{version}")];
        if let Some(image) = images.into_iter().find(|image| root.at(image).exists()) {
            kernels.push((version, image));
        }
    }
    if kernels.is_empty() {
        let not_found = std::io::ErrorKind::NotFound.into();
        return Err(sysfs::failed("find a kernel image in", &root.at(MODULES), not_found));
    }
    Ok(kernels)
}

fn verify(next: &str, add: &[String], remove: &[String], attempt: &str) -> Result<(), HostError> {
    let is_next = |argument: &&String| next.split_whitespace().any(|word| word == argument.as_str());
    if add.iter().all(|argument| is_next(&argument)) && !remove.iter().any(|argument| is_next(&argument)) {
        return Ok(());
    }
    Err(HostError::NotVerified {
        attempt: attempt.to_owned(),
        expected: format!("arguments with `{}` and without `{}`", add.join(" "), remove.join(" ")),
        found: next.to_owned(),
    })
}

#[cfg(test)]
#[path = "boot_loader/tests.rs"]
mod tests;
