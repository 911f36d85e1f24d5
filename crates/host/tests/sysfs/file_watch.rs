//! Changes of files that administrators write.

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use vfleet_host::Host;
use vfleet_plan::ModuleState;

use crate::tree::{Tree, write};

const DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn a_change_of_a_watched_file_is_an_event_and_is_read() {
    let tree = Tree::new(0);
    let at = |path: &str| tree.root.path().join(path);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let list = format!("lib/modules/{}/modules.dep", release.trim());
    write(&at(&list), "kernel/vfio.ko:\n");
    let host = tree.host();
    let (sender, events) = mpsc::channel();
    let _watch = host
        .on_change(Box::new(move || {
            let _ = sender.send(());
        }))
        .unwrap();
    let change = |path: &str, text: &str| {
        // Drain events of the last change. Events of the cards of this machine are harmless.
        while events.recv_timeout(Duration::from_millis(100)).is_ok() {}
        write(&at(path), text);
        events.recv_timeout(DEADLINE).unwrap();
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
