//! Log of the programs: standard error, one line for each event.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

/// Logging options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct LogArguments {
    /// Log format
    ///
    /// The log level is set by logLevel of the operator config, or by RUST_LOG (for example debug, or
    /// vfleet_agent=trace), which takes precedence.
    #[arg(
        long,
        value_name = "FORMAT",
        env = "LOG_FORMAT",
        value_enum,
        default_value_t,
        help_heading = "Logging"
    )]
    pub(crate) log_format: LogFormat,
}

/// Log format: a line of text or a JSON object for each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    // An empty variable counts as unset.
    #[default]
    #[value(alias = "")]
    Text,
    Json,
}

impl LogFormat {
    /// Returns the name of the format on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Handle that changes the log level while the program runs.
pub(crate) struct LogLevelHandle {
    /// `None` if `RUST_LOG` sets the level.
    filter: Option<Handle<EnvFilter, Registry>>,
}

/// Starts logging.
pub(crate) fn start(format: LogFormat) -> LogLevelHandle {
    let from_environment = EnvFilter::try_from_default_env().ok();
    let is_fixed = from_environment.is_some();
    let (filter, handle) = reload::Layer::new(from_environment.unwrap_or_else(|| filter(0)));
    let use_colors = std::io::stderr().is_terminal();
    let lines = fmt::layer().with_ansi(use_colors).with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    LogLevelHandle { filter: (!is_fixed).then_some(handle) }
}

impl LogLevelHandle {
    /// Sets the level that `logLevel` of the operator config requests: 0 info, 1 debug, 2 trace. Libraries stay at
    /// info.
    pub(crate) fn set(&self, level: i64) {
        let Some(handle) = &self.filter else {
            tracing::info!(level, "logLevel of the operator config is ignored: RUST_LOG is set");
            return;
        };
        match handle.reload(filter(level)) {
            Ok(()) => tracing::info!(level, "log level set by the operator config"),
            Err(error) => tracing::warn!(%error, level, "cannot change the log level"),
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
