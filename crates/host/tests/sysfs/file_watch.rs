//! Files that people write, and that nobody else tells of.

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use vfleet_host::Host;
use vfleet_plan::ModuleState;

use crate::tree::{Tree, write};

const DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn what_people_repair_on_the_machine_wakes_and_is_read() {
    let tree = Tree::new(0);
    let at = |path: &str| tree.root.path().join(path);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let list = format!("lib/modules/{}/modules.dep", release.trim());
    write(&at(&list), "kernel/vfio.ko:\n");
    let host = tree.host();
    let (sender, woken) = mpsc::channel();
    let _watch = host
        .on_change(Box::new(move || {
            let _ = sender.send(());
        }))
        .unwrap();
    let change = |path: &str, text: &str| {
        // What is left of the last change. An event of this machine's own cards may wake, too: that is harmless here.
        while woken.recv_timeout(Duration::from_millis(100)).is_ok() {}
        write(&at(path), text);
        woken.recv_timeout(DEADLINE).unwrap();
    };
    assert_eq!(host.facts().unwrap().guid_file, None);
    for text in ["[1]", "[]"] {
        change("etc/sriov-operator/infiniband/guids", text);
        assert_eq!(host.facts().unwrap().guid_file.as_deref(), Some(text));
    }
    let module = || host.facts().unwrap().kernel.modules.get("vfio_pci").copied();
    assert_eq!(module(), None);
    change(&list, "kernel/vfio.ko:\nkernel/vfio-pci.ko: kernel/vfio.ko\n");
    assert_eq!(module(), Some(ModuleState::Loadable));
    change("usr/bin/mstconfig", "#!/bin/sh\n");
}
