use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use vfleet_plan::cni::programs::MARKER;

use super::*;
use crate::linux::test_tree::TestTree;

const BIN: &str = "/opt/cni/bin";
const JOURNAL: &str = "sriov:0123456789abcdef0123:net1:0000:3b:00.2";

/// Returns a program with this text. It is longer than one part, and the text is where two parts meet.
fn program(text: &str) -> Vec<u8> {
    let before = PROGRAM_HEADER.into_iter().chain(std::iter::repeat_n(b'<', PART - 10));
    before.chain(text.bytes()).chain(std::iter::repeat_n(0, PART)).collect()
}

fn old_program() -> Vec<u8> {
    program(&MARKER.replace(VERSION, "0.0.1"))
}

/// Go plugin: lines of its build information after the mark that precedes them.
fn go_program() -> Vec<u8> {
    let mark = b"\x7fELF \xff Go buildinf: 0w\xaf\x0c\x92t\x08\x02A\xe1\xc1\x07\xe6\xd6\x18\xe6";
    [mark.as_slice(), b"path\tgithub.com/k8snetworkplumbingwg/sriov-cni/cmd/sriov\nmod\t"].concat()
}

/// Host with the program to install.
struct CniHost(TestTree);

impl CniHost {
    fn new() -> Self {
        let host = Self(TestTree::new());
        host.write("/usr/bin/vfleet-cni", &program(MARKER));
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn directory(&self) -> CniDirectory {
        CniDirectory::new(self.0.root().clone(), "/opt/cni/bin/")
    }

    fn try_install(&self, skipped: &[&str]) -> Result<Vec<ProgramOutcome>, HostError> {
        let skipped: Vec<_> = skipped.iter().map(|&name| name.to_owned()).collect();
        self.directory().install(&self.path("/usr/bin/vfleet-cni"), &skipped)
    }

    fn install(&self, skipped: &[&str]) -> Vec<(String, ProgramChange)> {
        changes(self.try_install(skipped).unwrap())
    }

    fn remove(&self) -> Vec<(String, ProgramChange)> {
        match self.directory().remove().unwrap() {
            ProgramRemoval::Removed(outcomes) => changes(outcomes),
            kept @ ProgramRemoval::Kept(_) => panic!("{kept:?}"),
        }
    }

    /// Returns the names in the directory, also hidden ones.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path(BIN)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn is_installed(&self, name: &str) -> bool {
        let file = self.path(BIN).join(name);
        let metadata = fs::symlink_metadata(&file).unwrap();
        let is_program = metadata.is_file() && metadata.permissions().mode() & 0o7777 == 0o755;
        is_program && metadata.nlink() == 1 && fs::read(file).unwrap() == program(MARKER)
    }
}

fn changes(outcomes: Vec<ProgramOutcome>) -> Vec<(String, ProgramChange)> {
    let name = |path: &str| path.strip_prefix("/opt/cni/bin/").unwrap().to_owned();
    outcomes.into_iter().map(|outcome| (name(&outcome.path), outcome.result.unwrap())).collect()
}

fn change_of<'a>(changes: &'a [(String, ProgramChange)], name: &str) -> &'a ProgramChange {
    &changes.iter().find(|(found, _)| found == name).unwrap().1
}

#[test]
fn the_program_is_installed_under_all_names_and_not_written_again() {
    let host = CniHost::new();
    let first = host.install(&[]);
    assert_eq!(host.names(), ["ib-sriov", "rdma", "sriov", "vfleet-cni"]);
    for (name, change) in &first {
        assert!(*change == ProgramChange::Written(None) && host.is_installed(name), "{name}: {change:?}");
    }
    let inodes = || {
        host.names()
            .iter()
            .map(|name| fs::metadata(host.path(BIN).join(name)).unwrap().ino())
            .collect::<Vec<_>>()
    };
    let before = inodes();
    assert!(host.install(&[]).iter().all(|(_, change)| *change == ProgramChange::Unchanged));
    assert_eq!(inodes(), before);

    fs::set_permissions(host.path("/opt/cni/bin/rdma"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(change_of(&host.install(&[]), "rdma"), ProgramChange::Written(Some(_))));
    assert!(host.is_installed("rdma"), "the mode is repaired");
}

/// The installers of the Go plugins copy their files in place.
#[test]
fn an_empty_file_is_one_of_an_interrupted_installation() {
    let host = CniHost::new();
    host.write("/opt/cni/bin/sriov", b"");
    assert_eq!(*change_of(&host.install(&[]), "sriov"), ProgramChange::Written(None));
    assert!(host.is_installed("sriov"));
}

#[test]
fn skipped_names_are_not_touched() {
    let host = CniHost::new();
    host.write("/opt/cni/bin/sriov", &go_program());
    let names: Vec<_> = host.install(&["sriov", "rdma"]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["ib-sriov", "vfleet-cni"]);
    assert_eq!(host.names(), ["ib-sriov", "sriov", "vfleet-cni"]);
    assert_eq!(fs::read(host.path("/opt/cni/bin/sriov")).unwrap(), go_program());
}

#[test]
fn our_own_and_go_programs_are_replaced_and_others_are_left() {
    let host = CniHost::new();
    host.write("/opt/cni/bin/sriov", &go_program());
    host.write("/opt/cni/bin/ib-sriov", &old_program());
    // A script about our program is not our program.
    host.write("/opt/cni/bin/rdma", format!("#!/bin/sh\n# {MARKER}\n").as_bytes());
    let changes = host.install(&[]);
    let module = "github.com/k8snetworkplumbingwg/sriov-cni";
    let go = ProgramOrigin::GoPlugin { module };
    assert_eq!(*change_of(&changes, "sriov"), ProgramChange::Written(Some(go)));
    let old = ProgramOrigin::Vfleet { version: "0.0.1".to_owned() };
    assert_eq!(*change_of(&changes, "ib-sriov"), ProgramChange::Written(Some(old)));
    assert_eq!(*change_of(&changes, "rdma"), ProgramChange::Left(ProgramOrigin::Foreign));
    for name in ["sriov", "ib-sriov", "vfleet-cni"] {
        assert!(host.is_installed(name), "{name}");
    }
    assert!(fs::read(host.path("/opt/cni/bin/rdma")).unwrap().starts_with(b"#!/bin/sh"));
}

#[test]
fn links_to_our_program_are_replaced_and_their_targets_are_left() {
    let host = CniHost::new();
    host.write("/opt/other/plugin", &old_program());
    host.write("/opt/cni/bin/old", &old_program());
    symlink("../../other/plugin", host.path("/opt/cni/bin/sriov")).unwrap();
    fs::hard_link(host.path("/opt/cni/bin/old"), host.path("/opt/cni/bin/ib-sriov")).unwrap();
    symlink("/nothing", host.path("/opt/cni/bin/rdma")).unwrap();
    let changes = host.install(&[]);
    assert!(host.is_installed("sriov") && host.is_installed("ib-sriov"), "{changes:?}");
    assert_eq!(*change_of(&changes, "rdma"), ProgramChange::Left(ProgramOrigin::Foreign));
    for target in ["/opt/other/plugin", "/opt/cni/bin/old"] {
        assert_eq!(fs::read(host.path(target)).unwrap(), old_program(), "{target}");
    }
}

/// A child process writes the program, because a child of another test could inherit a descriptor that is open for
/// writing, and a program that is open for writing cannot be started.
#[test]
fn a_running_program_is_replaced() {
    let host = CniHost::new();
    host.write("/marker", MARKER.replace(VERSION, "0.0.1").as_bytes());
    let running = host.path("/opt/cni/bin/sriov");
    fs::create_dir_all(host.path(BIN)).unwrap();
    let write = "cat \"$(command -v sleep)\" \"$1\" > \"$2\" && chmod 755 \"$2\"";
    let marker = host.path("/marker");
    let status = Command::new("sh").args(["-c", write, "sh"]).args([&marker, &running]).status();
    assert!(status.unwrap().success());
    let mut child = Command::new(&running).arg("1000").spawn().unwrap();
    let result = host.install(&[]);
    assert!(matches!(change_of(&result, "sriov"), ProgramChange::Written(Some(_))), "{result:?}");
    assert!(host.is_installed("sriov"));
    assert!(child.try_wait().unwrap().is_none(), "it still runs");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn drafts_of_a_killed_run_are_removed() {
    let host = CniHost::new();
    host.install(&["rdma"]);
    for draft in [".sriov.tmp", ".rdma.tmp"] {
        host.write(&format!("/opt/cni/bin/{draft}"), &program(MARKER)[..1000]);
    }
    let changes = host.install(&[]);
    assert_eq!(*change_of(&changes, "sriov"), ProgramChange::Unchanged);
    assert_eq!(*change_of(&changes, "rdma"), ProgramChange::Written(None));
    assert_eq!(host.names(), ["ib-sriov", "rdma", "sriov", "vfleet-cni"]);
    host.write("/opt/cni/bin/.sriov.tmp", b"x");
    assert_eq!(host.remove().len(), 4);
    assert!(host.names().is_empty());
}

#[test]
fn a_failure_for_one_name_does_not_affect_the_others() {
    let host = CniHost::new();
    fs::create_dir_all(host.path("/opt/cni/bin/.ib-sriov.tmp")).unwrap();
    let outcomes = host.try_install(&[]).unwrap();
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.result.is_err()).collect();
    assert!(matches!(failed.as_slice(), [only] if only.path == "/opt/cni/bin/ib-sriov"), "{failed:?}");
    assert!(["sriov", "rdma", "vfleet-cni"].iter().all(|name| host.is_installed(name)));
}

#[test]
fn only_a_program_of_this_version_is_installed() {
    let host = CniHost::new();
    for (bytes, found) in [
        (old_program(), "is vfleet-cni 0.0.1, not"),
        (go_program(), "is github.com/k8snetworkplumbingwg/sriov-cni, not"),
        (MARKER.as_bytes().to_vec(), "is another program, not"),
        (Vec::new(), "is another program, not"),
    ] {
        host.write("/usr/bin/vfleet-cni", &bytes);
        let error = host.try_install(&[]).unwrap_err().to_string();
        assert!(error.contains(found) && error.contains("--program"), "{error}");
    }
    fs::remove_file(host.path("/usr/bin/vfleet-cni")).unwrap();
    assert!(host.try_install(&[]).unwrap_err().to_string().contains("is missing, not"));
    assert!(!host.path(BIN).exists(), "nothing was changed");
}

#[test]
fn two_installations_exclude_each_other() {
    let host = CniHost::new();
    host.install(&[]);
    let lock = host.directory().lock(&host.path(BIN)).unwrap();
    for error in [host.try_install(&[]).unwrap_err(), host.directory().remove().unwrap_err()] {
        assert!(
            matches!(&error, HostError::InstallationRunning { directory } if directory == BIN),
            "{error}"
        );
    }
    drop(lock);
    host.install(&[]);
}

#[test]
fn only_our_programs_are_removed() {
    let host = CniHost::new();
    assert!(host.remove().is_empty(), "there is no directory");
    host.install(&[]);
    host.write("/opt/cni/bin/ib-sriov", &go_program());
    host.write("/opt/cni/bin/bridge", &program(MARKER));
    let changes = host.remove();
    assert!(matches!(change_of(&changes, "ib-sriov"), ProgramChange::Left(ProgramOrigin::GoPlugin { .. })));
    assert_eq!(*change_of(&changes, "vfleet-cni"), ProgramChange::Removed);
    assert_eq!(host.names(), ["bridge", "ib-sriov"]);
}

#[test]
fn programs_stay_while_an_attachment_exists() {
    let host = CniHost::new();
    host.install(&[]);
    let journals = Path::new("/var/lib/cni/vfleet");
    let (journal, draft) = (journals.join(JOURNAL), journals.join(".draft"));
    host.write(draft.to_str().unwrap(), b"");
    host.write(journal.to_str().unwrap(), b"{}");
    let kept = host.directory().remove().unwrap();
    let expected = "sriov: net1 of container 0123456789ab (0000:3b:00.2)";
    assert!(matches!(&kept, ProgramRemoval::Kept(list) if *list == [expected]), "{kept:?}");
    assert_eq!(host.names().len(), 4);
    fs::remove_file(host.path(journal.to_str().unwrap())).unwrap();
    assert_eq!(host.remove().len(), 4);
    // Nothing is kept where nothing is ours.
    host.write(journal.to_str().unwrap(), b"{}");
    assert!(host.remove().is_empty());
}

#[test]
fn the_agent_reads_where_the_programs_come_from() {
    let host = CniHost::new();
    let read = || {
        let programs = host.directory().read(&["rdma".to_owned()]).unwrap();
        programs.into_iter().map(|program| (program.path, program.origin.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(read(), []);
    host.install(&[]);
    host.write("/opt/cni/bin/ib-sriov", b"\x7fELF");
    let found = |name: &str, origin: &str| (format!("/opt/cni/bin/{name}"), origin.to_owned());
    let ours = format!("vfleet-cni {VERSION}");
    let expected = [found("sriov", &ours), found("ib-sriov", "another program")];
    assert_eq!((read(), read()), (expected.to_vec(), expected.to_vec()));
    host.write("/opt/cni/bin/ib-sriov", &go_program());
    assert_eq!(read()[1], found("ib-sriov", "github.com/k8snetworkplumbingwg/sriov-cni"));
    fs::remove_file(host.path("/opt/cni/bin/sriov")).unwrap();
    assert_eq!(read().len(), 1);
}
