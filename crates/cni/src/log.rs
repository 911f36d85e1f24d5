//! Log of a plugin: lines on standard error, or in the file that the configuration names.

use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};
use vfleet_plan::cni::config::{LogLevel, LogSettings};

use crate::call::PluginCall;

/// Log of one call.
pub(crate) struct Log {
    level: Level,
    /// Plugin, container and interface, at the start of each line.
    subject: String,
    output: Mutex<Box<dyn std::io::Write + Send>>,
}

impl Log {
    /// Starts the log of a call. A file that cannot be opened is replaced by standard error, because a log must not prevent
    /// an attachment.
    pub(crate) fn start(call: &PluginCall) {
        let settings =
            call.settings.as_ref().map_or_else(|_| LogSettings::default(), |settings| settings.log().clone());
        let open = |path: &String| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let (output, fault): (Box<dyn std::io::Write + Send>, _) = match settings.file.as_ref().map(open) {
            Some(Ok(file)) => (Box::new(file), None),
            Some(Err(error)) => (Box::new(std::io::stderr()), Some(error)),
            None => (Box::new(std::io::stderr()), None),
        };
        let invocation = &call.invocation;
        let subject = format!("{} {} {}", call.plugin.name(), invocation.container_id, invocation.interface);
        let log = Self { level: level(settings.level), subject, output: Mutex::new(output) };
        // A second call in one process keeps the first log.
        let _ = subscriber::set_global_default(log);
        if let Some(error) = fault {
            let path = settings.file.unwrap_or_default();
            tracing::warn!(path, %error, "the log file cannot be opened: the log is on standard error");
        }
    }
}

const fn level(level: LogLevel) -> Level {
    match level {
        LogLevel::Panic | LogLevel::Error => Level::ERROR,
        LogLevel::Warning => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = format!("{:>5} {}:", event.metadata().level(), self.subject);
        event.record(&mut LineWriter(&mut line));
        line.push('\n');
        if let Ok(mut output) = self.output.lock() {
            // There is no better place to report that the log cannot be written.
            let _ = output.write_all(line.as_bytes());
        }
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Writer of the fields of an event.
struct LineWriter<'a>(&'a mut String);

impl Visit for LineWriter<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
