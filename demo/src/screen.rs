//! Where the demo speaks: a table that updates on a terminal, lines otherwise.

use std::io::{IsTerminal, Stdout, Write, stdout};
use std::time::Instant;

use comfy_table::Table;

/// Standard output.
pub(crate) struct Screen {
    out: Stdout,
    started: Instant,
    is_terminal: bool,
    /// Lines of the table that is on the screen.
    table_lines: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { out: stdout(), started: Instant::now(), is_terminal: stdout().is_terminal(), table_lines: 0 }
    }

    /// A step of the story.
    pub(crate) fn say(&mut self, text: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.print(&format!("[{seconds:5.1} s] {text}\n"));
    }

    /// Text as it is.
    pub(crate) fn print(&self, text: &str) {
        let mut out = self.out.lock();
        // Nobody reads a screen that is gone.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Something changed: on a terminal the table is drawn over the old one, elsewhere the line is printed.
    pub(crate) fn update(&mut self, line: &str, table: &Table) {
        if !self.is_terminal {
            self.say(&format!("  {line}"));
            return;
        }
        let text = table.to_string();
        let up = if self.table_lines == 0 { String::new() } else { format!("\x1b[{}A", self.table_lines) };
        // Each line is cleared to its end: the old one may have been longer.
        let body = text.replace('\n', "\x1b[K\n") + "\x1b[K\n";
        self.table_lines = text.lines().count();
        self.print(&format!("{up}{body}"));
    }

    /// The table stays as it is; what comes next goes below.
    pub(crate) fn finish_table(&mut self) {
        self.table_lines = 0;
    }
}
