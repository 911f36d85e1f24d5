//! Policies from a file, and the desired state that they request for this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};
use vfleet_plan::admission::Severity;
use vfleet_plan::standalone::{PolicyFile, StandalonePlan, plan_standalone};
use vfleet_plan::{HostFacts, NamedPolicy, PfOutcome, PolicyEvaluation, find_node_mismatch, selects_node};

use super::report::{FindingLine, PolicyLine};

const API_VERSION: &str = "sriovnetwork.openshift.io/v1";
const KIND: &str = "SriovNetworkNodePolicy";
const LIST_KIND: &str = "SriovNetworkNodePolicyList";

/// Policies of a file, and the labels of the machine.
#[derive(Debug, Default)]
pub(super) struct PolicySource {
    policies: BTreeMap<String, SriovNetworkNodePolicySpec>,
    /// Policies that cannot be read, with the error.
    unreadable: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    /// Notes for the user.
    notes: Vec<String>,
    /// Software bridges are managed.
    manage_software_bridges: bool,
}

/// Policies, evaluated for this machine.
pub(super) struct EvaluatedPolicies {
    /// Desired state of the machine.
    pub(super) spec: SriovNetworkNodeStateSpec,
    /// Result of each policy.
    pub(super) policies: Vec<PolicyLine>,
    /// Findings of a cluster's admission.
    pub(super) findings: Vec<FindingLine>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// Parses `KEY=VALUE`.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text} is not KEY=VALUE"))?;
    if key.is_empty() {
        return Err(format!("{text} has no key"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Returns the desired state that the policies in `text` request for the machine `facts` with these labels.
pub(crate) fn desired_spec(
    text: &str,
    labels: &[(String, String)],
    facts: &HostFacts,
) -> anyhow::Result<SriovNetworkNodeStateSpec> {
    Ok(PolicySource::parse(text, labels)?.evaluate(facts).spec)
}

impl PolicySource {
    /// Reads the policies in `file`, for a machine with these labels.
    pub(super) fn read(file: &Path, labels: &[(String, String)]) -> anyhow::Result<Self> {
        let text = if file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            text
        } else {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        };
        let source = Self::parse(&text, labels)
            .with_context(|| format!("{} is not a file of policies", file.display()))?;
        if source.policies.is_empty() && source.unreadable.is_empty() {
            bail!(
                "{} contains no policy: use `vfleet node reset` to reset all PFs that vfleet configured",
                file.display()
            );
        }
        Ok(source)
    }

    pub(super) fn parse(text: &str, labels: &[(String, String)]) -> anyhow::Result<Self> {
        // The text of the error contains its causes.
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
        // Lists as `kubectl get -o yaml` writes them.
        if let ("List" | LIST_KIND, Some(Value::Array(items))) = (kind.as_str(), document.get("items")) {
            return items.iter().try_for_each(|item| self.add(item.clone()));
        }
        match kind.as_str() {
            KIND => {}
            "" => bail!("kind is missing: only {KIND} and lists of it are supported"),
            _ => bail!("kind is {kind:?}: only {KIND} and lists of it are supported"),
        }
        match document.get("apiVersion").and_then(Value::as_str) {
            None | Some(API_VERSION) => {}
            Some(other) => bail!("apiVersion is {other:?}: only {API_VERSION} is supported"),
        }
        let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if name.is_empty() {
            bail!("metadata.name is missing");
        }
        if self.policies.contains_key(&name) || self.unreadable.contains_key(&name) {
            bail!("policy {name} occurs twice: give each policy its own name");
        }
        let written = document.get("spec").cloned().unwrap_or_default();
        match serde_json::from_value::<SriovNetworkNodePolicy>(document) {
            Ok(policy) => {
                let unknown = find_unknown("spec", &written, &serde_json::to_value(&policy.spec)?);
                if !unknown.is_empty() {
                    let unknown = unknown.join(", ");
                    self.notes.push(format!("ignored unknown fields of policy {name}: {unknown}"));
                }
                self.policies.insert(name, policy.spec);
            }
            Err(error) => drop(self.unreadable.insert(name, error.to_string())),
        }
        Ok(())
    }

    /// Clears all node selectors: without a cluster there is no Node object with labels.
    fn ignore_node_selectors(&mut self) {
        let mut ignored = Vec::new();
        for (name, spec) in &mut self.policies {
            if !std::mem::take(&mut spec.node_selector).is_empty() {
                ignored.push(name.as_str());
            }
        }
        if !ignored.is_empty() {
            self.notes.push(format!(
                "ignored nodeSelector of {}: without --label every policy applies to this machine",
                ignored.join(", ")
            ));
        }
    }

    /// Returns the same policies; if `manage_software_bridges`, their bridges are created.
    pub(super) fn with_bridges(self, manage_software_bridges: bool) -> Self {
        Self { manage_software_bridges, ..self }
    }

    /// Returns the policies whose nodeSelector matches this machine.
    pub(super) fn for_this_machine(&self) -> impl Iterator<Item = NamedPolicy<'_>> {
        let all = self.policies.iter().map(|(name, spec)| NamedPolicy { name, spec });
        all.filter(|policy| selects_node(policy, &self.labels))
    }

    /// Evaluates the policies for the machine.
    pub(super) fn evaluate(&self, facts: &HostFacts) -> EvaluatedPolicies {
        let policies: Vec<_> = self.policies.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect();
        let unreadable: BTreeSet<String> = self.unreadable.keys().cloned().collect();
        let file = PolicyFile {
            policies: &policies,
            unreadable: &unreadable,
            labels: &self.labels,
            manage_software_bridges: self.manage_software_bridges,
        };
        let plan = plan_standalone(&file, facts);
        let mut lines = fault_lines(&plan);
        let unreadable = self.unreadable.iter();
        lines.extend(unreadable.map(|(name, error)| PolicyLine::at_fault(name, None, error.clone())));
        lines.extend(plan.evaluations.iter().flat_map(evaluation_lines));
        for policy in &policies {
            if let Some(mismatch) = find_node_mismatch(policy, &self.labels) {
                lines.push(PolicyLine::not_selected(policy.name, None, mismatch.to_string()));
            }
        }
        lines.sort_by(|a, b| a.policy.cmp(&b.policy));
        let kept = plan.kept.iter().map(ToString::to_string);
        EvaluatedPolicies {
            spec: plan.spec,
            policies: lines,
            findings: plan
                .findings
                .iter()
                .map(|(policy, finding)| FindingLine::new(policy, finding))
                .collect(),
            notes: self.notes.iter().cloned().chain(kept).collect(),
        }
    }
}

/// Returns policies that cannot be followed: refused by admission, or with a missing card.
fn fault_lines(plan: &StandalonePlan) -> Vec<PolicyLine> {
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
        missing.map(|card| PolicyLine::at_fault(&card.policy, Some(card.card.clone()), card.to_string()));
    refusals.chain(missing).collect()
}

/// Returns the paths of fields in `written` that are not in `read`, to find misspelled fields.
fn find_unknown(path: &str, written: &Value, read: &Value) -> Vec<String> {
    // The user chooses the keys of a nodeSelector.
    let is_free = path == "spec.nodeSelector";
    let fields = written.as_object().filter(|_| !is_free).into_iter().flatten();
    fields
        .filter(|(_, value)| !value.is_null())
        .flat_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match read.get(name) {
                None => vec![path],
                Some(read) => find_unknown(&path, value, read),
            }
        })
        .collect()
}

/// Returns lines about the PFs that a policy selects, or about why it selects none.
fn evaluation_lines(evaluation: &PolicyEvaluation) -> Vec<PolicyLine> {
    let selects = evaluation.selects();
    let is_listed = |outcome: &PfOutcome| !selects || !matches!(outcome, PfOutcome::NotSelected(_));
    let listed = evaluation.pfs.iter().filter(|pf| is_listed(&pf.outcome));
    let mut lines: Vec<_> = listed
        .map(|pf| {
            let name = pf.name.clone().unwrap_or_else(|| pf.pci_address.to_string());
            let text = pf.outcome.to_string();
            match &pf.outcome {
                PfOutcome::NotSelected(_) => PolicyLine::not_selected(&evaluation.policy, Some(name), text),
                outcome if outcome.is_satisfied() => {
                    PolicyLine::selected(&evaluation.policy, Some(name), "selected".to_owned())
                }
                PfOutcome::Selected { .. } => PolicyLine::selected(&evaluation.policy, Some(name), text),
                PfOutcome::Invalid(_) | PfOutcome::Undecided(_) => {
                    PolicyLine::at_fault(&evaluation.policy, Some(name), text)
                }
            }
        })
        .collect();
    if evaluation.pfs.is_empty() {
        let text = "the machine has no network card that supports SR-IOV".to_owned();
        lines.push(PolicyLine::not_selected(&evaluation.policy, None, text));
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
    fn without_labels_every_policy_applies_to_this_machine() {
        let source = PolicySource::parse(POLICY, &[]).unwrap();
        assert!(source.policies["a"].node_selector.is_empty());
        assert!(source.notes[0].contains("ignored nodeSelector of a"), "{:?}", source.notes);
        let labels = [("role".to_owned(), "y".to_owned())];
        let source = PolicySource::parse(POLICY, &labels).unwrap();
        let evaluated = source.evaluate(&HostFacts::default());
        assert_eq!(evaluated.policies.len(), 1);
        assert!(
            evaluated.policies[0].message.contains("nodeSelector needs label role=x"),
            "{:?}",
            evaluated.policies
        );
    }

    #[test]
    fn a_list_is_read_and_other_kinds_are_refused() {
        let list = format!("kind: List\nitems:\n- {}", POLICY.trim().replace('\n', "\n  "));
        assert_eq!(PolicySource::parse(&list, &[]).unwrap().policies.len(), 1);
        let error = PolicySource::parse("kind: Pod\nmetadata: { name: a }", &[]).unwrap_err();
        assert!(format!("{error:#}").contains("document 1: kind is \"Pod\""), "{error:#}");
        let twice = format!("{POLICY}---\n{POLICY}");
        assert!(format!("{:#}", PolicySource::parse(&twice, &[]).unwrap_err()).contains("occurs twice"));
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_reported_and_the_others_are_used() {
        let bad = "kind: SriovNetworkNodePolicy\nmetadata: { name: b }\nspec: { numVfs: many }";
        let source = PolicySource::parse(&format!("{POLICY}---\n{bad}"), &[]).unwrap();
        assert_eq!((source.policies.len(), source.unreadable.len()), (1, 1));
        let evaluated = source.evaluate(&HostFacts::default());
        assert!(evaluated.policies.iter().any(|line| line.policy == "b" && line.is_at_fault()));
    }

    #[test]
    fn a_label_has_a_key() {
        assert_eq!(parse_label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(parse_label("a").is_err() && parse_label("=b").is_err());
    }
}
