//! Table of results.

use std::fmt;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

/// Measured value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Figure {
    Is(f64),
    /// The measurement was stopped after this value.
    MoreThan(f64),
}

/// Unit of a value. Times are stored in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    Time,
    TimeEach,
    Count,
    Bytes,
}

/// Limit of the value of vfleet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Limit {
    pub(crate) text: String,
    pub(crate) maximum: f64,
}

/// Row of the table.
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
    /// Returns whether vfleet meets the limit, if there is one.
    pub(crate) fn is_limit_met(&self) -> Option<bool> {
        let (limit, figure) = (self.limit.as_ref()?, self.vfleet?);
        Some(matches!(figure, Figure::Is(value) if value <= limit.maximum))
    }

    fn cells(&self) -> Vec<String> {
        let format =
            |figure: Option<Figure>| figure.map(|figure| self.unit.figure(figure)).unwrap_or_default();
        let result = self.is_limit_met().map(|is_met| if is_met { "ok" } else { "missed" });
        vec![
            self.what.to_owned(),
            self.nodes.to_string(),
            self.bare.map(|bare| self.unit.value(bare)).unwrap_or_default(),
            format(self.vfleet),
            ratio(self.vfleet, self.bare.map(Figure::Is)),
            format(self.go),
            ratio(self.go, self.vfleet),
            self.limit.as_ref().map(|limit| limit.text.clone()).unwrap_or_default(),
            result.unwrap_or_default().to_owned(),
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
            Self::Time if value < 0.01 => format!("{:.1} ms", value * 1e3),
            Self::Time => format!("{:.0} ms", value * 1e3),
            Self::TimeEach => format!("{:.0} us", value * 1e6),
            Self::Count => format!("{value:.0}"),
            Self::Bytes => format!("{:.1} MB", value / 1e6),
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

/// Report with all rows.
pub(crate) struct Report(pub(crate) Vec<Row>);

impl Report {
    /// Returns the number of missed limits.
    pub(crate) fn count_missed(&self) -> usize {
        self.0.iter().filter(|row| row.is_limit_met() == Some(false)).count()
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
        let limit = Some(Limit { text: "200 ms".to_owned(), maximum: 0.2 });
        Row { what: "x", nodes: 1, unit: Unit::Time, bare: Some(0.1), vfleet: Some(vfleet), go: None, limit }
    }

    #[test]
    fn a_value_equal_to_the_limit_meets_it() {
        assert_eq!(row(Figure::Is(0.2)).is_limit_met(), Some(true));
        assert_eq!(row(Figure::Is(0.201)).is_limit_met(), Some(false));
    }

    #[test]
    fn a_stopped_measurement_misses_its_limit() {
        assert_eq!(row(Figure::MoreThan(0.1)).is_limit_met(), Some(false));
        assert_eq!(Report(vec![row(Figure::MoreThan(0.1)), row(Figure::Is(0.1))]).count_missed(), 1);
    }

    #[test]
    fn a_row_shows_figures_and_ratios() {
        let row = Row { go: Some(Figure::MoreThan(10.0)), ..row(Figure::Is(0.15)) };
        let cells = ["x", "1", "100 ms", "150 ms", "1.50x", "> 10.00 s", "> 67x", "200 ms", "ok"];
        assert_eq!(row.cells(), cells);
    }
}
