//! Packages of the workspace, as cargo resolves them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use serde::Deserialize;

/// Targets of the released programs.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Package, as `cargo metadata` prints it.
#[derive(Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    /// Source of the package; absent for a member of the workspace.
    pub(crate) source: Option<String>,
    /// Registries that the package may be published to; any if absent.
    pub(crate) publish: Option<Vec<String>>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// Dependency as a package declares it, before it is resolved.
#[derive(Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) req: String,
    /// `dev` or `build`; absent for a normal dependency.
    pub(crate) kind: Option<String>,
    /// Registry or repository; absent for a path.
    pub(crate) source: Option<String>,
}

impl Package {
    pub(crate) fn is_private(&self) -> bool {
        self.publish.as_ref().is_some_and(Vec::is_empty)
    }

    fn key(&self) -> (String, String) {
        (self.name.clone(), self.version.clone())
    }
}

/// Resolved packages of the workspace on all targets.
#[derive(Clone)]
pub(crate) struct Graph {
    /// Packages of the programs and their tests.
    pub(crate) packages: Vec<Package>,
    /// Names and versions of packages that are not only used by tests.
    linked: BTreeSet<(String, String)>,
}

impl Graph {
    pub(crate) fn of_workspace() -> Self {
        static GRAPH: LazyLock<Graph> = LazyLock::new(Graph::read);
        GRAPH.clone()
    }

    /// Reads the graph from cargo. `cargo metadata` also lists packages of disabled features; `cargo tree` does not.
    fn read() -> Self {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<Package>,
        }
        let metadata = cargo("metadata", "--filter-platform", &["--format-version", "1"]);
        let Metadata { mut packages } = serde_json::from_str(&metadata).unwrap();
        let built = tree("normal,build,dev");
        packages.retain(|package| built.contains(&package.key()));
        assert_eq!(packages.len(), built.len(), "cargo metadata and cargo tree disagree");
        Self { packages, linked: tree("normal,build") }
    }

    /// Returns names and versions of packages that are not only used by tests, ordered by name.
    pub(crate) fn linked(&self) -> impl Iterator<Item = (&str, &str)> {
        self.linked.iter().map(|(name, version)| (name.as_str(), version.as_str()))
    }

    /// Adds a package of the programs to the graph.
    pub(crate) fn link(&mut self, package: Package) {
        self.linked.insert(package.key());
        self.packages.push(package);
    }

    /// Removes a package with a version that starts with `version`.
    pub(crate) fn remove(&mut self, name: &str, version: &str) {
        let matches = |a_name: &str, a_version: &str| a_name == name && a_version.starts_with(version);
        let before = self.linked.len();
        self.linked.retain(|(name, version)| !matches(name, version));
        assert_eq!(self.linked.len(), before - 1, "{name} {version} is not in the graph");
        self.packages.retain(|package| !matches(&package.name, &package.version));
    }
}

/// Returns names and versions of all packages that the workspace needs through edges of these kinds.
fn tree(edges: &str) -> BTreeSet<(String, String)> {
    let arguments = ["--workspace", "--edges", edges, "--prefix", "none", "--format", "{p}"];
    let tree = cargo("tree", "--target", &arguments);
    tree.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
        })
        .collect()
}

fn cargo(command: &str, target_option: &str, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args([command, "--locked", "--offline"])
        .args(TARGETS.iter().flat_map(|target| [target_option, target]))
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\nhas `cargo fetch --locked` run?");
    String::from_utf8(output.stdout).unwrap()
}
