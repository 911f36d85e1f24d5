//! File tree of a host in a temporary directory, with executable programs. For tests.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use vfleet_plan::Step;

use super::root::HostRoot;
use super::steps;
use crate::HostError;

pub(super) struct TestTree {
    directory: TempDir,
    root: HostRoot,
}

impl TestTree {
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

    /// Creates a program in `/usr/bin` of the tree: a shell script in which `$ROOT` is the tree. Each start is
    /// recorded. A child process writes the file, because a child of another test could inherit a descriptor that is
    /// open for writing, and a program that is open for writing cannot be started.
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

    /// Returns all started programs with their arguments.
    pub(super) fn started(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("started")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(super) fn execute(&self, step: &Step) -> Result<(), HostError> {
        steps::execute(&self.root, step)
    }

    /// Adds a network card that supports VFs.
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
