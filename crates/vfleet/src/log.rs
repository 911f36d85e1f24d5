//! Where the programs' log goes: standard error, one line an event.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct LogArguments {
    /// How the log is written. How much is logged: logLevel of the operator config, or RUST_LOG (for example debug, or
    /// vfleet_agent=trace), which counts more.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: Format,
}

/// One line of text, or one JSON object, an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    // An empty variable says nothing.
    #[default]
    #[value(alias = "")]
    Text,
    Json,
}

impl Format {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Changes how much is logged, while the program runs.
pub(crate) struct LevelSwitch {
    /// `None` when `RUST_LOG` has chosen.
    filter: Option<Handle<EnvFilter, Registry>>,
}

/// Starts logging.
pub(crate) fn start(format: Format) -> LevelSwitch {
    let chosen = EnvFilter::try_from_default_env().ok();
    let is_chosen = chosen.is_some();
    let (filter, handle) = reload::Layer::new(chosen.unwrap_or_else(|| filter(0)));
    let colours = std::io::stderr().is_terminal();
    let lines = fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    LevelSwitch { filter: (!is_chosen).then_some(handle) }
}

impl LevelSwitch {
    /// Logs as much as `logLevel` of the operator config asks for: 0 information, 1 also what is of use when looking
    /// for a mistake, 2 everything. Libraries stay at information.
    pub(crate) fn set(&self, level: i64) {
        let Some(handle) = &self.filter else {
            tracing::info!(level, "logLevel of the operator config does not count: RUST_LOG is set");
            return;
        };
        match handle.reload(filter(level)) {
            Ok(()) => tracing::info!(level, "log level is as the operator config says"),
            Err(error) => tracing::warn!(%error, level, "log level stays as it is"),
        }
    }
}

fn filter(level: i64) -> EnvFilter {
    EnvFilter::new(match level {
        ..=0 => "info",
        1 => "info,vfleet=debug",
        2.. => "info,vfleet=trace",
    })
}
