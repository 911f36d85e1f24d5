//! Rows of the table for the operator, with limits.

use super::operator::{BareFigures, Figures};
use super::report::{Figure, Limit, Row, Unit};

/// Measurements on a fleet of one size.
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) vfleet: Figures,
    pub(crate) go: Option<Figures>,
}

/// Returns one row for each measurement and size. Rows of one measurement are adjacent to show how it grows.
pub(crate) fn rows(sizes: &[Size]) -> Vec<Row> {
    let Some(smallest) = sizes.iter().min_by_key(|size| size.nodes) else { return Vec::new() };
    let measurements: [fn(&Size, &Size) -> Row; 10] = [
        |size, _| all(size),
        all_cpu,
        |size, _| few_writes(size),
        |size, _| few_first(size),
        |size, _| few_last(size),
        few_cpu,
        |size, _| late_card(size),
        |size, _| late_node(size),
        |size, _| idle(size),
        |size, _| memory(size),
    ];
    measurements.iter().flat_map(|row| sizes.iter().map(move |size| row(size, smallest))).collect()
}

fn all(size: &Size) -> Row {
    let bare = bare(size, |bare| bare.all);
    let limit = bare.and_then(|bare| at_most(1.5 * bare, "1.5x bare loop"));
    let row = Row { bare, limit, ..row(size, "policy for all nodes", Unit::Time) };
    with_figures(row, size, |figures| Figure::Is(figures.all))
}

fn all_cpu(size: &Size, smallest: &Size) -> Row {
    let per_node = |figures: &Figures, size: &Size| figures.all_cpu / count(size.nodes);
    let limit = at_most(1.5 * per_node(&smallest.vfleet, smallest), "1.5x smallest");
    let mut row = Row { limit, ..row(size, "  CPU time per node", Unit::TimeEach) };
    row.vfleet = Some(Figure::Is(per_node(&size.vfleet, size)));
    row.go = size.go.as_ref().map(|go| Figure::Is(per_node(go, size)));
    row
}

fn few_writes(size: &Size) -> Row {
    let row = Row { limit: at_most(30.0, "30"), ..row(size, "policy for 10 nodes: API writes", Unit::Count) };
    with_figures(row, size, |figures| Figure::Is(figures.few.writes))
}

fn few_first(size: &Size) -> Row {
    let (bare, limit) = (bare(size, |bare| bare.few_first), at_most(0.1, "100 ms"));
    let row = Row { bare, limit, ..row(size, "  first node state", Unit::Time) };
    with_figures(row, size, |figures| Figure::Is(figures.few.first))
}

fn few_last(size: &Size) -> Row {
    let (bare, limit) = (bare(size, |bare| bare.few_last), at_most(0.2, "200 ms"));
    let row = Row { bare, limit, ..row(size, "  all 10 node states", Unit::Time) };
    with_figures(row, size, |figures| Figure::Is(figures.few.last))
}

fn few_cpu(size: &Size, smallest: &Size) -> Row {
    let limit = at_most(2.0 * smallest.vfleet.few.cpu, "2x smallest");
    let row = Row { limit, ..row(size, "  CPU time", Unit::Time) };
    with_figures(row, size, |figures| Figure::Is(figures.few.cpu))
}

fn late_card(size: &Size) -> Row {
    let row = Row {
        bare: bare(size, |bare| bare.one),
        limit: at_most(0.2, "200 ms"),
        ..row(size, "a NIC appears late", Unit::Time)
    };
    with_figures(row, size, |figures| figures.late_card)
}

fn late_node(size: &Size) -> Row {
    let row = Row {
        bare: bare(size, |bare| 2.0 * bare.one),
        limit: at_most(0.2, "200 ms"),
        ..row(size, "a node appears late", Unit::Time)
    };
    with_figures(row, size, |figures| figures.late_node)
}

fn memory(size: &Size) -> Row {
    with_figures(row(size, "memory (RSS), 2 NICs per node", Unit::Bytes), size, |figures| {
        Figure::Is(figures.memory.now)
    })
}

fn idle(size: &Size) -> Row {
    let row = Row { limit: at_most(0.0, "0"), ..row(size, "API requests in 20 s while idle", Unit::Count) };
    with_figures(row, size, |figures| Figure::Is(count(figures.idle)))
}

/// Returns the rows for memory with many cards.
pub(crate) fn many_cards(nodes: usize, memory: super::process::Memory) -> Vec<Row> {
    let row = |what, bytes, limit| Row {
        what,
        nodes,
        unit: Unit::Bytes,
        bare: None,
        vfleet: Some(Figure::Is(bytes)),
        go: None,
        limit,
    };
    vec![
        row("memory (RSS), 8 NICs of 8 VFs per node", memory.now, at_most(150e6, "150 MB")),
        row("  peak", memory.peak, None),
    ]
}

fn row(size: &Size, what: &'static str, unit: Unit) -> Row {
    Row { what, nodes: size.nodes, unit, bare: None, vfleet: None, go: None, limit: None }
}

fn bare(size: &Size, figure: impl Fn(&BareFigures) -> f64) -> Option<f64> {
    size.vfleet.bare.as_ref().map(figure)
}

fn with_figures(row: Row, size: &Size, figure: impl Fn(&Figures) -> Figure) -> Row {
    Row { vfleet: Some(figure(&size.vfleet)), go: size.go.as_ref().map(figure), ..row }
}

#[expect(clippy::unnecessary_wraps, reason = "a row has an optional limit")]
fn at_most(maximum: f64, text: &str) -> Option<Limit> {
    Some(Limit { text: text.to_owned(), maximum })
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
