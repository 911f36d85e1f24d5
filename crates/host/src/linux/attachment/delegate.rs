//! Other CNI plugins: address management.

use std::env;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::journals::is_file_name;
use crate::HostError;
use crate::attachment::{DelegateCall, DelegateOutput};
use crate::linux::command::{Capture, CommandOutcome, direct, tail};
use crate::linux::root::HostRoot;

/// Returns the path of a plugin in the first directory that has it. Relative directories are ignored: a runtime starts
/// plugins in any directory.
pub(super) fn find(root: &HostRoot, plugin: &str, search_path: &[String]) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let directories = search_path.iter().filter(|directory| Path::new(directory).is_absolute());
    let mut paths = directories.map(|directory| root.at(directory).join(plugin));
    if is_file_name(plugin) { paths.find(is_program) } else { None }
}

/// Runs a plugin until it ends.
pub(super) fn run(root: &HostRoot, call: &DelegateCall<'_>) -> Result<DelegateOutput, HostError> {
    let missing = || HostError::PluginNotFound {
        plugin: call.plugin.to_owned(),
        search_path: call.search_path.join(":"),
    };
    let path = find(root, call.plugin, call.search_path).ok_or_else(missing)?;
    if !root.runs_programs() {
        return Err(HostError::PluginNotRunnable { plugin: call.plugin.to_owned() });
    }
    let no_file = |source| HostError::SystemResource { resource: "memory file", source };
    let capture = Capture::new().map_err(no_file)?;
    let mut command = Command::new(&path);
    command.env_clear().envs(call.environment).stdin(memory_file(call.stdin).map_err(no_file)?);
    if let Some(search_path) = env::var_os("PATH") {
        command.env("PATH", search_path);
    }
    let outcome = direct::run_command(&mut command, &capture, call.limit)
        .map_err(|source| HostError::Io { attempt: "start", path, source })?;
    let (is_success, outcome) = match outcome {
        CommandOutcome::Success => (true, "exit status: 0".to_owned()),
        CommandOutcome::Failure(outcome) => (false, outcome),
        CommandOutcome::TimedOut => {
            return Err(HostError::CommandTimeout { command: call.plugin.to_owned(), after: call.limit });
        }
    };
    let (stdout, stderr) = (capture.output_bytes(), tail(&capture.standard_error()));
    Ok(DelegateOutput { is_success, outcome, stdout, stderr })
}

/// Returns a memory file with this content, which no thread has to write while the plugin runs.
fn memory_file(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("vfleet-input", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::linux::test_tree::TestTree;

    fn call(tree: &TestTree, directories: &[&str], limit: Duration) -> Result<DelegateOutput, HostError> {
        let environment: BTreeMap<_, _> = [("CNI_COMMAND".to_owned(), "ADD".to_owned())].into();
        let search_path: Vec<String> = directories.iter().map(|text| (*text).to_owned()).collect();
        let (search_path, environment) = (&search_path[..], &environment);
        run(
            tree.root(),
            &DelegateCall { plugin: "ipam", search_path, environment, stdin: b"{\"x\":1}", limit },
        )
    }

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn a_plugin_gets_its_input_its_variables_and_the_path() {
        let tree = TestTree::new();
        tree.program("ipam", "echo \"$CNI_COMMAND $HOME $(cat)\"; test -n \"$PATH\" && echo 'a  b' >&2");
        let output = call(&tree, &["", "usr/bin", "/none", "/usr/bin"], LONG).unwrap();
        let expected = DelegateOutput {
            is_success: true,
            outcome: "exit status: 0".to_owned(),
            stdout: b"ADD  {\"x\":1}\n".to_vec(),
            stderr: "a b".to_owned(),
        };
        assert_eq!(output, expected);
    }

    #[test]
    fn a_plugin_that_fails_is_no_error() {
        let tree = TestTree::new();
        tree.program("ipam", "echo '{\"code\":7}'; exit 3");
        let output = call(&tree, &["/usr/bin"], LONG).unwrap();
        assert_eq!((output.is_success, output.outcome.as_str()), (false, "exit status: 3"));
        assert_eq!((output.stdout.as_slice(), output.stderr.as_str()), (&b"{\"code\":7}\n"[..], ""));
    }

    #[test]
    fn a_plugin_that_does_not_end_is_killed_with_its_children() {
        let tree = TestTree::new();
        tree.program("ipam", "sleep 60 & echo $! > $ROOT/child; wait");
        let error = call(&tree, &["/usr/bin"], Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.reason(), "DeadlineExceeded");
        let status = format!("/proc/{}/status", tree.read("/child").trim());
        let is_dead = || std::fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"));
        while !is_dead() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn only_programs_in_absolute_directories_are_found() {
        let tree = TestTree::new();
        tree.write("/usr/bin/data", "no program");
        tree.program("ipam", "");
        let directories: Vec<String> = ["usr/bin".to_owned(), "/usr/bin".to_owned()].into();
        let find = |plugin| find(tree.root(), plugin, &directories);
        assert_eq!(find("ipam"), Some(tree.path("/usr/bin/ipam")));
        for other in ["data", "none", "", ".", "..", "../bin/ipam"] {
            assert_eq!(find(other), None, "{other}");
        }
        let error = call(&tree, &["/opt/cni/bin", "/none"], LONG).unwrap_err();
        assert_eq!(error.to_string(), "CNI plugin ipam not found in /opt/cni/bin:/none: install it");
    }

    #[test]
    fn a_plugin_of_a_mounted_tree_is_not_started() {
        let tree = TestTree::new();
        tree.program("ipam", "");
        let (environment, search_path) = (BTreeMap::new(), ["/usr/bin".to_owned()]);
        let call = DelegateCall {
            plugin: "ipam",
            search_path: &search_path,
            environment: &environment,
            stdin: b"",
            limit: LONG,
        };
        let error = run(&HostRoot::new(tree.path("/")), &call).unwrap_err();
        assert!(matches!(error, HostError::PluginNotRunnable { .. }), "{error}");
        assert!(tree.started().is_empty());
    }
}
