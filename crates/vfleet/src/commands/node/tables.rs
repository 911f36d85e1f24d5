//! Report of a command as tables.

use std::fmt::Display;

use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::exit::ExitStatus;
use super::pods::{AttachmentLine, PodsReport, RepairLine};
use super::report::{Card, Report, Vf};

const NONE: &str = "-";
/// Length of an ID of a container in tables, as in those of container runtimes.
const SHORT_ID: usize = 13;

/// Returns the report: policies, findings, steps, problems, cards, VFs and a summary.
pub(super) fn format_report(report: &Report) -> String {
    let mut parts: Vec<String> = report.notes.iter().map(|note| format!("note: {note}\n")).collect();
    parts.push(policies(report));
    parts.push(findings(report));
    parts.push(steps(report));
    parts.extend(report.problems.iter().map(|problem| format!("{}: {}\n", problem.reason, problem.message)));
    parts.push(cards(&report.cards));
    parts.push(vfs(&report.cards));
    parts.push(summary(report));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Returns the report about attachments: repairs, attachments and a summary.
pub(super) fn format_pods(report: &PodsReport) -> String {
    let repairs = report.repairs.as_deref().unwrap_or_default();
    let mut parts = vec![repair_table(repairs), attachment_table(&report.attachments), pods_summary(report)];
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn repair_table(repairs: &[RepairLine]) -> String {
    let rows = repairs.iter().map(|line| {
        let RepairLine { device, container_id, interface, message, .. } = line;
        vec![or_none(*device), shorten(container_id), interface.clone(), message.clone()]
    });
    table(&["REPAIRED DEVICE", "CONTAINER", "INTERFACE", "RESULT"], rows)
}

fn attachment_table(attachments: &[AttachmentLine]) -> String {
    let rows = attachments.iter().map(|line| {
        let vf = line.pf.as_ref().map(|pf| match line.vf_index {
            Some(index) => format!("{pf} {index}"),
            None => pf.clone(),
        });
        let settings = line.settings.iter().map(|setting| format!("{} {}", setting.key, setting.value));
        let settings = settings.collect::<Vec<_>>().join(", ");
        vec![
            or_none(line.pod.as_ref()),
            or_none(line.container_id.as_deref().map(shorten)),
            or_none(line.interface.as_ref()),
            or_none(line.device),
            or_none(vf),
            line.plugin.to_owned(),
            or_none(line.network.as_ref()),
            or_none(Some(settings).filter(|settings| !settings.is_empty())),
            line.message.clone(),
        ]
    });
    let header = ["POD", "CONTAINER", "INTERFACE", "DEVICE", "VF", "PLUGIN", "NETWORK", "SETTINGS", "STATE"];
    table(&header, rows)
}

fn shorten(container_id: &str) -> String {
    container_id.chars().take(SHORT_ID).collect()
}

fn pods_summary(report: &PodsReport) -> String {
    let faults = report.attachments.iter().filter(|line| line.state.is_fault()).count();
    // The results of repairs have their own remedies.
    let can_repair =
        report.repairs.is_none() && report.attachments.iter().any(|line| line.state.is_repairable());
    let count = match report.attachments.len() {
        0 => "no pod has a device of a CNI plugin".to_owned(),
        1 => "1 attachment".to_owned(),
        count => format!("{count} attachments"),
    };
    let faults = if faults > 0 { format!(", {faults} NOT as they should be") } else { String::new() };
    let remedy =
        if can_repair { ": release what is left behind with `vfleet node pods --repair`" } else { "" };
    format!("{count}{faults}{remedy}\n")
}

fn policies(report: &Report) -> String {
    let rows = report.policies.iter().map(|line| {
        let mark = if line.is_at_fault() { "FAULT: " } else { "" };
        vec![line.policy.clone(), or_none(line.pf.as_ref()), format!("{mark}{}", line.message)]
    });
    table(&["POLICY", "PF", "RESULT"], rows)
}

/// Returns findings that are not listed as a result of their policy. Policies for other machines are not faults here.
fn findings(report: &Report) -> String {
    let is_listed =
        |policy: &str| report.policies.iter().any(|line| line.policy == policy && line.is_at_fault());
    let others = report.findings.iter().filter(|line| !(line.refused && is_listed(&line.policy)));
    let rows = others.map(|line| {
        let mark = if line.refused { "REFUSED: " } else { "" };
        vec![line.policy.clone(), line.field.clone(), format!("{mark}{}", line.message)]
    });
    table(&["POLICY", "FIELD", "ADMISSION IN A CLUSTER"], rows)
}

fn steps(report: &Report) -> String {
    let rows = (1..).zip(&report.steps).map(|(number, line): (usize, _)| {
        vec![
            number.to_string(),
            line.step.clone(),
            line.why.clone(),
            line.disruption.description().to_owned(),
        ]
    });
    table(&["#", "STEP", "REASON", "DISRUPTION"], rows)
}

fn cards(cards: &[Card]) -> String {
    if cards.is_empty() {
        return "the machine has no network card that supports SR-IOV\n".to_owned();
    }
    let rows = cards.iter().map(|card| {
        if let Some(error) = &card.read_error {
            return vec![NONE.to_owned(), card.pci_address.clone(), format!("cannot be read: {error}")];
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
        ["PF", "PCI ADDRESS", "DRIVER", "LINK", "MTU", "MAC", "ESWITCH", "VFS", "RECORD", "IN USE FOR"];
    table(&header, rows)
}

/// Returns the number of VFs; `off` for a card whose firmware has SR-IOV disabled.
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
        ["VF", "PCI ADDRESS", "DRIVER", "INTERFACE", "MTU", "MAC", "REPRESENTOR", "POLICY", "IN USE FOR"];
    table(&header, rows)
}

fn summary(report: &Report) -> String {
    let steps = report.steps.len();
    match (&report.refused, report.executed) {
        (Some(refused), _) => format!("refused, no step was executed: {refused}\n"),
        (None, Some(executed)) if report.reboots => {
            format!("{executed} steps executed, the machine reboots: run this command again afterwards\n")
        }
        (None, Some(executed)) if report.exit == ExitStatus::Done => {
            format!("{executed} steps executed, all cards are configured\n")
        }
        (None, Some(executed)) => format!("{executed} steps executed, NOT all cards are configured\n"),
        (None, None) if steps == 0 && report.exit == ExitStatus::Done => "nothing to do\n".to_owned(),
        (None, None) if steps == 0 => {
            "NOT all cards are configured, and no step can change that: see above\n".to_owned()
        }
        (None, None) => format!("{steps} steps to do, disruption: {}\n", report.disruption.description()),
    }
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

/// Returns a table without lines, so that rows can be cut, sorted and searched. Empty without rows.
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
