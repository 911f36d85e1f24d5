//! File tree of a machine, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use vfleet_host::{Host, HostRoot, LinuxHost};
use vfleet_plan::HostFacts;

pub(crate) const PF: &str = "0000:01:00.0";

/// File tree with one PF and its VFs.
pub(crate) struct Tree {
    pub(crate) root: TempDir,
}

impl Tree {
    pub(crate) fn new(vfs: u16) -> Self {
        let tree = Self { root: TempDir::new().unwrap() };
        let pf = tree.device(PF);
        for (name, text) in [
            ("class", "0x020000\n"),
            ("vendor", "0x8086\n"),
            ("device", "0x10c9\n"),
            ("sriov_totalvfs", "7\n"),
            ("sriov_drivers_autoprobe", "1\n"),
        ] {
            write(&pf.join(name), text);
        }
        write(&pf.join("sriov_numvfs"), &format!("{vfs}\n"));
        for index in 0..vfs {
            tree.add_vf(index);
        }
        tree
    }

    pub(crate) fn add_vf(&self, index: u16) {
        let address = format!("0000:01:10.{index}");
        let vf = self.device(&address);
        write(&vf.join("vendor"), "0x8086\n");
        write(&vf.join("device"), "0x10ca\n");
        write(&vf.join("class"), "0x020000\n");
        symlink(format!("../{PF}"), vf.join("physfn")).unwrap();
        symlink("../../../bus/pci/drivers/vfio-pci", vf.join("driver")).unwrap();
        symlink(format!("../{address}"), self.device(PF).join(format!("virtfn{index}"))).unwrap();
    }

    /// Adds an interface with the index of the loopback interface, which every kernel has.
    pub(crate) fn add_interface(&self, name: &str, port: &str, port_name: &str) -> PathBuf {
        let interface = self.device(PF).join("net").join(name);
        write(&interface.join("ifindex"), "1\n");
        write(&interface.join("dev_port"), port);
        write(&interface.join("phys_port_name"), port_name);
        write(&interface.join("speed"), "-1\n");
        interface
    }

    pub(crate) fn device(&self, address: &str) -> PathBuf {
        self.root.path().join("sys/bus/pci/devices").join(address)
    }

    pub(crate) fn record(&self, name: &str) -> PathBuf {
        self.root.path().join("etc/sriov-operator/vfleet/pci").join(name)
    }

    pub(crate) fn host(&self) -> LinuxHost {
        LinuxHost::new(HostRoot::new(self.root.path()))
    }

    pub(crate) fn facts(&self) -> HostFacts {
        self.host().facts().unwrap()
    }

    /// Returns the reason and the text of the error of the unreadable PF. The text must name `path`.
    pub(crate) fn error_about(&self, path: &Path) -> (&'static str, String) {
        let facts = self.facts();
        assert_eq!(facts.pf(PF.parse().unwrap()), None);
        let unread = facts.unreadable(PF.parse().unwrap()).unwrap();
        assert!(unread.error.contains(path.to_str().unwrap()), "{}", unread.error);
        (unread.reason, unread.error.clone())
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
