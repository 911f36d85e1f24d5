//! Policies from a file, and what they want of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};
use vfleet_plan::admission::Severity;
use vfleet_plan::standalone::{PolicyFile, StandalonePlan, plan_standalone};
use vfleet_plan::{HostFacts, NamedPolicy, PfVerdict, PolicyAnswer, selects_node, why_not_node};

use super::report::{FindingLine, PolicyLine};

const API_VERSION: &str = "sriovnetwork.openshift.io/v1";
const KIND: &str = "SriovNetworkNodePolicy";
const LIST_KIND: &str = "SriovNetworkNodePolicyList";

/// Policies, and the labels of the machine.
#[derive(Debug, Default)]
pub(super) struct Source {
    policies: BTreeMap<String, SriovNetworkNodePolicySpec>,
    /// Policies that are there and cannot be read, and why.
    unreadable: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    /// What one should know.
    notes: Vec<String>,
}

/// What policies want of this machine.
pub(super) struct Wish {
    /// What it shall be like.
    pub(super) spec: SriovNetworkNodeStateSpec,
    /// What each policy is told.
    pub(super) policies: Vec<PolicyLine>,
    /// What a cluster's admission would say of each.
    pub(super) findings: Vec<FindingLine>,
    /// What one should know.
    pub(super) notes: Vec<String>,
}

/// `KEY=VALUE`.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text} is not KEY=VALUE"))?;
    if key.is_empty() {
        return Err(format!("{text} has no key"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Returns what the policies in `text` want of the machine `facts`, which has these labels.
pub(crate) fn wanted_spec(
    text: &str,
    labels: &[(String, String)],
    facts: &HostFacts,
) -> anyhow::Result<SriovNetworkNodeStateSpec> {
    Ok(Source::parse(text, labels)?.wish(facts).spec)
}

impl Source {
    /// The policies in `file`, for a machine with these labels.
    pub(super) fn read(file: &Path, labels: &[(String, String)]) -> anyhow::Result<Self> {
        let text = if file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the standard input")?;
            text
        } else {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        };
        let source = Self::parse(&text, labels)
            .with_context(|| format!("{} is not a file of policies", file.display()))?;
        if source.policies.is_empty() && source.unreadable.is_empty() {
            bail!(
                "{}: there is no policy in it: `vfleet node reset` gives back what is ours",
                file.display()
            );
        }
        Ok(source)
    }

    pub(super) fn parse(text: &str, labels: &[(String, String)]) -> anyhow::Result<Self> {
        // It says all that its causes say.
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| anyhow!("{error}"))?;
        let mut source = Self { labels: labels.iter().cloned().collect(), ..Self::default() };
        for (number, document) in (1..).zip(documents) {
            source.add(document).with_context(|| format!("document {number}"))?;
        }
        if source.labels.is_empty() {
            source.ignore_node_selectors();
        }
        Ok(source)
    }

    fn add(&mut self, document: Value) -> anyhow::Result<()> {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if document.is_null() {
            return Ok(());
        }
        // As `kubectl get -o yaml` writes them.
        if let ("List" | LIST_KIND, Some(Value::Array(items))) = (kind.as_str(), document.get("items")) {
            return items.iter().try_for_each(|item| self.add(item.clone()));
        }
        match kind.as_str() {
            KIND => {}
            "" => bail!("it has no kind: only {KIND} and lists of it are possible"),
            _ => bail!("its kind is {kind:?}: only {KIND} and lists of it are possible"),
        }
        match document.get("apiVersion").and_then(Value::as_str) {
            None | Some(API_VERSION) => {}
            Some(other) => bail!("its apiVersion is {other:?}: only {API_VERSION} is possible"),
        }
        let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if name.is_empty() {
            bail!("it has no metadata.name");
        }
        if self.policies.contains_key(&name) || self.unreadable.contains_key(&name) {
            bail!("policy {name} is there twice: give each its own name");
        }
        let written = document.get("spec").cloned().unwrap_or_default();
        match serde_json::from_value::<SriovNetworkNodePolicy>(document) {
            Ok(policy) => {
                let unknown = unknown("spec", &written, &serde_json::to_value(&policy.spec)?);
                if !unknown.is_empty() {
                    let unknown = unknown.join(" and ");
                    self.notes
                        .push(format!("{unknown} of {name} does not count: no policy has such a field"));
                }
                self.policies.insert(name, policy.spec);
            }
            Err(error) => drop(self.unreadable.insert(name, error.to_string())),
        }
        Ok(())
    }

    /// There is no node object, and so no labels that a policy could mean.
    fn ignore_node_selectors(&mut self) {
        let mut ignored = Vec::new();
        for (name, spec) in &mut self.policies {
            if !std::mem::take(&mut spec.node_selector).is_empty() {
                ignored.push(name.as_str());
            }
        }
        if !ignored.is_empty() {
            self.notes.push(format!(
                "nodeSelector of {} does not count: without --label every policy is for this machine",
                ignored.join(", ")
            ));
        }
    }

    /// The policies that are for this machine.
    pub(super) fn for_this_machine(&self) -> impl Iterator<Item = NamedPolicy<'_>> {
        let all = self.policies.iter().map(|(name, spec)| NamedPolicy { name, spec });
        all.filter(|policy| selects_node(policy, &self.labels))
    }

    /// What the policies want of the machine.
    pub(super) fn wish(&self, facts: &HostFacts) -> Wish {
        let policies: Vec<_> = self.policies.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect();
        let unreadable: BTreeSet<String> = self.unreadable.keys().cloned().collect();
        let file = PolicyFile { policies: &policies, unreadable: &unreadable, labels: &self.labels };
        let plan = plan_standalone(&file, facts);
        let mut lines = faults(&plan);
        let unreadable = self.unreadable.iter();
        lines.extend(unreadable.map(|(name, error)| PolicyLine::at_fault(name, None, error.clone())));
        lines.extend(plan.answers.iter().flat_map(answered));
        for policy in &policies {
            if let Some(rule) = why_not_node(policy, &self.labels) {
                lines.push(PolicyLine::not_selected(policy.name, None, rule.to_string()));
            }
        }
        lines.sort_by(|a, b| a.policy.cmp(&b.policy));
        let kept = plan.kept.iter().map(ToString::to_string);
        Wish {
            spec: plan.spec,
            policies: lines,
            findings: plan.findings.iter().map(|(policy, one)| FindingLine::new(policy, one)).collect(),
            notes: self.notes.iter().cloned().chain(kept).collect(),
        }
    }
}

/// Policies that cannot be followed: refused by admission, or with a card that is not there.
fn faults(plan: &StandalonePlan) -> Vec<PolicyLine> {
    let refusals = plan
        .findings
        .iter()
        .filter(|(policy, finding)| finding.severity == Severity::Error && plan.refused.contains(policy));
    let refusals = refusals.map(|(policy, finding)| {
        let text = format!("{}: {}", finding.field, finding.message);
        PolicyLine::at_fault(policy, None, text)
    });
    let missing = plan.missing.iter();
    let missing =
        missing.map(|one| PolicyLine::at_fault(&one.policy, Some(one.card.clone()), one.to_string()));
    refusals.chain(missing).collect()
}

/// What of `written` is not in what was read of it, by path: a slip of the pen should not go unnoticed.
fn unknown(path: &str, written: &Value, read: &Value) -> Vec<String> {
    // Pairs that the user names.
    let is_free = path == "spec.nodeSelector";
    let fields = written.as_object().filter(|_| !is_free).into_iter().flatten();
    fields
        .filter(|(_, value)| !value.is_null())
        .flat_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match read.get(name) {
                None => vec![path],
                Some(read) => unknown(&path, value, read),
            }
        })
        .collect()
}

/// What is of interest of an answer: the PFs that it selects, or why it selects none.
fn answered(answer: &PolicyAnswer) -> Vec<PolicyLine> {
    let selects = answer.selects();
    let is_told = |verdict: &PfVerdict| !selects || !matches!(verdict, PfVerdict::NotSelected(_));
    let told = answer.pfs.iter().filter(|pf| is_told(&pf.verdict));
    let mut lines: Vec<_> = told
        .map(|pf| {
            let name = pf.name.clone().unwrap_or_else(|| pf.pci_address.to_string());
            let text = pf.verdict.to_string();
            match &pf.verdict {
                PfVerdict::NotSelected(_) => PolicyLine::not_selected(&answer.policy, Some(name), text),
                verdict if verdict.is_as_asked() => {
                    PolicyLine::selected(&answer.policy, Some(name), "selected".to_owned())
                }
                PfVerdict::Selected { .. } => PolicyLine::selected(&answer.policy, Some(name), text),
                PfVerdict::Invalid(_) | PfVerdict::Undecided(_) => {
                    PolicyLine::at_fault(&answer.policy, Some(name), text)
                }
            }
        })
        .collect();
    if answer.pfs.is_empty() {
        let text = "there is no network card that can have VFs".to_owned();
        lines.push(PolicyLine::not_selected(&answer.policy, None, text));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "
kind: SriovNetworkNodePolicy
metadata: { name: a }
spec: { resourceName: r, numVfs: 2, nodeSelector: { role: x }, nicSelector: { pfNames: [ens1f0] } }
";

    #[test]
    fn without_labels_every_policy_is_for_this_machine() {
        let source = Source::parse(POLICY, &[]).unwrap();
        assert!(source.policies["a"].node_selector.is_empty());
        assert!(source.notes[0].contains("nodeSelector of a does not count"), "{:?}", source.notes);
        let labels = [("role".to_owned(), "y".to_owned())];
        let source = Source::parse(POLICY, &labels).unwrap();
        let wish = source.wish(&HostFacts::default());
        assert_eq!(wish.policies.len(), 1);
        assert!(wish.policies[0].says.contains("nodeSelector wants label role=x"), "{:?}", wish.policies);
    }

    #[test]
    fn a_list_is_its_items_and_other_kinds_are_refused() {
        let list = format!("kind: List\nitems:\n- {}", POLICY.trim().replace('\n', "\n  "));
        assert_eq!(Source::parse(&list, &[]).unwrap().policies.len(), 1);
        let error = Source::parse("kind: Pod\nmetadata: { name: a }", &[]).unwrap_err();
        assert!(format!("{error:#}").contains("document 1: its kind is \"Pod\""), "{error:#}");
        let twice = format!("{POLICY}---\n{POLICY}");
        assert!(format!("{:#}", Source::parse(&twice, &[]).unwrap_err()).contains("there twice"));
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_said_to_be_and_the_others_count() {
        let bad = "kind: SriovNetworkNodePolicy\nmetadata: { name: b }\nspec: { numVfs: many }";
        let source = Source::parse(&format!("{POLICY}---\n{bad}"), &[]).unwrap();
        assert_eq!((source.policies.len(), source.unreadable.len()), (1, 1));
        let wish = source.wish(&HostFacts::default());
        assert!(wish.policies.iter().any(|line| line.policy == "b" && line.is_at_fault()));
    }

    #[test]
    fn a_label_has_a_key() {
        assert_eq!(label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(label("a").is_err() && label("=b").is_err());
    }
}
