//! Links and file names in the documentation, compared with the files of the repository.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap()
}

/// Returns all Markdown files of the repository.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the targets of Markdown links (`[text](target)`) that are files.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    files.map(|target| target.split('#').next().unwrap().to_owned()).collect()
}

/// Returns the paths in backticks in the rows of tables, such as `plan/src/node/{pf,vf}.rs`.
fn paths_in_tables(text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let is_path = |word: &&str| {
        word.contains('/') && !word.contains([' ', '<', '*', '$', ':']) && !word.starts_with('/')
    };
    quoted
        .filter(is_path)
        .filter(|word| word.contains("/src") || word.ends_with('/'))
        .flat_map(expand)
        .collect()
}

/// Returns the paths that one path with alternatives in braces stands for.
fn expand(path: &str) -> Vec<String> {
    let Some((start, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (alternatives, end) = rest.split_once('}').unwrap();
    alternatives.split(',').flat_map(|word| expand(&format!("{start}{word}{end}"))).collect()
}

#[test]
fn links_lead_to_files() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            if !document.parent().unwrap().join(&link).exists() {
                missing.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Paths in tables are relative to the repository, to `crates/`, or to the crate whose README has the table.
#[test]
fn tables_name_files_that_exist() {
    let (mut missing, mut count) = (Vec::new(), 0);
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        let bases = [root(), root().join("crates"), document.parent().unwrap().to_owned()];
        for path in paths_in_tables(&text) {
            count += 1;
            if !bases.iter().any(|base| base.join(&path).exists()) {
                missing.push(format!("{}: {path}", document.display()));
            }
        }
    }
    assert!(count > 50, "only {count} paths were found: is this test blind?");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn alternatives_in_braces_are_separate_paths() {
    assert_eq!(expand("a/{b,c}/d.rs"), ["a/b/d.rs", "a/c/d.rs"]);
    assert_eq!(
        paths_in_tables("| x | `a/src/{b,c}.rs`, `kubectl get` |\n`not/src/here.rs`"),
        ["a/src/b.rs", "a/src/c.rs"]
    );
    assert_eq!(links("[a](b.md#part) [c](https://d) [e](#f)"), ["b.md"]);
}
