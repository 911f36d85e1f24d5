//! The tables.

use std::fmt;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

/// One figure of one operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Figure {
    Is(f64),
    /// It was given up.
    MoreThan(f64),
}

/// What figures are counted in. Times are in seconds and memory is in bytes until they are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    Time,
    TimeEach,
    Count,
    Memory,
}

/// What vfleet's figure must not pass.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Limit {
    pub(crate) says: String,
    pub(crate) most: f64,
}

/// One line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) nodes: usize,
    pub(crate) unit: Unit,
    pub(crate) bare: Option<f64>,
    pub(crate) vfleet: Option<Figure>,
    pub(crate) go: Option<Figure>,
    pub(crate) limit: Option<Limit>,
}

impl Row {
    /// Whether vfleet keeps the limit, when there is one.
    pub(crate) fn is_kept(&self) -> Option<bool> {
        let (limit, figure) = (self.limit.as_ref()?, self.vfleet?);
        Some(matches!(figure, Figure::Is(value) if value <= limit.most))
    }

    fn cells(&self) -> Vec<String> {
        let shown =
            |figure: Option<Figure>| figure.map(|figure| self.unit.figure(figure)).unwrap_or_default();
        let kept = self.is_kept().map(|kept| if kept { "ok" } else { "missed" });
        vec![
            self.what.to_owned(),
            self.nodes.to_string(),
            self.bare.map(|bare| self.unit.value(bare)).unwrap_or_default(),
            shown(self.vfleet),
            ratio(self.vfleet, self.bare.map(Figure::Is)),
            shown(self.go),
            ratio(self.go, self.vfleet),
            self.limit.as_ref().map(|limit| limit.says.clone()).unwrap_or_default(),
            kept.unwrap_or_default().to_owned(),
        ]
    }
}

impl Unit {
    fn figure(self, figure: Figure) -> String {
        match figure {
            Figure::Is(value) => self.value(value),
            Figure::MoreThan(value) => format!("> {}", self.value(value)),
        }
    }

    fn value(self, value: f64) -> String {
        match self {
            Self::Time if value >= 1.0 => format!("{value:.2} s"),
            Self::Time => format!("{:.0} ms", value * 1e3),
            Self::TimeEach => format!("{:.0} us", value * 1e6),
            Self::Count => format!("{value:.0}"),
            Self::Memory => format!("{:.1} MB", value / 1e6),
        }
    }
}

fn ratio(of: Option<Figure>, to: Option<Figure>) -> String {
    match (of, to) {
        (Some(Figure::Is(of)), Some(Figure::Is(to))) if to > 0.0 => format!("{:.2}x", of / to),
        (Some(Figure::MoreThan(of)), Some(Figure::Is(to))) if to > 0.0 => format!("> {:.0}x", of / to),
        _ => String::new(),
    }
}

/// The rows as a table.
pub(crate) struct Report(pub(crate) Vec<Row>);

impl Report {
    /// How many limits were missed.
    pub(crate) fn missed(&self) -> usize {
        self.0.iter().filter(|row| row.is_kept() == Some(false)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header([
            "",
            "nodes",
            "bare loop",
            "vfleet",
            "to bare",
            "Go v1.6.0",
            "to vfleet",
            "limit",
            "",
        ]);
        for column in table.column_iter_mut().skip(1).take(6) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for row in &self.0 {
            table.add_row(row.cells());
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(vfleet: Figure) -> Row {
        let limit = Some(Limit { says: "200 ms".to_owned(), most: 0.2 });
        Row { what: "x", nodes: 1, unit: Unit::Time, bare: Some(0.1), vfleet: Some(vfleet), go: None, limit }
    }

    #[test]
    fn a_limit_is_kept_up_to_itself() {
        assert_eq!(row(Figure::Is(0.2)).is_kept(), Some(true));
        assert_eq!(row(Figure::Is(0.201)).is_kept(), Some(false));
    }

    #[test]
    fn what_was_given_up_is_missed() {
        assert_eq!(row(Figure::MoreThan(0.1)).is_kept(), Some(false));
        assert_eq!(Report(vec![row(Figure::MoreThan(0.1)), row(Figure::Is(0.1))]).missed(), 1);
    }

    #[test]
    fn a_row_shows_figures_and_ratios() {
        let row = Row { go: Some(Figure::MoreThan(10.0)), ..row(Figure::Is(0.15)) };
        let cells = ["x", "1", "100 ms", "150 ms", "1.50x", "> 10.00 s", "> 67x", "200 ms", "ok"];
        assert_eq!(row.cells(), cells);
    }
}
