//! Where the programs' log goes: standard error, one line an event.

use tracing_subscriber::EnvFilter;

/// Starts logging. `RUST_LOG` chooses what is logged, for example `debug` or `vfleet_agent=debug`.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
