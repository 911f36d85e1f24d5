//! What a command tells, for people.

use std::fmt::Display;

use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::exit::Exit;
use super::report::{Card, Report, Vf};

const NONE: &str = "-";

/// All of it, in the order in which one asks: the policies, what is done for them, what went wrong, the cards.
pub(super) fn text(report: &Report) -> String {
    let mut parts: Vec<String> = report.notes.iter().map(|note| format!("note: {note}\n")).collect();
    parts.push(policies(report));
    parts.push(findings(report));
    parts.push(steps(report));
    parts.extend(report.problems.iter().map(|problem| format!("{}: {}\n", problem.reason, problem.says)));
    parts.push(cards(&report.cards));
    parts.push(vfs(&report.cards));
    parts.push(ending(report));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn policies(report: &Report) -> String {
    let rows = report.policies.iter().map(|line| {
        let mark = if line.is_at_fault() { "AT FAULT: " } else { "" };
        vec![line.policy.clone(), or_none(line.pf.as_ref()), format!("{mark}{}", line.says)]
    });
    table(&["POLICY", "PF", "SAYS"], rows)
}

/// What is told of policies already is not told again. Policies for other machines do not fail here.
fn findings(report: &Report) -> String {
    let is_told =
        |policy: &str| report.policies.iter().any(|line| line.policy == policy && line.is_at_fault());
    let others = report.findings.iter().filter(|line| !(line.refused && is_told(&line.policy)));
    let rows = others.map(|line| {
        let mark = if line.refused { "WOULD BE REFUSED: " } else { "" };
        vec![line.policy.clone(), line.field.clone(), format!("{mark}{}", line.says)]
    });
    table(&["POLICY", "FIELD", "A CLUSTER SAYS"], rows)
}

fn steps(report: &Report) -> String {
    let rows = (1..).zip(&report.steps).map(|(number, line): (usize, _)| {
        vec![number.to_string(), line.step.clone(), line.why.clone(), line.disruption.to_owned()]
    });
    table(&["#", "STEP", "WHY", "DISTURBS"], rows)
}

fn cards(cards: &[Card]) -> String {
    if cards.is_empty() {
        return "there is no network card that can have VFs\n".to_owned();
    }
    let rows = cards.iter().map(|card| {
        if let Some(unread) = &card.unread {
            return vec![NONE.to_owned(), card.pci_address.clone(), format!("cannot be read: {unread}")];
        }
        vec![
            or_none(card.interface.as_ref()),
            card.pci_address.clone(),
            or_none(card.driver.as_ref()),
            or_none(card.up.map(|up| if up { "up" } else { "down" })),
            or_none(card.mtu),
            or_none(card.mac.as_ref()),
            or_none(card.eswitch),
            vf_count(card),
            or_none(card.record),
            or_none(card.in_use_by.as_deref()),
        ]
    });
    let header =
        ["PF", "PCI ADDRESS", "DRIVER", "LINK", "MTU", "MAC", "ESWITCH", "VFS", "RECORD", "USED FOR"];
    table(&header, rows)
}

/// A card whose firmware has SR-IOV switched off shows no VFs at all.
fn vf_count(card: &Card) -> String {
    match (card.vfs.len(), card.total_vfs) {
        (0, 0) => "off".to_owned(),
        (count, total) => format!("{count} of {total}"),
    }
}

fn vfs(cards: &[Card]) -> String {
    let named = cards.iter().flat_map(|card| card.vfs.iter().map(move |vf| (card, vf)));
    let rows = named.map(|(card, vf): (&Card, &Vf)| {
        vec![
            format!("{} {}", card.interface.as_ref().unwrap_or(&card.pci_address), vf.index),
            vf.pci_address.clone(),
            or_none(vf.driver.as_ref()),
            or_none(vf.interface.as_ref()),
            or_none(vf.mtu),
            or_none(vf.mac.as_ref()),
            or_none(vf.representor.as_ref()),
            or_none(vf.policy.as_ref()),
            or_none(vf.in_use_by.as_deref()),
        ]
    });
    let header =
        ["VF", "PCI ADDRESS", "DRIVER", "INTERFACE", "MTU", "MAC", "REPRESENTOR", "POLICY", "USED FOR"];
    table(&header, rows)
}

fn ending(report: &Report) -> String {
    let steps = report.steps.len();
    match (&report.refused, report.executed) {
        (Some(refused), _) => format!("nothing was done: {refused}\n"),
        (None, Some(executed)) if report.restarts => {
            format!("{executed} steps done, the machine restarts: run this again afterwards\n")
        }
        (None, Some(executed)) if report.exit == Exit::Done => {
            format!("{executed} steps done, all is as wanted\n")
        }
        (None, Some(executed)) => format!("{executed} steps done, NOT all is as wanted\n"),
        (None, None) if steps == 0 && report.exit == Exit::Done => "nothing to do\n".to_owned(),
        (None, None) if steps == 0 => {
            "NOT all is as wanted, and no step can change that: see above\n".to_owned()
        }
        (None, None) => format!("{steps} steps to do, disruption {}\n", report.disruption),
    }
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

/// Columns without lines: rows can be cut, sorted and searched. Empty without rows.
fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(header.to_vec());
    let mut is_empty = true;
    for row in rows {
        table.add_row(row);
        is_empty = false;
    }
    if is_empty {
        return String::new();
    }
    let lines = table.lines().map(|line| format!("{}\n", line.trim()));
    lines.collect()
}
