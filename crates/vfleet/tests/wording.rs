//! Rules of the language in the code: how doc comments begin, and that names of types are unique.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// First words that make a reader guess the subject.
const RIDDLES: [&str; 5] = ["What", "Whether", "Who", "Whom", "That"];
/// Largest share of doc comments that may begin so, in percent.
const MOST_RIDDLES: usize = 5;
/// Names of types that say nothing.
const VAGUE: [&str; 17] = [
    "Change",
    "Changed",
    "Changes",
    "Course",
    "Hands",
    "Happening",
    "Helper",
    "Herald",
    "Known",
    "Manager",
    "News",
    "Said",
    "Seen",
    "Sight",
    "Standing",
    "Told",
    "World",
];
const MEMBERS: [&str; 12] = [
    "crates/agent",
    "crates/api",
    "crates/cluster",
    "crates/cni",
    "crates/host",
    "crates/operator",
    "crates/plan",
    "crates/vfleet",
    "demo",
    "fixtures/kube",
    "fixtures/lab",
    "tests",
];

/// Returns the Rust files below a folder with their texts.
fn rust_files(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

/// Returns the first word of each doc comment.
fn first_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut is_inside = false;
    for line in text.lines().map(str::trim) {
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(comment) = comment.filter(|_| !is_inside) {
            words.push(
                comment.trim().split(|letter: char| !letter.is_alphanumeric()).next().unwrap().to_owned(),
            );
        }
        is_inside = comment.is_some();
    }
    words
}

/// Returns the public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest =
        ["struct ", "enum ", "trait ", "type "].iter().find_map(|keyword| rest.strip_prefix(keyword))?;
    rest.split(|letter: char| !letter.is_alphanumeric()).next()
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    for member in MEMBERS {
        let words: Vec<_> = rust_files(member).iter().flat_map(|(_, text)| first_words(text)).collect();
        let riddles = words.iter().filter(|word| RIDDLES.contains(&word.as_str())).count();
        assert!(
            riddles * 100 <= words.len() * MOST_RIDDLES,
            "{member}: {riddles} of {} begin with {RIDDLES:?}",
            words.len()
        );
    }
}

#[test]
fn public_types_of_a_crate_have_names_of_their_own() {
    for member in MEMBERS {
        let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (path, text) in rust_files(member) {
            for name in text.lines().filter_map(public_type) {
                types.entry(name.to_owned()).or_default().push(path.display().to_string());
            }
        }
        types.retain(|name, files| files.len() > 1 || VAGUE.contains(&name.as_str()));
        assert!(types.is_empty(), "{member}: {types:#?}");
    }
}

#[test]
fn comments_and_types_are_found() {
    assert_eq!(first_words("/// What is it.\n/// That too.\nfn a();\n//! Is\n"), ["What", "Is"]);
    assert_eq!(public_type("pub struct Name<'a> {"), Some("Name"));
    assert_eq!(public_type("struct Name;"), None);
}
