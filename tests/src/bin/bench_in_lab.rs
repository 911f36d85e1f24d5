//! What `make bench` runs in the lab's machine.

use clap::Parser;
use vfleet_tests::bench::Inside;

/// Measure in this machine, which is thrown away afterwards. `make bench` starts it.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    inside: Inside,
}

#[expect(clippy::print_stdout, reason = "what it is run for")]
fn main() -> anyhow::Result<()> {
    println!("{}", Arguments::parse().inside.run()?);
    Ok(())
}
