//! Dependency policy, compared with the packages of the workspace.
//!
//! Works offline, after `cargo fetch --locked`.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

#[path = "dependencies/graph.rs"]
mod graph;
#[path = "dependencies/rules.rs"]
mod rules;

use graph::{Graph, Package};
use rules::{Ban, Policy, Skip};

/// Dependency policy of the workspace, including its tests. Every list contains only entries that are needed today.
const POLICY: Policy = Policy {
    // Compatible with an Apache-2.0 program.
    licenses: &[
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "MIT",
        "Unicode-3.0",
        "Zlib",
    ],
    sources: &["registry+https://github.com/rust-lang/crates.io-index"],
    bans: &[
        Ban { name: "openssl-sys", reason: "the programs are static; TLS is rustls" },
        Ban { name: "native-tls", reason: "the programs are static; TLS is rustls" },
        Ban { name: "libudev-sys", reason: "links a C library that a static program cannot have" },
        Ban { name: "serde_yaml", reason: "unmaintained; use serde-saphyr" },
        Ban { name: "chrono", reason: "jiff is the time type of k8s-openapi; one is enough" },
    ],
    // Two versions of one crate cost build time and size. Remove an entry when the crates in its reason are updated.
    skips: &[
        Skip {
            name: "base64",
            version: "0.22",
            reason: "k8s-openapi 0.29 and tower-http 0.7; kube is on 0.23",
        },
        Skip { name: "getrandom", version: "0.2", reason: "ring 0.17" },
        Skip { name: "getrandom", version: "0.3", reason: "ahash 0.8, of kube-runtime" },
        Skip {
            name: "synstructure",
            version: "0.13",
            reason: "asn1-rs 0.7, of x509-parser; build time only",
        },
        Skip { name: "syn", version: "2", reason: "not every procedural macro is on 3 yet; build time only" },
    ],
};

#[test]
fn every_dependency_follows_the_policy() {
    let violations = POLICY.violations(&Graph::of_workspace());
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Returns the violations of the policy after `modify` has changed a valid graph.
fn violations_after(modify: impl FnOnce(&mut Graph)) -> Vec<String> {
    let mut graph = Graph::of_workspace();
    modify(&mut graph);
    POLICY.violations(&graph)
}

/// Returns a package that follows the policy and is linked into a program.
fn package(name: &str, version: &str) -> Package {
    serde_json::from_value(serde_json::json!({
        "name": name,
        "version": version,
        "license": "MIT",
        "source": POLICY.sources[0],
        "publish": null,
        "dependencies": [],
    }))
    .unwrap()
}

#[test]
fn a_package_that_follows_the_policy_is_accepted() {
    let violations = violations_after(|graph| graph.link(package("friendly", "1.0.0")));
    assert!(violations.is_empty(), "{violations:?}");
}

#[test]
fn a_license_that_is_not_on_the_list_is_refused() {
    for license in [
        Some("GPL-3.0-only"),
        Some("MIT AND GPL-2.0-only"),
        Some("Apache-2.0 WITH Classpath-exception-2.0"),
        Some("MIT OR"),
        None,
    ] {
        let mut copyleft = package("copyleft", "1.0.0");
        copyleft.license = license.map(str::to_owned);
        let violations = violations_after(|graph| graph.link(copyleft));
        assert!(
            matches!(&violations[..], [one] if one.contains("copyleft 1.0.0")),
            "{license:?}: {violations:?}"
        );
    }
}

#[test]
fn one_allowed_license_of_several_to_choose_from_is_enough() {
    for license in ["GPL-3.0-only OR MIT", "GPL-3.0-only/MIT", "(GPL-2.0-only OR ISC) AND Zlib"] {
        let mut choice = package("choice", "1.0.0");
        choice.license = Some(license.to_owned());
        let violations = violations_after(|graph| graph.link(choice));
        assert!(violations.is_empty(), "{license}: {violations:?}");
    }
}

#[test]
fn the_license_of_a_package_that_is_never_published_does_not_matter() {
    let mut ours = package("ours", "1.0.0");
    (ours.license, ours.publish) = (None, Some(Vec::new()));
    let violations = violations_after(|graph| graph.link(ours));
    assert!(violations.is_empty(), "{violations:?}");
}

#[test]
fn an_allowed_license_that_no_package_has_is_stale() {
    let violations = violations_after(|graph| {
        for package in graph.packages.iter_mut().filter(|package| package.license.as_deref() == Some("Zlib"))
        {
            package.license = Some("MIT".to_owned());
        }
        for package in &mut graph.packages {
            package.license = package.license.take().map(|license| license.replace("Zlib OR ", ""));
        }
    });
    assert!(matches!(&violations[..], [one] if one.contains("Zlib")), "{violations:?}");
}

#[test]
fn a_package_from_another_source_than_crates_io_is_refused() {
    for source in
        ["git+https://example.com/fork?rev=1#1", "registry+https://example.com/index", "sparse+https://x/"]
    {
        let mut foreign = package("foreign", "1.0.0");
        foreign.source = Some(source.to_owned());
        let violations = violations_after(|graph| graph.link(foreign));
        assert!(matches!(&violations[..], [one] if one.contains(source)), "{violations:?}");
    }
}

#[test]
fn every_banned_crate_is_refused_with_the_reason() {
    for ban in POLICY.bans {
        let violations = violations_after(|graph| graph.link(package(ban.name, "1.0.0")));
        assert!(matches!(&violations[..], [one] if one.contains(ban.reason)), "{}: {violations:?}", ban.name);
    }
}

#[test]
fn a_second_version_of_a_crate_is_refused() {
    let violations = violations_after(|graph| graph.link(package("serde_json", "0.9.1")));
    assert!(matches!(&violations[..], [one] if one.contains("serde_json: 0.9.1, 1.")), "{violations:?}");
}

#[test]
fn a_third_version_beside_a_skipped_one_is_refused() {
    let violations = violations_after(|graph| graph.link(package("base64", "0.21.7")));
    assert!(matches!(&violations[..], [one] if one.contains("base64: 0.21.7, 0.23.")), "{violations:?}");
}

#[test]
fn a_second_version_that_only_tests_need_is_accepted() {
    let violations = violations_after(|graph| graph.packages.push(package("serde_json", "0.9.1")));
    assert!(violations.is_empty(), "{violations:?}");
}

#[test]
fn a_skipped_version_that_is_gone_is_stale() {
    let violations = violations_after(|graph| graph.remove("base64", "0.22"));
    assert!(matches!(&violations[..], [one] if one.contains("base64 0.22")), "{violations:?}");
}

#[test]
fn a_skipped_version_that_is_the_only_one_left_is_stale() {
    let violations = violations_after(|graph| graph.remove("base64", "0.23"));
    assert!(matches!(&violations[..], [one] if one.contains("base64 0.22")), "{violations:?}");
}

#[test]
fn a_requirement_of_any_version_is_refused_except_between_our_own_packages() {
    let dependency = |kind: Option<&str>, source: Option<&str>| {
        serde_json::from_value(
            serde_json::json!({ "name": "any", "req": "*", "kind": kind, "source": source }),
        )
        .unwrap()
    };
    let refused = |publish: Option<Vec<String>>, kind, source| {
        let mut careless = package("careless", "1.0.0");
        (careless.publish, careless.dependencies) = (publish, vec![dependency(kind, source)]);
        let violations = violations_after(|graph| graph.link(careless));
        violations.iter().any(|one| one.contains("careless 1.0.0") && one.contains("any"))
    };
    let (crates_io, private) = (Some(POLICY.sources[0]), || Some(Vec::new()));
    assert!(refused(private(), None, crates_io));
    assert!(refused(private(), Some("dev"), crates_io));
    assert!(refused(None, None, None));
    assert!(!refused(private(), None, None));
    assert!(!refused(None, Some("dev"), None));
}
