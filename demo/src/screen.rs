//! Output of the demo: tables that are updated on a terminal, lines otherwise.

use std::io::{IsTerminal, Stdout, Write, stdout};
use std::time::Instant;

/// Standard output of the demo.
pub(crate) struct Screen {
    out: Stdout,
    started: Instant,
    is_terminal: bool,
    /// Number of lines of the tables on the screen.
    drawn_lines: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { out: stdout(), started: Instant::now(), is_terminal: stdout().is_terminal(), drawn_lines: 0 }
    }

    /// Prints a step of the scenario with the time.
    pub(crate) fn print_step(&self, text: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.print(&format!("[{seconds:5.1} s] {text}\n"));
    }

    /// Prints text.
    pub(crate) fn print(&self, text: &str) {
        let mut out = self.out.lock();
        // A closed terminal is no error.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Shows a change: on a terminal the tables replace the old ones, elsewhere the lines are printed.
    pub(crate) fn update(&mut self, lines: &[String], tables: &str) {
        if self.is_terminal {
            self.draw(tables);
        } else {
            for line in lines {
                self.print_step(&format!("  {line}"));
            }
        }
    }

    fn draw(&mut self, tables: &str) {
        let up = if self.drawn_lines == 0 { String::new() } else { format!("\x1b[{}A", self.drawn_lines) };
        // Clears the rest of each line, and everything below: the old tables may have been larger.
        let body = tables.replace('\n', "\x1b[K\n") + "\x1b[K\n\x1b[J";
        self.drawn_lines = tables.lines().count();
        self.print(&format!("{up}{body}"));
    }

    /// Leaves the tables on the screen; the next output appears below them.
    pub(crate) fn finish_tables(&mut self, tables: &str) {
        if !self.is_terminal {
            self.print(&format!("{tables}\n"));
        }
        self.drawn_lines = 0;
    }
}
