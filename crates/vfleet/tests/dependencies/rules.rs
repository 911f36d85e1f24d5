//! Rules of the dependency policy.

use std::collections::{BTreeMap, BTreeSet};

use spdx::{Expression, LicenseReq, Licensee, ParseMode};

use crate::graph::{Graph, Package};

/// Dependency policy.
pub(crate) struct Policy {
    /// Allowed SPDX licenses, with their exceptions.
    pub(crate) licenses: &'static [&'static str],
    pub(crate) sources: &'static [&'static str],
    pub(crate) bans: &'static [Ban],
    pub(crate) skips: &'static [Skip],
}

/// Crate that must not be used in any version.
pub(crate) struct Ban {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

/// Version of a crate that may be used beside another version.
pub(crate) struct Skip {
    pub(crate) name: &'static str,
    /// Leading numbers of the version.
    pub(crate) version: &'static str,
    pub(crate) reason: &'static str,
}

impl Skip {
    fn matches(&self, name: &str, version: &str) -> bool {
        let rest = version.strip_prefix(self.version);
        self.name == name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl Policy {
    /// Returns one sentence for each violation.
    pub(crate) fn violations(&self, graph: &Graph) -> Vec<String> {
        let packages = &graph.packages;
        let mut violations: Vec<String> = packages
            .iter()
            .flat_map(|package| {
                let found = [
                    self.license_violation(package),
                    self.source_violation(package),
                    self.ban_violation(package),
                ];
                let found = found.into_iter().flatten().chain(wildcard_violations(package));
                found.map(|violation| format!("{} {}: {violation}", package.name, package.version))
            })
            .collect();
        violations.extend(self.stale_licenses(packages));
        violations.extend(self.version_violations(graph));
        violations
    }

    fn license_violation(&self, package: &Package) -> Option<String> {
        if package.is_private() {
            return None;
        }
        let Some(license) = &package.license else {
            return Some("it has no license".to_owned());
        };
        let expression = match parse(license) {
            Ok(expression) => expression,
            Err(error) => return Some(format!("its license {license:?} cannot be parsed: {error}")),
        };
        let allowed =
            |requirement: &LicenseReq| self.licensees().any(|licensee| licensee.satisfies(requirement));
        (!expression.evaluate(allowed)).then(|| format!("its license {license} is not allowed"))
    }

    fn stale_licenses(&self, packages: &[Package]) -> impl Iterator<Item = String> {
        let public = packages.iter().filter(|package| !package.is_private());
        let expressions: Vec<_> =
            public.filter_map(|package| parse(package.license.as_deref()?).ok()).collect();
        self.licensees()
            .filter(move |licensee| {
                let mut needed = expressions.iter().flat_map(Expression::requirements);
                !needed.any(|needed| licensee.satisfies(&needed.req))
            })
            .map(|licensee| format!("no package has the allowed license {licensee}: remove it"))
    }

    fn licensees(&self) -> impl Iterator<Item = Licensee> {
        self.licenses.iter().map(|license| Licensee::parse(license).unwrap())
    }

    fn source_violation(&self, package: &Package) -> Option<String> {
        let source = package.source.as_deref()?;
        (!self.sources.contains(&source)).then(|| format!("it comes from {source}, which is not allowed"))
    }

    fn ban_violation(&self, package: &Package) -> Option<String> {
        let ban = self.bans.iter().find(|ban| ban.name == package.name)?;
        Some(format!("it is banned: {}", ban.reason))
    }

    /// Checks versions of packages that are not only used by tests: the others cost neither size nor build time of
    /// users.
    fn version_violations(&self, graph: &Graph) -> Vec<String> {
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, version) in graph.linked() {
            versions.entry(name).or_default().insert(version);
        }
        let skipped = |name, version| self.skips.iter().any(|skip| skip.matches(name, version));
        let duplicates = versions.iter().filter_map(|(name, versions)| {
            let counted: Vec<&str> =
                versions.iter().copied().filter(|version| !skipped(name, version)).collect();
            (counted.len() > 1).then(|| format!("several versions of {name}: {}", counted.join(", ")))
        });
        let stale = self.skips.iter().filter_map(|skip| {
            let there = versions.get(skip.name).is_some_and(|versions| {
                versions.len() > 1 && versions.iter().any(|version| skip.matches(skip.name, version))
            });
            let Skip { name, version, reason } = skip;
            (!there).then(|| {
                format!("{name} {version} is not a second version any more ({reason}): remove the entry")
            })
        });
        duplicates.chain(stale).collect()
    }
}

/// Parses an SPDX expression. Old packages write `/` for `OR`.
fn parse(license: &str) -> Result<Expression, spdx::ParseError> {
    let mode = ParseMode { allow_slash_as_or_operator: true, allow_deprecated: true, ..ParseMode::STRICT };
    Expression::parse_mode(license, mode)
}

/// Returns dependencies without a version. Only paths may have none, in private packages or for tests.
fn wildcard_violations(package: &Package) -> impl Iterator<Item = String> {
    let wildcards = package.dependencies.iter().filter(|dependency| dependency.req == "*");
    wildcards
        .filter(|dependency| {
            let unpublished = package.is_private() || dependency.kind.as_deref() == Some("dev");
            let path = dependency.source.is_none();
            !(path && unpublished) && dependency.name != package.name
        })
        .map(|dependency| format!("it accepts any version of {}", dependency.name))
}
