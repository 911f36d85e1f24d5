//! For tests: a host's file tree in a temporary directory, with programs in it that are really run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use vfleet_plan::Step;

use super::root::HostRoot;
use super::steps;
use crate::HostError;

pub(super) struct Tree {
    directory: TempDir,
    root: HostRoot,
}

impl Tree {
    pub(super) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let root = HostRoot::new(directory.path()).with_direct_commands();
        Self { directory, root }
    }

    pub(super) fn root(&self) -> &HostRoot {
        &self.root
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.at(path)
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// A program in the tree's `/usr/bin`: a script for a shell, in which `$ROOT` is the tree. Each start is written
    /// down. The shell writes it and not we: another test's child could hold the file open and keep it from being run.
    pub(super) fn program(&self, name: &str, script: &str) {
        let root = self.directory.path().display();
        let text = format!("#!/bin/sh\nROOT={root}\necho \"{name}\" \"$@\" >> $ROOT/started\n{script}\n");
        let write = "mkdir -p \"$1\" && printf %s \"$3\" > \"$1/$2\" && chmod 755 \"$1/$2\"";
        let directory = self.path("/usr/bin");
        let status = Command::new("/bin/sh")
            .args(["-c", write, "sh", directory.to_str().unwrap(), name, &text])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// All starts of programs, with their arguments.
    pub(super) fn started(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("started")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(super) fn execute(&self, step: &Step) -> Result<(), HostError> {
        steps::execute(&self.root, step)
    }

    /// A network card that can have VFs.
    pub(super) fn add_card(&self, address: &str, vendor: &str) {
        let device = format!("/sys/bus/pci/devices/{address}");
        for (name, text) in [
            ("class", "0x020000\n"),
            ("vendor", vendor),
            ("device", "0x1017\n"),
            ("sriov_totalvfs", "8\n"),
            ("sriov_numvfs", "0\n"),
        ] {
            self.write(&format!("{device}/{name}"), text);
        }
    }
}
