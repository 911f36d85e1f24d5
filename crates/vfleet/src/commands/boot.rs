//! `vfleet boot`: what the units of systemd mode start.

/// todo
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> anyhow::Result<()> {
    Ok(())
}
