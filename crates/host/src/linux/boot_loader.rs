//! What changes the arguments that the kernel is started with: which is there, and doing it.
//!
//! | found | changed by |
//! | --- | --- |
//! | an ostree system with rpm-ostree | `rpm-ostree kargs` |
//! | grubby | `grubby --update-kernel=ALL` |
//! | `/etc/default/grub` and update-grub | our own file in `/etc/default/grub.d`, then `update-grub` |
//! | kernel-install, and its command line or systemd-boot's entries | `/etc/kernel/cmdline`, then `kernel-install` for each kernel |
//!
//! With systemd-boot the entries themselves could be edited, but the next kernel's entry would be written without, and a
//! unified kernel image has no entry. `/etc/kernel/cmdline` is what both are made from.

pub(super) mod arguments;

use std::time::Duration;

use vfleet_plan::BootLoader;

use self::arguments::{DropIn, is_plain, merged, of_first_entry, quoted_arguments};
use super::command::{self, Command};
use super::root::HostRoot;
use super::{durable, sysfs};
use crate::HostError;

/// rpm-ostree makes a whole new deployment, update-grub looks at every disk.
const CHANGING: Duration = Duration::from_mins(4);
const DROP_IN: &str = "/etc/default/grub.d/90-vfleet.cfg";
const GRUB_CONFIG: &str = "/boot/grub/grub.cfg";
const COMMAND_LINE: &str = "/etc/kernel/cmdline";
/// The one that the distribution comes with.
const DEFAULT_COMMAND_LINE: &str = "/usr/lib/kernel/cmdline";
const ENTRIES: [&str; 3] = ["/efi/loader/entries", "/boot/loader/entries", "/boot/efi/loader/entries"];
const MODULES: &str = "/lib/modules";

/// What changes the arguments here, if anything does.
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

/// Changes the arguments of the next start. What is as wanted already stays.
pub(super) fn change(
    root: &HostRoot,
    loader: BootLoader,
    add: &[String],
    remove: &[String],
    attempt: &str,
) -> Result<(), HostError> {
    if let Some(argument) = add.iter().chain(remove).find(|argument| !is_plain(argument)) {
        return Err(HostError::KernelArgument { argument: argument.clone() });
    }
    if find(root) != Some(loader) {
        return Err(HostError::NoSuchBootLoader { loader: loader.as_str() });
    }
    let next = match loader {
        BootLoader::RpmOstree => by_rpm_ostree(root, add, remove)?,
        BootLoader::Grubby => by_grubby(root, add, remove)?,
        BootLoader::GrubDropIn => by_grub_drop_in(root, add, remove)?,
        BootLoader::SystemdBoot => by_kernel_install(root, add, remove)?,
    };
    verify(&next, add, remove, attempt)
}

/// Gives the arguments of the next start, as the others do.
fn by_rpm_ostree(root: &HostRoot, add: &[String], remove: &[String]) -> Result<String, HostError> {
    let rpm_ostree = || Command::new("rpm-ostree", CHANGING).arguments(["kargs"]);
    let added = add.iter().map(|argument| format!("--append-if-missing={argument}"));
    let removed = remove.iter().map(|argument| format!("--delete-if-present={argument}"));
    rpm_ostree().arguments(added.chain(removed)).run(root)?;
    rpm_ostree().run(root)
}

fn by_grubby(root: &HostRoot, add: &[String], remove: &[String]) -> Result<String, HostError> {
    let grubby = || Command::new("grubby", CHANGING);
    let list = |option: &str, arguments: &[String]| {
        (!arguments.is_empty()).then(|| format!("--{option}={}", arguments.join(" ")))
    };
    let options = [list("args", add), list("remove-args", remove)];
    grubby().arguments(["--update-kernel=ALL"]).arguments(options.into_iter().flatten()).run(root)?;
    Ok(quoted_arguments(&grubby().arguments(["--info=DEFAULT"]).run(root)?))
}

/// The administrator's own file is never written: ours is read after it, and changes what it set.
fn by_grub_drop_in(root: &HostRoot, add: &[String], remove: &[String]) -> Result<String, HostError> {
    let found = durable::read_text(&root.at(DROP_IN))?.map(|text| DropIn::read(&text)).unwrap_or_default();
    let mut ours = found.changed(add, remove);
    let mut next = update_grub(root, &ours)?;
    // Only what is really there is taken away: our file shall say nothing that nobody needs.
    let stays = still_there(remove, next.as_deref());
    if !stays.is_empty() {
        ours.without = merged(&ours.without, &stays, &[]);
        next = update_grub(root, &ours)?;
    }
    let Some(next) = next else { return Ok(ours.with.join(" ")) };
    match still_there(remove, Some(&next)).into_iter().next() {
        Some(argument) => Err(HostError::KernelArgumentStays { argument }),
        None => Ok(next),
    }
}

/// Gives the arguments of the next start, if GRUB's config is where it usually is.
fn update_grub(root: &HostRoot, ours: &DropIn) -> Result<Option<String>, HostError> {
    let path = root.at(DROP_IN);
    if ours.is_empty() {
        durable::remove(&path)?;
    } else {
        durable::replace(&path, ours.text().as_bytes(), durable::PUBLIC)?;
    }
    // Also when our file was right already: an earlier process may have been cut off in between.
    Command::new("update-grub", CHANGING).run(root)?;
    Ok(durable::read_text(&root.at(GRUB_CONFIG))?.map(|config| of_first_entry(&config)))
}

/// Those of the arguments that the kernel would be started with; all, where that cannot be told.
fn still_there(arguments: &[String], next: Option<&str>) -> Vec<String> {
    let is_there = |argument: &&String| {
        next.is_none_or(|next| next.split_whitespace().any(|word| word == argument.as_str()))
    };
    arguments.iter().filter(is_there).cloned().collect()
}

fn by_kernel_install(root: &HostRoot, add: &[String], remove: &[String]) -> Result<String, HostError> {
    let found = match durable::read_text(&root.at(COMMAND_LINE))? {
        Some(text) => text,
        None => inherited(root)?,
    };
    let found: Vec<String> = found.split_whitespace().map(str::to_owned).collect();
    let text = format!("{}\n", merged(&found, add, remove).join(" "));
    durable::replace(&root.at(COMMAND_LINE), text.as_bytes(), durable::PUBLIC)?;
    for (version, image) in kernels(root)? {
        Command::new("kernel-install", CHANGING).arguments(["add".to_owned(), version, image]).run(root)?;
    }
    Ok(text)
}

/// What kernel-install would take without the file: the distribution's arguments, or those of the running kernel but
/// for what the boot loader put there.
fn inherited(root: &HostRoot) -> Result<String, HostError> {
    if let Some(text) = durable::read_text(&root.at(DEFAULT_COMMAND_LINE))? {
        return Ok(text);
    }
    let path = root.proc("cmdline");
    let running = sysfs::read(&path).map_err(|source| sysfs::failed("read", &path, source))?;
    let is_kept = |word: &&str| !word.starts_with("initrd=") && !word.starts_with("BOOT_IMAGE=");
    Ok(running.split_whitespace().filter(is_kept).collect::<Vec<_>>().join(" "))
}

/// The kernels on the disk, each with its image, as the host sees them.
fn kernels(root: &HostRoot) -> Result<Vec<(String, String)>, HostError> {
    let mut kernels = Vec::new();
    for version in sysfs::names_if_there(&root.at(MODULES))? {
        let images = [format!("{MODULES}/{version}/vmlinuz"), format!("/boot/vmlinuz-{version}")];
        if let Some(image) = images.into_iter().find(|image| root.at(image).exists()) {
            kernels.push((version, image));
        }
    }
    if kernels.is_empty() {
        let nothing = std::io::ErrorKind::NotFound.into();
        return Err(sysfs::failed("find the image of a kernel below", &root.at(MODULES), nothing));
    }
    Ok(kernels)
}

fn verify(next: &str, add: &[String], remove: &[String], attempt: &str) -> Result<(), HostError> {
    let is_next = |argument: &&String| next.split_whitespace().any(|word| word == argument.as_str());
    if add.iter().all(|argument| is_next(&argument)) && !remove.iter().any(|argument| is_next(&argument)) {
        return Ok(());
    }
    Err(HostError::Unverified {
        attempt: attempt.to_owned(),
        expected: format!("arguments with {add:?} and without {remove:?}"),
        found: next.to_owned(),
    })
}

#[cfg(test)]
#[path = "boot_loader/tests.rs"]
mod tests;
