//! Where the demo speaks: tables that update on a terminal, lines otherwise.

use std::io::{IsTerminal, Stdout, Write, stdout};
use std::time::Instant;

/// Standard output.
pub(crate) struct Screen {
    out: Stdout,
    started: Instant,
    is_terminal: bool,
    /// Lines of the tables that are on the screen.
    drawn_lines: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { out: stdout(), started: Instant::now(), is_terminal: stdout().is_terminal(), drawn_lines: 0 }
    }

    /// A step of the story.
    pub(crate) fn say(&self, text: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.print(&format!("[{seconds:5.1} s] {text}\n"));
    }

    /// Text as it is.
    pub(crate) fn print(&self, text: &str) {
        let mut out = self.out.lock();
        // Nobody reads a screen that is gone.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Something changed: on a terminal the tables are drawn over the old ones, elsewhere the lines are printed.
    pub(crate) fn update(&mut self, lines: &[String], tables: &str) {
        if self.is_terminal {
            self.draw(tables);
        } else {
            for line in lines {
                self.say(&format!("  {line}"));
            }
        }
    }

    fn draw(&mut self, tables: &str) {
        let up = if self.drawn_lines == 0 { String::new() } else { format!("\x1b[{}A", self.drawn_lines) };
        // Each line is cleared to its end, and all below: the old one may have been longer.
        let body = tables.replace('\n', "\x1b[K\n") + "\x1b[K\n\x1b[J";
        self.drawn_lines = tables.lines().count();
        self.print(&format!("{up}{body}"));
    }

    /// The tables stay as they are; what comes next goes below.
    pub(crate) fn finish_tables(&mut self, tables: &str) {
        if !self.is_terminal {
            self.print(&format!("{tables}\n"));
        }
        self.drawn_lines = 0;
    }
}
